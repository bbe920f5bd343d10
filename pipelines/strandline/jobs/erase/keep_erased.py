"""Erasures in maintenance: documents that came back go again, and erasures end."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.control.erasures import Erasures, Request, key_hash, key_hash_sql
from strandline.errors import RetriableError, one_line
from strandline.jobs.context import JobContext
from strandline.jobs.erase.from_bronze import require_erasable
from strandline.jobs.erase.hide import hide
from strandline.jobs.erase.places import KeyedTable, Scope
from strandline.jobs.erase.remove_files import finish_erasures
from strandline.jobs.erase.run_erase import require_quiet
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import ERASURES


def keep_erased(ctx: JobContext) -> list[str]:
    """Erase documents again that came back with old events, and note which erasures have ended.

    A capture leaves old events out (`ErasedEvents`), but one that was committing a batch, or another program, may have
    landed some. Events after the erasure are the source's own: they stay, and are told.

    I/O: reads the keys of the tables of erased documents; then as `run_erase` and `finish_erasures`.

    Returns:
        Notes for an operator.
    """
    if not ctx.tables.exists(ERASURES):
        return []
    notes, erasures = [], Erasures(ctx.tables)
    for namespace, interrupted in _erasures(ctx).items():
        again, later = _came_back(ctx, namespace)
        if again or interrupted:
            try:
                _erase_again(ctx, namespace, again, interrupted)
                notes.append(f"{namespace}: {len(again)} documents came back with old events, and were erased again")
            except RetriableError as error:
                notes.append(f"{namespace}: {len(again)} documents came back with old events: {one_line(error)}")
        if later:
            hashes = {key_hash(key, erasures.secret()) for key in later}
            erasures.note_again(ctx.settings.source.name, namespace, hashes, datetime.now(UTC))
            again_there = f"THE SOURCE BROUGHT {len(later)} ERASED DOCUMENTS AGAIN: delete them there first"
            notes.append(f"{namespace}: {again_there}")
    if waiting := finish_erasures(ctx):
        notes.append(f"{waiting} erasures wait for the retention of files and logs")
    return notes


def _erasures(ctx: JobContext) -> dict[Namespace, list[str]]:
    """Return the ids of interrupted erasures, by collection. Every collection with an erasure has an entry."""
    interrupted: dict[Namespace, list[str]] = {}
    for row in Erasures(ctx.tables).all(ctx.settings.source.name):
        its = interrupted.setdefault(Namespace(row["db"], row["collection"]), [])
        its += [row["id"]] if row["hidden_at"] is None else []
    return interrupted


def _erase_again(ctx: JobContext, namespace: Namespace, keys: Mapping[str, str], interrupted: Sequence[str]) -> None:
    """I/O: as `run_erase`. *keys*: the keys, each with its erasure's position. Ends *interrupted* erasures, too."""
    scope, erasures = Scope(ctx, namespace, frozenset(keys)), Erasures(ctx.tables)
    require_erasable(scope, require_quiet(ctx))
    identifiers = list(interrupted)
    if keys:
        source, position, now = ctx.settings.source.name, max(keys.values()), datetime.now(UTC)
        why = "old events came again"
        request = Request(uuid.uuid4().hex, source, namespace, scope.names, position, now, "maintain", why)
        erasures.add(request, keys)
        identifiers.append(request.id)
    versions = hide(scope)
    for identifier in identifiers:
        erasures.hide(identifier, datetime.now(UTC), versions)


def _came_back(ctx: JobContext, namespace: Namespace) -> tuple[dict[str, str], set[str]]:
    """I/O: returns the keys that came with old events, each with its erasure's position; and those that came later."""
    scope, erased = Scope(ctx, namespace, frozenset()), _erased(ctx, namespace)
    secret, again, later = Erasures(ctx.tables).secret(), dict[str, str](), set[str]()
    for table in scope.keyed:
        rows = _positions(scope, table).withColumn("key_hash", F.expr(key_hash_sql("key", secret)))
        for row in rows.join(F.broadcast(erased), "key_hash").collect():
            if row["newest"] is None or row["newest"] <= row["limit"]:
                again[row["key"]] = row["limit"]
            else:
                later.add(row["key"])
    return {key: limit for key, limit in again.items() if key not in later}, later


def _erased(ctx: JobContext, namespace: Namespace) -> DataFrame:
    """Return the hash of each erased document, and the position of its last erasure as ``limit``."""
    of = {"source": ctx.settings.source.name, "db": namespace.db, "collection": namespace.collection}
    rows = ctx.tables.read(ERASURES)
    for column, value in of.items():
        rows = rows.where(F.col(column) == value)
    return rows.groupBy("key_hash").agg(F.max("position").alias("limit"))


def _positions(scope: Scope, table: KeyedTable) -> DataFrame:
    """Return each key of a table, with its newest position."""
    rows = scope.ctx.tables.read(table.name).alias("t")
    rows = rows.where(table.among) if table.among else rows
    position = "_position" if table.key == "_key" else "position"
    return rows.groupBy(F.col(table.key).alias("key")).agg(F.max(position).alias("newest")).where("key IS NOT NULL")
