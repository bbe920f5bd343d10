"""Erasure of documents: first no table shows them (hidden), then no file holds them (gone)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.errors import PySparkException

from strandline.bronze.offsets import Committed, committed
from strandline.control.erasures import Erasures, Request
from strandline.errors import ConfigurationError, RetriableError, one_line
from strandline.io.tables.table_store import own_tables
from strandline.jobs.context import JobContext
from strandline.jobs.erase.from_bronze import require_erasable
from strandline.jobs.erase.hide import hide
from strandline.jobs.erase.places import Scope
from strandline.jobs.erase.remove_files import remove_files, require_stopped
from strandline.jobs.selection import selection_of
from strandline.jobs.silver.table_names import key_prefix_of, table_of
from strandline.jobs.source_connection import connection_options
from strandline.model.bson import raw as rb
from strandline.model.bson.merge_key import document_merge_key, key_name
from strandline.model.json_input import id_document
from strandline.model.namespaces import Namespace
from strandline.model.position import BEFORE_ALL, snapshot_position
from strandline.model.table_schemas import bronze_table
from strandline.source.client import find_collection, open_client, operation_time, translate_errors
from strandline.source.document_reread import portions, read_documents_at

_log = logging.getLogger("strandline.erase")


@dataclass(frozen=True)
class ErasureResult:
    """Result of an erasure, or of its dry run."""

    id: str | None
    """Id in ``control.erasures``. None: a dry run."""
    documents: int
    rows: dict[str, int]
    """Number of rows that went, or would go, by table."""
    in_source: int | None
    """Documents that the source still has: a capture lands each of them again. None: the source did not answer."""
    is_gone: bool = False
    """True: no file holds them either."""


@dataclass(frozen=True)
class _Documents:
    """The documents that a request names."""

    ids: dict[str, bytes | None] = field(repr=False)
    """Documents ``{_id: value}`` by key. None: only the key is known."""
    is_everything: bool = False
    """True: a condition matches every row of the table."""


def run_erase(
    ctx: JobContext,
    collection: str,
    *,
    keys: Sequence[str] = (),
    where: str | None = None,
    by: str,
    why: str | None = None,
    now: bool = False,
    dry_run: bool = True,
    count: int | None = None,
) -> ErasureResult:
    """Erase documents of one collection.

    I/O: reads every place of `PLACES`; asks the source for the documents. Without *dry_run*, writes
    ``control.erasures``, brings silver up to date, removes the documents from every table, and builds gold again.

    Args:
        collection: ``database.collection``.
        keys: Values of `_id` as Extended JSON.
        where: SQL condition on the silver table. Exactly one of *keys* and *where* is given.
        by: Person or job that asked for it.
        why: Reason, for ``control.erasures``.
        now: Remove older versions and logs, too. The source is stopped.
        dry_run: Only count.
        count: Number of documents, if *where* matches every row of the table.

    Raises:
        ConfigurationError: A key is no Extended JSON or is nowhere in the lake; *where* is no condition, or matches
            nothing, or everything and *count* is not that number; *now* is not possible. Nothing was changed.
        RetriableError: A snapshot or a rebuild runs, a writer was at work, or gold could not be built. What was erased
            stays erased. Calling again is safe.
    """
    namespace, last = _collection(collection), require_quiet(ctx)
    if now:
        require_stopped(ctx)
    documents = _with_condition(ctx, namespace, where) if where is not None else _with_ids(keys)
    if documents.is_everything and not dry_run and count != len(documents.ids):
        raise ConfigurationError(
            f"the condition matches every document of {namespace}: {len(documents.ids)}",
            next_step=f"if you mean it, add --count {len(documents.ids)}",
        )
    scope = Scope(ctx, namespace, frozenset(documents.ids))
    counted, erasures = dict(scope.counts()), Erasures(ctx.tables)
    begun = erasures.unfinished(ctx.settings.source.name, scope.keys, "gone_at" if now else "hidden_at")
    _require_present(documents, begun.union(*counted.values()), namespace)
    require_erasable(scope, last)
    rows = {str(table): sum(counts.values()) for table, counts in counted.items()}
    in_source, at = _in_source(ctx, namespace, documents)
    if dry_run:
        return ErasureResult(None, len(documents.ids), rows, in_source)
    position = at or (f"{last.last_event}:~" if last.last_event else BEFORE_ALL)
    source, asked_at = ctx.settings.source.name, datetime.now(UTC)
    request = Request(uuid.uuid4().hex, source, namespace, scope.names, position, asked_at, by, why)
    erasures.add(request, scope.keys)
    versions = hide(scope)
    erasures.hide(request.id, datetime.now(UTC), versions)
    if now:
        remove_files(ctx, request.id)
    return ErasureResult(request.id, len(documents.ids), rows, in_source, is_gone=now)


def require_quiet(ctx: JobContext) -> Committed:
    """Return the end of bronze. Raise RetriableError while a snapshot or a rebuild would bring documents back."""
    bronze = bronze_table(ctx.settings.source.name)
    last = committed(ctx.tables, bronze) if ctx.tables.exists(bronze) else None
    if last is None:
        raise ConfigurationError("nothing has been captured from this source yet", next_step="strandline run --once")
    if last.snapshot_id is not None:
        raise RetriableError(
            "a snapshot runs, and may read the documents", next_step="wait for its end: strandline snapshot list"
        )
    if shadows := [table for table in own_tables(ctx.tables, "control") if table.shadow_of]:
        raise RetriableError(
            f"a rebuild runs, or was killed and left {shadows[0]}", next_step="wait for its end, or rebuild again"
        )
    return last


def _collection(name: str) -> Namespace:
    if (collection := Namespace.parse(name)).is_tenant_table:
        raise ConfigurationError(f"{name} is no database.collection", next_step="strandline status lists them")
    return collection


def _with_ids(keys: Sequence[str]) -> _Documents:
    documents = map(id_document, keys)
    return _Documents({document_merge_key(document): document for document in documents})


def _with_condition(ctx: JobContext, namespace: Namespace, where: str) -> _Documents:
    table = table_of(ctx, namespace)
    if not ctx.tables.exists(table):
        raise ConfigurationError(f"{namespace} has no silver table", next_step="name documents by --key")
    prefix, rows = key_prefix_of(ctx.settings.silver, namespace), ctx.tables.read(table)
    rows = rows.where(rows["_key"].startswith(prefix)) if prefix else rows
    try:
        matches = rows.where(f"({where})").select("_key", "_document").collect()
    except PySparkException as error:
        raise ConfigurationError(
            f"--where is no condition on {table}: {one_line(error)}", next_step="strandline schema show lists columns"
        ) from None
    if not matches:
        raise ConfigurationError(f"no row of {table} matches --where", next_step=f"strandline sql 'from {table}'")
    ids = {row["_key"].removeprefix(prefix): _id_of(row["_document"]) for row in matches}
    return _Documents(ids, is_everything=len(ids) == rows.count())


def _id_of(document: bytes | None) -> bytes | None:
    identifier = None if document is None else rb.field(bytes(document), b"_id")
    if document is None or identifier is None:
        return None
    kind, begin, end = identifier
    return rb.document_of([rb.element(b"_id", kind, bytes(document)[begin:end])])


def _require_present(documents: _Documents, present: set[str], namespace: Namespace) -> None:
    missing = sorted(documents.ids.keys() - present)
    if missing:
        raise ConfigurationError(
            f"the lake has no row of {len(missing)} of {len(documents.ids)} documents in {namespace}: "
            f"{key_name(missing[0])}{', …' if len(missing) > 1 else ''}",
            next_step="""correct --key: it is Extended JSON, such as 17, '"abc"' or '{"$oid": "…"}'""",
        )


def _in_source(ctx: JobContext, namespace: Namespace, documents: _Documents) -> tuple[int | None, str | None]:
    """Return how many of the documents the source has, and its position. None: it does not answer; the log says so."""
    identifiers = [document for document in documents.ids.values() if document is not None]
    fields, count = selection_of(ctx.settings.capture).fields, 0
    try:
        with closing(open_client(connection_options(ctx.settings), raw=True)) as client:
            at = operation_time(client)
            with translate_errors(f"looking for {namespace}"):
                there = find_collection(client[namespace.db], namespace.collection)
            for some in portions(identifiers):
                part = [(kind, one[begin:end]) for one in some for kind, _, begin, end in rb.elements(one)]
                count += 0 if there is None else len(read_documents_at(client, there, part, at, fields))
    except (RetriableError, ConfigurationError) as error:
        _log.warning("the source could not be asked whether it still has the documents: %s", one_line(error))
        return None, None
    return count, snapshot_position(*at)
