"""The change stream's pipeline and options: a pure factory, tested against literal stages with no server.

Control events (drop, rename, dropDatabase, invalidate) are never filtered out: with a ``$match`` on data changes alone a drop is
invisible and the cursor just dies. A rename is admitted by its target as well: ``renameCollection`` with dropTarget and ``$out`` show
no drop of the target.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.errors import ConfigurationError

Scope = Literal["deployment", "database", "collection"]

CONTROL_OPERATIONS = ("drop", "rename", "dropDatabase", "invalidate")
SYSTEM_DATABASES = ("admin", "config", "local")


@dataclass(frozen=True)
class Selection:
    """Which namespaces are captured. Patterns are anchored, case-sensitive regular expressions; no pattern means all."""

    scope: Scope = "deployment"
    database: str | None = None
    collection: str | None = None
    databases: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()

    @staticmethod
    def of(scope: Scope, target: str | None, databases: Sequence[str] = (), collections: Sequence[str] = ()) -> Selection:
        """Check and build a selection.

        Raises:
            ConfigurationError: Scope and target do not fit each other, or a pattern is no regular expression; all problems at once.
        """
        problems = []
        database, _, collection = (target or "").partition(".")
        if scope == "deployment" and target:
            problems.append(f"capture.target is {target!r}, but capture.scope 'deployment' takes none")
        if scope == "database" and (not database or collection):
            problems.append("capture.scope 'database' needs capture.target: <database>")
        if scope == "collection" and not collection:
            problems.append("capture.scope 'collection' needs capture.target: <database>.<collection>")
        for pattern in (*databases, *collections):
            try:
                re.compile(pattern)
            except re.error as error:
                problems.append(f"{pattern!r} is no regular expression ({error})")
        if problems:
            raise ConfigurationError("; ".join(problems), next_step="correct capture in conf/<target>.yml")
        return Selection(scope, database or None, collection or None, tuple(databases), tuple(collections))

    def admits(self, database: str, collection: str) -> bool:
        """Whether documents of that collection are captured (for snapshots; the stream is filtered in the server)."""
        if database in SYSTEM_DATABASES or collection.startswith("system."):
            return False
        if self.database not in (None, database) or self.collection not in (None, collection):
            return False
        return _any(self.databases, database) and _any(self.collections, f"{database}.{collection}")


def _any(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(re.fullmatch(pattern, name) for pattern in patterns)


def stream_stages(selection: Selection) -> list[dict[str, Any]]:
    """Stages after ``$changeStream``: at most one ``$match`` that admits the selected namespaces and every control event."""
    admitted: list[dict[str, Any]] = []
    if selection.databases:
        admitted.append({"ns.db": {"$regex": _anchored(selection.databases)}})
    if selection.collections:
        full_name = {"$concat": ["$ns.db", ".", "$ns.coll"]}
        admitted.append({"$expr": {"$regexMatch": {"input": full_name, "regex": _anchored(selection.collections)}}})
    if not admitted:
        return []
    return [{"$match": {"$or": [{"operationType": {"$in": list(CONTROL_OPERATIONS)}}, {"$and": admitted}]}}]


def _anchored(patterns: Sequence[str]) -> str:
    return "^(?:" + "|".join(f"(?:{pattern})" for pattern in patterns) + ")$"
