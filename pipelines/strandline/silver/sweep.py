"""Snapshot certificates and sweeps: a complete snapshot retires documents that it did not find."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.io.spark import column_functions as F
from strandline.io.tables.table_store import TableStore
from strandline.model.namespaces import Namespace
from strandline.model.position import snapshot_position
from strandline.model.query import Query
from strandline.model.tables import TableName
from strandline.silver.latest import in_namespace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.io.tables.spark_tables import Tables


@dataclass(frozen=True)
class SnapshotCertificate:
    """Proof that a completed snapshot is whole, so that a document it did not read is gone."""

    snapshot_id: str
    sweep_positions: dict[Namespace, str]
    """Smallest position at which a chunk was read, by collection."""
    listed_at: str | None
    """Position at which all collections were listed: an unlisted collection did not exist then. None: the snapshot
    covers only some."""
    planned: frozenset[Namespace]
    """Collections in the snapshot's plan: those that it reads, and those that it skips on purpose."""
    absence_positions: dict[Namespace, str] = field(default_factory=dict)
    """Largest position at which a chunk was read, by collection: a key that the snapshot did not read was gone by
    then."""
    unswept: frozenset[Namespace] = frozenset()
    """Planned collections that were not dropped and that the snapshot cannot sweep: it did not read them in full."""

    @property
    def heals_up_to(self) -> str | None:
        """Position up to which the snapshot heals gaps.

        None: it heals none, because it did not read every collection in full.
        """
        return None if self.unswept else self.listed_at

    def sweep_position(self, namespace: Namespace) -> str | None:
        """Return the position of the collection's sweep. Rows below it are gone if the snapshot did not read their key.

        None: the snapshot cannot sweep the collection.
        """
        return self.sweep_positions.get(namespace) if namespace in self.planned else self.listed_at

    def absence_position(self, namespace: Namespace) -> str | None:
        """Return the position by which a key that the snapshot did not read was certainly gone.

        None: no sweep of the collection.
        """
        return self.absence_positions.get(namespace) if namespace in self.planned else self.listed_at


class Sweep(NamedTuple):
    """One snapshot's sweep of one collection."""

    snapshot_id: str
    namespace: Namespace
    position: str
    """Rows below this position are gone if the snapshot did not read their key."""
    absence_position: str
    """Position by which those keys were certainly gone."""

    def read_keys(self, tables: Tables, bronze: TableName) -> DataFrame:
        """Return the keys (column ``key``) that the snapshot read, including keys of undecodable documents."""
        rows = tables.read(bronze).where((F.col("snapshot_id") == self.snapshot_id) & (F.col("op") == "r"))
        return rows.where(in_namespace(self.namespace)).select("key")


def snapshot_certificates(tables: TableStore, bronze: TableName) -> list[SnapshotCertificate]:
    """Return the certificates of all completed snapshots. I/O: reads the snapshots' control rows in bronze."""
    completed = Query(bronze).where(("op", "=", "snapshot"), ("operation_type", "=", "completed"))
    rows = tables.query(completed.group("snapshot_id"))
    certificates = (snapshot_certificate(tables, bronze, row["snapshot_id"]) for row in rows)
    return [snapshot for snapshot in certificates if snapshot is not None]


def snapshot_certificate(tables: TableStore, bronze: TableName, snapshot_id: str) -> SnapshotCertificate | None:
    """Return the certificate of a snapshot.

    None: the snapshot sweeps nothing, for example because deletes are not captured.

    I/O: reads the snapshot's control rows in bronze.
    """
    rows = Query(bronze).where(("snapshot_id", "=", snapshot_id), ("op", "=", "snapshot"))
    control_rows = tables.query(rows.select("operation_type", "db", "collection", "chunk", "position", "after"))
    return certificate_from_rows(snapshot_id, control_rows)


def certificate_from_rows(snapshot_id: str, rows: Sequence[Mapping[str, Any]]) -> SnapshotCertificate | None:
    """Build the certificate from a snapshot's control rows. None: not completed, or no collection can be swept.

    A collection is not swept if a query left documents out, if another snapshot read a part of it, if one of its chunks
    was discarded, or if a chunk was read under another name than the planned one.
    """
    plans = [json.loads(row["after"]) for row in rows if row["operation_type"] == "plan"]
    if not plans or not any(row["operation_type"] == "completed" for row in rows):
        return None
    plan = plans[0]
    read_times = {
        (row["chunk"], row["db"], row["collection"]): row["position"]
        for row in rows
        if row["operation_type"] == "chunk"
    }
    chunks: dict[Namespace, list[str | None]] = {}
    for number, chunk in enumerate(plan["chunks"]):
        if chunk.get("key"):  # a scheduled read writes a delete row for each document that is gone
            continue
        namespace = Namespace(chunk["db"], chunk["collection"])
        chunks.setdefault(namespace, []).append(read_times.get((number, *namespace)) if chunk["sweeps"] else None)
    whole = {
        namespace: read_at
        for namespace, times in chunks.items()
        if len(read_at := [at for at in times if at]) == len(times)
    }
    sweep_positions, absence_positions = (
        {namespace: chosen(read_at) for namespace, read_at in whole.items()} for chosen in (min, max)
    )
    listed_at = snapshot_position(*plan["at"]) if plan["complete"] else None
    if not sweep_positions and not listed_at:
        return None
    unswept = (
        frozenset(chunks)
        - sweep_positions.keys()
        - {_planned_as(plan, row["chunk"]) for row in rows if _was_dropped(row)}
    )
    planned = frozenset(chunks) | frozenset(map(Namespace.parse, plan.get("skipped", ())))
    return SnapshotCertificate(snapshot_id, sweep_positions, listed_at, planned, absence_positions, unswept)


def _planned_as(plan: dict[str, Any], number: int) -> Namespace:
    chunk = plan["chunks"][number]
    return Namespace(chunk["db"], chunk["collection"])


def _was_dropped(row: Mapping[str, Any]) -> bool:
    """Return True if a chunk was discarded because its collection was dropped. The stream has the drop event.

    False for a chunk that a signal or the filters discarded.
    """
    return row["operation_type"] == "discarded" and json.loads(row["after"] or "{}").get("selected", True) is None
