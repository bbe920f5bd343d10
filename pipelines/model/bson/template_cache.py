"""The layouts of documents that come one after the other: what is worth knowing of them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from pipelines.model.bson.template import BsonTemplate, Fields, Into, Values

Plan = TypeVar("Plan")

_AT_ONCE: Final = 8
_WALKED_FIRST: Final = 20
"""Documents. To make an expression takes as long as to walk over so many."""
_FREE: Final = 4
_PRICE: Final = 100
"""Documents that were found, for each layout more than the first ones."""
_PATIENCE: Final = 1_000


class BsonTemplateCache(Generic[Plan]):
    """The layouts of documents that come one after the other, the one that was met last first.

    Args:
        plan: What a reader makes of a layout; None: nothing, its documents are left to the walk.
    """

    def __init__(self, into: Into, plan: Callable[[Fields], Plan | None]) -> None:
        self._into, self._plan = into, plan
        self._known: list[tuple[BsonTemplate, Plan]] = []
        self._hits = self._misses = self._learned = 0

    def find(self, document: bytes) -> tuple[Plan, Values] | None:
        """What to do with a document, and its values; None: it is to be walked."""
        known = self._known
        for index, (template, plan) in enumerate(known):
            values = template.values(document)
            if values is not None:
                self._hits += 1
                if index:
                    known.insert(0, known.pop(index))
                return plan, values
        self._misses += 1
        return None

    def learn(self, document: bytes) -> None:
        """From a document that was walked, unless what was learned so far has not been worth it."""
        if self._misses > _PATIENCE and self._hits < self._misses:
            self._known.clear()  # there are too many ways to write one
            return
        if self._misses < _WALKED_FIRST or self._hits < _PRICE * (self._learned - _FREE):
            return
        self._learned += 1
        try:
            template = BsonTemplate(document, self._into)
        except ValueError:
            return
        plan = self._plan(template.root)
        if plan is not None:
            self._known[_AT_ONCE - 1 :] = []
            self._known.insert(0, (template, plan))
