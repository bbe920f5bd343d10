"""Restore: write collections as they were at a moment to another deployment, or to files, and prove the result."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql import functions as F

from strandline.errors import ConfigurationError, ContractError
from strandline.io.telemetry.progress import PROGRESS, Step
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import required_offset
from strandline.jobs.parallel_map import parallel_map
from strandline.jobs.restore.certainty import Certainty, complete_reads
from strandline.jobs.restore.definition import DEFINING_OPERATIONS, Definition, Definitions
from strandline.jobs.restore.documents import DocumentsAt, Expectation, InexactDocument, Origin, documents_at
from strandline.jobs.restore.moment import in_words, moment_of
from strandline.jobs.restore.targets import DeploymentTarget, FolderTarget, Target
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.model.bson.merge_key import document_merge_key, key_name
from strandline.model.deployment import IDENTITY_PROPERTY, same_deployment
from strandline.model.horizon import Horizon
from strandline.model.json_input import id_document
from strandline.model.namespaces import Namespace
from strandline.model.position import snapshot_position
from strandline.model.query import Query
from strandline.model.range_digest import RangeDigest
from strandline.model.regex_input import compiled, pattern_problem
from strandline.model.table_schemas import bronze_table
from strandline.silver.progress_index import ProgressIndex
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.deployment import identity_of

_COLLECTIONS_AT_ONCE: Final = 4
_SHOWN: Final = 3


@dataclass(frozen=True)
class RestoredCollection:
    """A collection in the target. Its documents were read back: number and digest are as they should be."""

    collection: str
    documents: int
    bytes: int
    digest: str
    """Sum of the documents' hashes, in hex."""
    origin: Origin
    """Table from which the documents came."""
    indexes: int
    """Indexes besides that of `_id`."""
    is_definition_whole: bool
    """False: bronze lacks the creation of the collection. Older indexes and options are missing."""


@dataclass(frozen=True)
class RestoreResult:
    """Result of a restore."""

    as_of: tuple[int, int]
    """Cluster time of the moment: seconds since the epoch, and increment."""
    collections: tuple[RestoredCollection, ...]
    inexact: tuple[InexactDocument, ...]
    """Empty, unless *allow_inexact* was set."""
    seconds: float


@dataclass(frozen=True)
class _Task:
    """A collection to write."""

    documents: DocumentsAt
    definition: Definition
    expected: Expectation

    @property
    def namespace(self) -> Namespace:
        return self.documents.namespace


def run_restore(
    ctx: JobContext,
    *,
    as_of: str,
    collections: Sequence[str],
    to: str | Path,
    keys: Sequence[str] = (),
    allow_inexact: bool = False,
    resume: bool = False,
    into_source: Collection[str] = (),
) -> RestoreResult:
    """Write collections as they were at a moment to another deployment or to files, and compare what was written.

    I/O: reads bronze and histories with Spark; writes to the target only. Order: check the moment and the target, fold
    all documents to count them, write each collection, read it back.

    Args:
        as_of: See `moment_of`.
        collections: Regular expressions, each for the whole of ``database.collection``.
        to: URI of a MongoDB deployment, or folder for files as `mongodump` writes them.
        keys: Values of `_id` as Extended JSON; empty: all documents.
        allow_inexact: Write documents that may be newer, or of which a change may be missing, and list them.
        resume: Continue a restore that was interrupted: the target may hold documents of it.
        into_source: Names of the databases, typed again, to write into the captured deployment. Empty: that is refused.

    Raises:
        ConfigurationError: An argument is wrong, the moment is not known, or the target is not empty or is the source.
            Nothing was written.
        ContractError: The target does not hold the documents that it should hold.

    Effects on failure:
        The target holds a part of the documents. Calling again with *resume* is safe.
    """
    began, wanted_keys = time.monotonic(), [document_merge_key(id_document(key)) for key in keys]
    if problem := next(filter(None, map(pattern_problem, collections)), None):
        raise ConfigurationError(f"--collection {problem}", next_step="a regular expression for database.collection")
    at = moment_of(ctx, as_of, required_offset(ctx))
    with _target(ctx, to, into_source) as (target, is_source):
        tasks = _tasks(ctx, at, collections, wanted_keys, allow_inexact=allow_inexact)
        names = [task.namespace for task in tasks]
        if is_source and (wrong := {name.db for name in names} ^ set(into_source)):
            raise ConfigurationError(
                f"{min(wrong)} is not both restored and confirmed",
                next_step="confirm each restored database by its name",
            )
        if not resume and (full := target.held(names)):
            raise ConfigurationError(
                f"the target is not empty: {', '.join(full[:_SHOWN])}",
                next_step="an empty target; or --resume, if an interrupted restore has left it",
            )
        with (
            PROGRESS.step("restore", "documents", sum(task.expected.digest.documents for task in tasks)) as step,
            ThreadPoolExecutor(_COLLECTIONS_AT_ONCE) as pool,
        ):
            results = parallel_map(pool, lambda task: _restore(task, target, step), tasks)
    inexact = tuple(document for task in tasks for document in task.expected.inexact)
    return RestoreResult(at, tuple(results), inexact, time.monotonic() - began)


@contextmanager
def _target(ctx: JobContext, to: str | Path, into_source: Collection[str]) -> Iterator[tuple[Target, bool]]:
    """Open the target. True: it is, or may be, the captured deployment."""
    if isinstance(to, Path) or "://" not in to:
        yield FolderTarget(Path(to)), False
        return
    own = ctx.tables.properties(bronze_table(ctx.settings.source.name)).get(IDENTITY_PROPERTY, "")
    with closing(open_client(ConnectionOptions(to), raw=True)) as client:
        identity = identity_of(client)
        is_source = identity is not None and same_deployment(own, identity)
        if is_source and not into_source:
            raise ConfigurationError(
                "the target is the captured source, or cannot be told from it",
                next_step="another deployment, --to files DIR, or --into-source with the names of the databases",
            )
        yield DeploymentTarget(client), is_source


def _tasks(
    ctx: JobContext, at: tuple[int, int], patterns: Sequence[str], keys: Sequence[str], *, allow_inexact: bool
) -> list[_Task]:
    """Return the collections to write, with what the target must hold. I/O: reads bronze; folds every document once."""
    moment, bronze = snapshot_position(*at), bronze_table(ctx.settings.source.name)
    index = ProgressIndex.read(ctx.tables, bronze)
    state = BronzeState.read(ctx, ProgressIndex(index.bronze), index.bronze.newest())
    everything = state.increment_after(-1)
    selected = [compiled(pattern) for pattern in patterns]
    certainty = Certainty(everything.events, everything.changed, complete_reads(ctx.tables, bronze), state.all_gaps)
    names = [name for name in certainty.names(moment) if any(one.fullmatch(str(name)) for one in selected)]
    doubts = {name: _skipped(ctx) or certainty.doubt(name, moment) for name in names}
    for doubt in doubts.values():
        if doubt is not None and not allow_inexact:
            raise ConfigurationError(f"{doubt} (as of {in_words(at)})", next_step="another moment, or --allow-inexact")
    definitions = Definitions(_definition_rows(ctx))
    tasks = list[_Task]()
    with PROGRESS.step("folding", "collections", len(names)) as step:
        for name in step.over(names):
            documents = documents_at(ctx, state, index, name, moment, keys=keys, doubt=doubts[name])
            if documents.origin == "bronze" and state.horizon is not None and moment < state.horizon.position:
                documents = _compacted(documents, state.horizon, at, allow_inexact=allow_inexact)
            expected = documents.expectation()
            is_empty_then = doubts[name] is None and not keys and certainty.exists(name, moment)
            if expected.digest.documents or expected.inexact or is_empty_then:
                tasks.append(_Task(documents, definitions.at(name, moment), expected))
    _require_all(tasks, at, keys, allow_inexact=allow_inexact)
    return tasks


def _compacted(documents: DocumentsAt, horizon: Horizon, at: tuple[int, int], *, allow_inexact: bool) -> DocumentsAt:
    """Return *documents* as inexact ones: bronze was compacted since. Raise ConfigurationError if these are refused."""
    reason = f"bronze was compacted up to {horizon.time.isoformat()}, and no history tells of {documents.namespace}"
    if not allow_inexact:
        raise ConfigurationError(f"{reason} (as of {in_words(at)})", next_step="a later moment, or --allow-inexact")
    return replace(documents, rows=documents.rows.withColumn("reason", F.lit(reason)))


def _skipped(ctx: JobContext) -> str | None:
    operations = sorted({"c", "u", "d"} & set(ctx.settings.capture.skipped_operations))
    return f"capture.skipped_operations leaves out {', '.join(operations)}" if operations else None


def _definition_rows(ctx: JobContext) -> list[dict[str, object]]:
    rows = Query(bronze_table(ctx.settings.source.name)).select("position", "operation_type", "envelope")
    return ctx.tables.query(rows.where(("op", "=", "ddl"), ("operation_type", "in", DEFINING_OPERATIONS)))


def _require_all(tasks: Sequence[_Task], at: tuple[int, int], keys: Sequence[str], *, allow_inexact: bool) -> None:
    """Raise ConfigurationError if there is nothing to restore, a key is missing, or a document is inexact."""
    if not tasks:
        what = "document with that _id" if keys else "collection of that name"
        raise ConfigurationError(f"there was no {what} at {in_words(at)}", next_step="another moment or --collection")
    missing = set(keys).difference(*(task.documents.keys() for task in tasks)) if keys else ()
    if missing:
        raise ConfigurationError(
            f"{len(missing)} of the documents of --key did not exist at {in_words(at)}",
            next_step="another moment, or leave them out",
        )
    inexact = [document for task in tasks for document in task.expected.inexact]
    if inexact and not allow_inexact:
        first = inexact[0]
        raise ConfigurationError(
            f"{len(inexact)} documents are not known exactly at {in_words(at)}, the first is {key_name(first.key)} of "
            f"{first.collection} ({first.reason})",
            next_step="--allow-inexact, which lists them; strandline explain columns has the reasons",
        )


def _restore(task: _Task, target: Target, step: Step) -> RestoredCollection:
    """Write one collection, unless the target holds it, and compare it with what it must hold."""
    name, expected = task.namespace, task.expected
    step.item = str(name)
    held = _digest(target, name)
    if held != expected.digest or not held.documents:
        if held.documents > expected.digest.documents:
            raise ContractError(
                f"the target holds {held.documents} documents of {name}, more than the {expected.digest.documents} of "
                "that moment",
                next_step="restore into an empty target",
            )
        for count in target.write(name, task.definition, task.documents.stream(expected.bytes)):
            step.advance(count)
    target.define(name, task.definition)
    held = _digest(target, name)
    if held != expected.digest:
        raise ContractError(
            f"the target holds {held.documents} documents of {name} with the digest {held.to_hex()}; at that moment "
            f"there were {expected.digest.documents} with {expected.digest.to_hex()}",
            next_step="restore into an empty target that no one else writes to",
        )
    return RestoredCollection(
        str(name),
        held.documents,
        expected.bytes,
        held.to_hex(),
        task.documents.origin,
        len(task.definition.indexes),
        task.definition.is_whole,
    )


def _digest(target: Target, name: Namespace) -> RangeDigest:
    total = RangeDigest()
    for documents in target.documents(name):
        total += RangeDigest.of(documents)
    return total
