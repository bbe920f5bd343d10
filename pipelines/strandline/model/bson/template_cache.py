"""Cache of the templates of a stream of documents, and the decision when a new template pays off. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from strandline.model.bson.template import BsonTemplate, Fields, Into, Values

Plan = TypeVar("Plan")

_AT_ONCE: Final = 8
_WALKED_FIRST: Final = 20
"""Documents to walk first. Compiling an expression takes as long as walking this many documents."""
_FREE: Final = 4
_PRICE: Final = 100
"""Matched documents required for each template beyond the first `_FREE`."""
_PATIENCE: Final = 1_000


class BsonTemplateCache(Generic[Plan]):
    """Templates of recent documents, the last matched one first.

    Args:
        into: Selects the documents and arrays to split into values (`Into`).
        plan: Builds the reader's plan for a template. None: no plan; such documents are left to the walk.
    """

    def __init__(self, into: Into, plan: Callable[[Fields], Plan | None]) -> None:
        self._into, self._plan = into, plan
        self._known: list[tuple[BsonTemplate, Plan]] = []
        self._hits = self._misses = self._learned = 0

    def find(self, document: bytes) -> tuple[Plan, Values] | None:
        """Return plan and values of a document that matches a template. None: the document must be walked."""
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
        """Add a template of a walked document, unless earlier templates matched too few documents."""
        if self._misses > _PATIENCE and self._hits < self._misses:
            self._known.clear()  # too many different layouts
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
