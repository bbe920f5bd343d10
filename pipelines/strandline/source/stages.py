"""Pipeline and options of the change stream: a pure factory, tested against literal stages without a server.

Control events (`CONTROL_OPERATIONS`) are never filtered out. With a ``$match`` on data changes only,
a drop would be invisible and the cursor would just close. Renames always pass, because ``renameCollection`` with
dropTarget and ``$out`` send no drop event for the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from strandline.errors import ConfigurationError
from strandline.model.field_rules import FieldPolicy
from strandline.model.namespaces import SEARCH_DATABASE, Namespace
from strandline.model.regex_input import compiled, pattern_problem
from strandline.model.user_pipeline import CONTROL_OPERATIONS, Stage, UserPipeline
from strandline.source.field_stages import exclusion_stages

Scope = Literal["deployment", "database", "collection"]
MatchMode = Literal["regex", "literal"]
CaptureMode = Literal[
    "change_streams",
    "change_streams_update_full",
    "change_streams_with_pre_image",
    "change_streams_update_full_with_pre_image",
]
FullUpdateType = Literal["lookup", "post_image"]

SYSTEM_DATABASES = ("admin", "config", "local", SEARCH_DATABASE)
_OPERATIONS = {"c": ("insert",), "u": ("update", "replace"), "d": ("delete",)}


@dataclass(frozen=True)
class Images:
    """Documents that the server sends with a change: full document and pre-image.

    Images are requested as ``whenAvailable``, never as ``required``. A required stream would stop for good at an
    expired image, or at a new collection without images, because its token cannot be skipped. A missing image is null;
    the ``updateDescription`` still holds the change. A capture checks at its start that collections record images.
    """

    full_document: Literal["updateLookup", "whenAvailable"] | None = "updateLookup"
    before_change: Literal["whenAvailable"] | None = None

    @staticmethod
    def of(mode: CaptureMode, full_update_type: FullUpdateType = "lookup") -> Images:
        """Return the images for Debezium's capture mode."""
        full = mode in ("change_streams_update_full", "change_streams_update_full_with_pre_image")
        before = mode in ("change_streams_with_pre_image", "change_streams_update_full_with_pre_image")
        lookup: Literal["updateLookup", "whenAvailable"] = (
            "updateLookup" if full_update_type == "lookup" else "whenAvailable"
        )
        return Images(lookup if full else None, "whenAvailable" if before else None)

    @property
    def recorded(self) -> bool:
        """Return True if collections must record images (``changeStreamPreAndPostImages``, MongoDB 6.0 and newer)."""
        return self.full_document == "whenAvailable" or self.before_change is not None

    @property
    def watch_options(self) -> dict[str, Any]:
        """Return the arguments of ``watch``."""
        options = {"full_document": self.full_document, "full_document_before_change": self.before_change}
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True)
class Selection:
    """Captured part of the source: namespaces, operations, images and fields. An empty list of patterns means all.

    Patterns are anchored and case-sensitive. They are regular expressions, or, with *match_mode* `literal`, names.
    """

    scope: Scope = "deployment"
    database: str | None = None
    collection: str | None = None
    databases: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    excluded_databases: tuple[str, ...] = ()
    excluded_collections: tuple[str, ...] = ()
    match_mode: MatchMode = "regex"
    skipped_operations: tuple[str, ...] = ()
    """MongoDB operation types, such as ``insert``."""
    images: Images = Images()
    fields: FieldPolicy = FieldPolicy()
    user_pipeline: UserPipeline = UserPipeline()
    signals: Namespace | None = None
    """Collection whose inserts are signals. They pass the filters even if the collection is not captured."""
    scheduled: tuple[str, ...] = ()
    """Collections that are read whole at intervals, as ``database.collection``. The stream has none of them."""

    @staticmethod
    def of(
        scope: Scope,
        target: str | None,
        databases: Sequence[str] = (),
        collections: Sequence[str] = (),
        *,
        excluded_databases: Sequence[str] = (),
        excluded_collections: Sequence[str] = (),
        match_mode: MatchMode = "regex",
        skipped_operations: Sequence[str] = (),
        images: Images = Images(),
        fields: FieldPolicy = FieldPolicy(),
        user_pipeline: UserPipeline = UserPipeline(),
        signals: Namespace | None = None,
    ) -> Selection:
        """Check the arguments and return a selection.

        Args:
            target: Database, or ``database.collection``, by *scope*. None for scope `deployment`.
            skipped_operations: Debezium's letters: ``c`` inserts, ``u`` updates and replaces, ``d`` deletes. ``t`` and
                ``none`` skip nothing.

        Raises:
            ConfigurationError: Scope and target do not match, or a pattern is not a regular expression. The message
                lists all problems.
        """
        database, _, collection = (target or "").partition(".")
        lists = (*databases, *collections, *excluded_databases, *excluded_collections)
        problems = [*_target_problems(scope, target), *(_pattern_problems(lists) if match_mode == "regex" else ())]
        if signals is not None and (database not in ("", signals.db) or collection not in ("", signals.collection)):
            problems.append(f"capture.signal_data_collection {signals} is not in the stream of capture.target {target}")
        if problems:
            raise ConfigurationError("; ".join(problems), next_step="correct capture in conf/<target>.yml")
        return Selection(
            scope,
            database or None,
            collection or None,
            tuple(databases),
            tuple(collections),
            tuple(excluded_databases),
            tuple(excluded_collections),
            match_mode,
            tuple(operation for letter in skipped_operations for operation in _OPERATIONS.get(letter, ())),
            images,
            fields,
            user_pipeline,
            signals,
        )

    def admits(self, database: str, collection: str) -> bool:
        """Return True if the collection is captured. For snapshots: the server filters the stream itself."""
        if database in SYSTEM_DATABASES or Namespace(database, collection).is_internal:
            return False
        if self.database not in (None, database) or self.collection not in (None, collection):
            return False
        full_name = f"{database}.{collection}"
        if self._any(self.excluded_databases, database) or self._any(self.excluded_collections, full_name):
            return False
        included = (self.databases, database), (self.collections, full_name)
        return all(not patterns or self._any(patterns, name) for patterns, name in included)

    def _any(self, patterns: Sequence[str], name: str) -> bool:
        return any(self.matches(pattern, name) for pattern in patterns)

    def matches(self, pattern: str, name: str) -> bool:
        """Return True if *pattern* matches *name*: a database, or ``database.collection``."""
        # `compiled` limits \w and \d to ASCII, as the server does.
        return pattern == name if self.match_mode == "literal" else compiled(pattern).fullmatch(name) is not None


def _target_problems(scope: Scope, target: str | None) -> list[str]:
    database, _, collection = (target or "").partition(".")
    problems = []
    if scope == "deployment" and target:
        problems.append(f"capture.target is {target!r}, but capture.scope 'deployment' takes none")
    if scope == "database" and (not database or collection):
        problems.append("capture.scope 'database' needs capture.target: <database>")
    if scope == "collection" and not collection:
        problems.append("capture.scope 'collection' needs capture.target: <database>.<collection>")
    return problems


def _pattern_problems(patterns: Sequence[str]) -> list[str]:
    judged = ((pattern, pattern_problem(pattern)) for pattern in patterns)
    return [f"{pattern!r} {problem}" for pattern, problem in judged if problem is not None]


def stream_stages(selection: Selection, resume_after: str | None = None, *, excluding: bool = True) -> list[Stage]:
    """Return the stages after ``$changeStream``: internal stages and the user's, in the configured order.

    Internal stages filter namespaces and operations, then remove excluded fields. Every ``$match`` and ``$redact``,
    also the user's, lets control events, signals and the event of *resume_after* pass.

    Args:
        resume_after: ``_data`` of the token that the stream starts after. The server searches for this event after the
            ``$match``. A filter that changed since the commit would hide the event: each start would fail with 280.
        excluding: Remove excluded fields in the server (needs ``$unsetField``, MongoDB 5.0).
    """
    always: list[dict[str, Any]] = [{"operationType": {"$in": list(CONTROL_OPERATIONS)}}]
    if resume_after is not None:
        always.append({"_id._data": resume_after})
    if (signals := selection.signals) is not None:
        always.append({"operationType": "insert", "ns.db": signals.db, "ns.coll": signals.collection})
    admitted = _admitted(selection)
    own: list[Stage] = [{"$match": {"$or": [*always, {"$and": admitted}]}}] if admitted else []
    if excluding:
        own += exclusion_stages(selection.fields, pre_image=selection.images.before_change is not None)
    users = [_passing(stage, always) for stage in selection.user_pipeline.stages]
    if selection.user_pipeline.order == "user_only":
        return users
    return own + users if selection.user_pipeline.order == "internal_first" else users + own


def _passing(stage: Stage, always: Sequence[dict[str, Any]]) -> Stage:
    """Return a user's stage that also lets events pass that meet a condition of *always*."""
    if "$match" in stage:
        return {"$match": {"$or": [*always, stage["$match"]]}}
    if "$redact" in stage:
        return {
            "$redact": {
                "$cond": [{"$or": [_expression(condition) for condition in always]}, "$$KEEP", stage["$redact"]]
            }
        }
    return stage


def _expression(condition: dict[str, Any]) -> dict[str, Any]:
    """Return a flat ``$match`` condition (values and ``$in`` only) as an aggregation expression."""
    lists = {name: values["$in"] if isinstance(values, dict) else [values] for name, values in condition.items()}
    return {"$and": [{"$in": [f"${name}", {"$literal": values}]} for name, values in lists.items()]}


def _admitted(selection: Selection) -> list[dict[str, Any]]:
    """Return the conditions that a data change must all meet."""
    regex = selection.match_mode == "regex"
    of_databases, of_collections = (
        (_database_regex, _collection_regex) if regex else (_database_names, _collection_names)
    )
    admitted: list[dict[str, Any]] = []
    if selection.databases:
        admitted.append(of_databases(selection.databases))
    if selection.excluded_databases:
        admitted.append({"$nor": [of_databases(selection.excluded_databases)]})
    if selection.collections:
        admitted.append(of_collections(selection.collections))
    if selection.excluded_collections:
        admitted.append({"$nor": [of_collections(selection.excluded_collections)]})
    if selection.skipped_operations:
        admitted.append({"operationType": {"$nin": list(selection.skipped_operations)}})
    return admitted


def _database_regex(patterns: Sequence[str]) -> dict[str, Any]:
    return {"ns.db": {"$regex": _anchored(patterns)}}


def _collection_regex(patterns: Sequence[str]) -> dict[str, Any]:
    full_name = {"$concat": ["$ns.db", ".", "$ns.coll"]}
    return {"$expr": {"$regexMatch": {"input": full_name, "regex": _anchored(patterns)}}}


def _database_names(names: Sequence[str]) -> dict[str, Any]:
    return {"ns.db": {"$in": list(names)}}


def _collection_names(names: Sequence[str]) -> dict[str, Any]:
    """Return a condition on full names. The first dot ends the database, because its name has no dot."""
    split = (name.partition(".") for name in names)
    return {"$or": [{"ns.db": database, "ns.coll": collection} for database, _, collection in split]}


def _anchored(patterns: Sequence[str]) -> str:
    # `$` would also match before a final line break.
    return "^(?:" + "|".join(f"(?:{pattern})" for pattern in patterns) + ")\\z"
