"""A complete snapshot retires what it no longer met: documents that were deleted while nobody looked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipelines.io.tables import Tables
from pipelines.model.namespaces import Namespace
from pipelines.model.position import snapshot_position
from pipelines.model.tables import TableName
from pipelines.silver.latest import is_of


@dataclass(frozen=True)
class SnapshotCertificate:
    """One snapshot that sweeps. *threshold*: by collection, the smallest position at which a chunk of it was read."""

    snapshot_id: str
    threshold: dict[Namespace, str]
    absent_at: str | None
    """The position at which all collections were listed: one that is not among them was gone then. None: only some were asked for."""
    planned: frozenset[Namespace]
    complete_at: dict[Namespace, str] = field(default_factory=dict)
    """By collection, the largest position at which a chunk of it was read: a key that was not met was gone by then."""
    missed: frozenset[Namespace] = frozenset()
    """Planned, not gone, and without a threshold: it cannot tell what of them is gone."""

    @property
    def heals_up_to(self) -> str | None:
        """A gap that ends there or before has nothing left that this snapshot did not look at; None: it looked at some collections only."""
        return None if self.missed else self.absent_at

    def position_for(self, namespace: Namespace) -> str | None:
        """Below it, a key of the collection that the snapshot did not meet is gone. None: the snapshot cannot tell."""
        return self.threshold.get(namespace) if namespace in self.planned else self.absent_at

    def gone_by(self, namespace: Namespace) -> str | None:
        """At it, a key of the collection that the snapshot did not meet was gone for sure."""
        return self.complete_at.get(namespace) if namespace in self.planned else self.absent_at

    def met(self, tables: Tables, bronze: TableName, namespace: Namespace) -> DataFrame:
        """Keys that the snapshot read (``key``); those of documents that nobody could decode, too."""
        rows = tables.read(bronze).where((F.col("snapshot_id") == self.snapshot_id) & (F.col("op") == "r"))
        return rows.where(is_of(namespace)).select("key")


class Sweep(NamedTuple):
    """What one snapshot says of one collection."""

    met: DataFrame
    """Keys that it met (``key``)."""
    position: str
    """Below it, any other is gone."""
    gone_by: str


def snapshot_certificates(tables: Tables, bronze: TableName) -> list[SnapshotCertificate]:
    """I/O: every snapshot that sweeps."""
    rows = tables.read(bronze).where((F.col("op") == "snapshot") & (F.col("operation_type") == "completed"))
    found = (snapshot_certificate(tables, bronze, row[0]) for row in rows.select("snapshot_id").distinct().collect())
    return [snapshot for snapshot in found if snapshot is not None]


def snapshot_certificate(tables: Tables, bronze: TableName, snapshot_id: str) -> SnapshotCertificate | None:
    """I/O: the certificate of a snapshot; None where it sweeps nothing (nothing stood before it, or deletes are not captured)."""
    rows = tables.read(bronze).where((F.col("snapshot_id") == snapshot_id) & (F.col("op") == "snapshot"))
    return certified(
        snapshot_id, rows.select("operation_type", "db", "collection", "chunk", "position", "after").collect()
    )


def certified(snapshot_id: str, rows: Sequence[Row]) -> SnapshotCertificate | None:
    """The certificate from a snapshot's control rows. A collection has no threshold of which a query left something out, or another
    snapshot read a part, nor one of which a chunk was discarded, or read under another name than it had in the plan."""
    plans = [json.loads(row["after"]) for row in rows if row["operation_type"] == "plan"]
    if not plans or not any(row["operation_type"] == "completed" for row in rows):
        return None
    plan = plans[0]
    read = {
        (row["chunk"], row["db"], row["collection"]): row["position"]
        for row in rows
        if row["operation_type"] == "chunk"
    }
    chunks: dict[Namespace, list[str | None]] = {}
    for number, chunk in enumerate(plan["chunks"]):
        namespace = Namespace(chunk["db"], chunk["collection"])
        chunks.setdefault(namespace, []).append(read.get((number, *namespace)) if chunk["sweeps"] else None)
    whole = {
        namespace: read_at
        for namespace, found in chunks.items()
        if len(read_at := [at for at in found if at]) == len(found)
    }
    threshold, complete_at = (
        {namespace: chosen(read_at) for namespace, read_at in whole.items()} for chosen in (min, max)
    )
    absent_at = snapshot_position(*plan["at"]) if plan["complete"] else None
    if not threshold and not absent_at:
        return None
    missed = frozenset(chunks) - threshold.keys() - {_planned_as(plan, row["chunk"]) for row in rows if _was_gone(row)}
    return SnapshotCertificate(snapshot_id, threshold, absent_at, frozenset(chunks), complete_at, missed)


def _planned_as(plan: dict[str, Any], number: int) -> Namespace:
    chunk = plan["chunks"][number]
    return Namespace(chunk["db"], chunk["collection"])


def _was_gone(row: Row) -> bool:
    """Of a chunk that was discarded: not because a signal or the filters said so. The stream tells of the drop."""
    return row["operation_type"] == "discarded" and json.loads(row["after"] or "{}").get("selected", True) is None
