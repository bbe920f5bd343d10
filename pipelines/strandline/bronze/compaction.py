"""The rule of compaction: which events before a horizon no reader of bronze needs any more. Pure, but for `read`.

Of each key and each life of its collection's name, the newest document stays, with every row above it: a delete,
updates that came without their document, the same row again. Silver's MERGE makes of these rows what it makes of all
of them (decision 5). A row that stays is not changed. Control rows stay, but for old heartbeats.

A deletion goes, with all events of its key, if silver has removed the tombstone (decision 21).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.io.tables.table_store import TableStore
from strandline.model.horizon import Horizon
from strandline.model.lives import Lives, NameEvent
from strandline.model.namespaces import Namespace, NamespaceEvent, namespace_event
from strandline.model.query import Query
from strandline.model.table_schemas import DOCUMENT_OPS
from strandline.model.tables import TableName

READS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("db", "collection", "key", "position", "op", "snapshot_id", "resume_token")),
        ("batch", pa.int64()),
        ("document_size", pa.int32()),
    ]
)
"""Columns of bronze that tell which rows go."""
STATE: Final = pa.schema([("id", pa.string()), ("position", pa.string()), ("limit", pa.string()), ("op", pa.string())])
"""Columns that the rule needs of an event: see `CompactionRule.events_in`."""
_ROW: Final = pa.field("row", pa.int64())
_SEPARATOR: Final = "\0"
"""Stands in no name of a database or collection."""


@dataclass(frozen=True)
class CompactionRule:
    """Facts that decide which rows go."""

    horizon: Horizon
    arrivals: frozenset[tuple[str, str, str, str]]
    """The first row of each UUID: database, collection, key, position. It stays: it tells when the UUID came."""
    events: Mapping[Namespace, tuple[NamespaceEvent, ...]]
    """Drops, renames and creations, by name."""
    seen: Mapping[Namespace, Mapping[str, str]]
    """Smallest position of a row, by name and UUID."""
    watermarks: Mapping[Namespace, str]
    """Purge watermark of each silver table, by collection. Tombstones below it are gone there."""
    drops: bool = True
    """True if a drop of a collection ends its rows in silver."""
    renames: bool = True
    """True if a rename ends the rows under the old name in silver."""

    def lives(self, namespace: Namespace) -> Lives:
        """Return the lives of a name, as silver sees them."""
        return self._lives.get(namespace, Lives())

    @cached_property
    def _lives(self) -> dict[Namespace, Lives]:
        """Lives of the names with an event."""
        lives = {}
        for name, events in self.events.items():
            own = (one for event in events if (one := NameEvent.of(event, name)) is not None)
            lives[name] = Lives.of(own, self.seen.get(name, {}), drops=self.drops, renames=self.renames)
        return lives

    def limit(self, namespace: Namespace) -> str:
        """Return the position below which a deletion goes, with all events of its key. Empty: no deletion goes.

        None goes if the key may have documents that came from another name, or from a life that did not end.
        """
        lives = self.lives(namespace)
        is_target = any(event.to == namespace for event in self.events.get(namespace, ()))
        return "" if is_target or set(lives.boundaries) - lives.ends else self.watermarks.get(namespace, "")

    def ended_spans(self, namespace: Namespace) -> Iterator[tuple[str, str]]:
        """Yield the lives whose rows go, each as the positions before and after it."""
        lives, begin = self.lives(namespace), ""
        for end in lives.boundaries:
            if end < self.horizon.position and self._is_purged(namespace, end):
                yield begin, end
            begin = end

    def _is_purged(self, namespace: Namespace, end: str) -> bool:
        """Return True if the life that *end* ended, and what a rename made of it, are gone from silver's table."""
        while end in self.lives(namespace).ends:
            away = next((event.to for event in self.events[namespace] if event.position == end and event.to), None)
            if away is None or away == namespace:
                return end < min(self.horizon.position, self.watermarks.get(namespace, ""))
            namespace, at = away, end
            end = next((later for later in self.lives(away).boundaries if later > at), "")
        return False

    def events_in(self, rows: pa.RecordBatch) -> pa.Table:
        """Return what the rule needs of the events before the horizon: `STATE`, and ``row``, the place in *rows*.

        Args:
            rows: Rows of bronze, with the columns of `READS`.

        Returns:
            ``id``: key and life of the name. ``op``: ``d`` a delete, ``-`` an event that goes in any case, ``+`` a row
            with a document, empty: any other. ``limit``: see `limit`; null for none.
        """
        is_event = pc.and_(pc.is_in(rows["op"], pa.array(DOCUMENT_OPS)), pc.is_valid(rows["key"]))
        is_before = pc.and_(is_event, pc.less(rows["position"], self.horizon.position))
        table = pa.table(rows).append_column("row", pa.array(range(rows.num_rows), pa.int64())).filter(is_before)
        names = pc.binary_join_element_wise(table["db"], table["collection"], _SEPARATOR)
        position, op = table["position"], pc.if_else(pc.is_valid(table["document_size"]), "+", "")
        op = pc.if_else(pc.equal(table["op"], "d"), "d", op)
        life = pa.chunked_array([pa.repeat(pa.scalar(0), table.num_rows)])
        for name in pc.unique(names).to_pylist():
            namespace = Namespace(*name.split(_SEPARATOR))
            if not (boundaries := self.lives(namespace).boundaries):
                continue
            is_its = pc.equal(names, name)
            for boundary in boundaries:
                life = pc.add(life, pc.cast(pc.and_(is_its, pc.greater(position, boundary)), pa.int64()))
            for begin, end in self.ended_spans(namespace):
                goes = pc.and_(pc.greater(position, begin), pc.less(position, end))
                op = pc.if_else(pc.and_(is_its, goes), "-", op)
        identity = pc.binary_join_element_wise(names, pc.cast(life, pa.string()), table["key"], _SEPARATOR)
        limited, limits = self._limits
        limit = limits.take(pc.index_in(names, limited))
        return pa.table([identity, position, limit, op, table["row"]], schema=STATE.append(_ROW))

    @cached_property
    def _limits(self) -> tuple[pa.Array, pa.Array]:
        """Names that have a `limit`, and their limits."""
        limits = {_SEPARATOR.join(name): limit for name in self.watermarks if (limit := self.limit(name))}
        return pa.array(list(limits), pa.string()), pa.array(list(limits.values()), pa.string())

    def stays(self, rows: pa.RecordBatch) -> pa.Array:
        """Return True for each of *rows* that stays although its key has a newer document. Arguments: `events_in`."""
        ends_batch = pc.and_(
            pc.is_valid(rows["resume_token"]),
            pc.or_(pc.is_valid(rows["snapshot_id"]), pc.greater(rows["batch"], self.horizon.batch)),
        )
        identity = pc.binary_join_element_wise(
            rows["db"], rows["collection"], rows["key"], rows["position"], _SEPARATOR
        )
        first = pa.array(map(_SEPARATOR.join, self.arrivals), pa.string())
        return pc.or_(pc.fill_null(ends_batch, False), pc.fill_null(pc.is_in(identity, first), False))

    def is_old_heartbeat(self, rows: pa.RecordBatch) -> pa.Array:
        """Return True for each of *rows* that is a heartbeat before the horizon. Arguments: see `events_in`."""
        is_old = pc.and_(pc.equal(rows["op"], "heartbeat"), pc.less_equal(rows["batch"], self.horizon.batch))
        return pc.fill_null(is_old, False)


def superseded(events: pa.Table) -> pa.ChunkedArray:
    """Return True for each event that no reader needs, in their order.

    Args:
        events: `STATE` of all events of some keys before the horizon.
    """
    newest = _largest(events, events)
    base = _largest(events, events.filter(pc.equal(events["op"], "+")))
    is_older = pc.fill_null(pc.less(events["position"], base), False)
    is_last = pc.and_(pc.equal(events["op"], "d"), pc.equal(events["position"], newest))
    ends = events["id"].filter(pc.and_kleene(is_last, pc.less(events["position"], events["limit"])))
    is_gone = pc.or_(pc.equal(events["op"], "-"), pc.is_in(events["id"], ends.combine_chunks()))
    return pc.or_(is_older, is_gone)


def _largest(events: pa.Table, among: pa.Table) -> pa.ChunkedArray:
    """Return the largest position in *among* with the id of each of *events*. Null: there is none."""
    largest = among.group_by("id").aggregate([("position", "max")])
    ids = largest["id"].combine_chunks()
    return largest["position_max"].combine_chunks().take(pc.index_in(events["id"], ids))


def read_rule(
    tables: TableStore,
    bronze: TableName,
    horizon: Horizon,
    watermarks: Mapping[Namespace, str],
    *,
    drops: bool,
    renames: bool,
) -> CompactionRule:
    """Return the rule for the rows that bronze holds now. I/O: reads names and positions, and the events of names."""
    of_documents = Query(bronze).where(("op", "in", DOCUMENT_OPS), ("key", "is not null", None))
    columns = ("db", "collection", "collection_uuid")
    rows = tables.query(of_documents.group(*columns).aggregate(first=("min", "position")))
    seen: dict[Namespace, dict[str, str]] = {}
    for row in rows:
        if row["collection_uuid"]:
            seen.setdefault(Namespace(row["db"], row["collection"]), {})[row["collection_uuid"]] = row["first"]
    arrivals = set()
    if positions := {row["first"] for row in rows}:
        among = of_documents.where(("position", "in", positions)).group(*columns, "position")
        firsts = {(*(row[name] for name in columns), row["first"]) for row in rows}
        arrivals = {
            (row["db"], row["collection"], row["key"], row["position"])
            for row in tables.query(among.aggregate(key=("min", "key")))
            if (*(row[name] for name in columns), row["position"]) in firsts
        }
    events: dict[Namespace, tuple[NamespaceEvent, ...]] = {}
    for row in tables.query(Query(bronze).where(("op", "=", "ddl")).select("position", "envelope")):
        if (event := namespace_event(row["position"], bytes(row["envelope"]))) is not None:
            for name in {event.namespace, event.to or event.namespace}:
                events[name] = (*events.get(name, ()), event)
    return CompactionRule(horizon, frozenset(arrivals), events, seen, watermarks, drops, renames)
