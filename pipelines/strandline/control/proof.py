"""Proof of each `_id` range: the newest cluster time at which silver was equal to the source there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Final

from strandline.io.tables.table_store import TableStore
from strandline.model.bson.id_order import RangeFinder
from strandline.model.namespaces import Namespace
from strandline.model.position import cluster_seconds
from strandline.model.query import Condition, Query
from strandline.model.table_schemas import PROOF, PROOF_DDL

NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class ProofRange:
    """Row of ``control.proof``: one `_id` range of a collection, and its newest comparison."""

    source: str
    db: str
    collection: str
    number: int
    """Numbers of a collection are 0, 1, 2 …, in the order of its `_id`s."""
    lower: bytes | None
    upper: bytes | None
    planned_at: datetime
    documents: int | None = None
    compared_at: datetime | None = None
    """End of the newest comparison, UTC. None: the range is due at once."""
    position: str | None = None
    """Newest position at which the range was equal. None: never."""
    cluster_time: datetime | None = None
    proven_at: datetime | None = None
    differences: int = 0
    run_id: str | None = None

    @property
    def last_look(self) -> datetime:
        return self.compared_at or NEVER

    def after(
        self, at: datetime, run_id: str, *, documents: int, position: str, differences: int, due_again: bool
    ) -> ProofRange:
        """Return the range after a comparison.

        Args:
            position: Position of the comparison.
            due_again: The documents that differ were read again, and the range is compared at once.
        """
        compared = replace(self, documents=documents, compared_at=at, differences=differences)
        if differences:
            is_due = due_again and not self.differences  # a repair that does not help is not repeated at once
            return replace(compared, run_id=run_id, compared_at=None if is_due else at)
        time = datetime.fromtimestamp(cluster_seconds(position), UTC)
        return replace(compared, run_id=None, position=position, cluster_time=time, proven_at=at)


def carried_over(old: Sequence[ProofRange], new: Sequence[ProofRange]) -> list[ProofRange]:
    """Return *new* with what is known of *old*, another division of the same collection: the oldest proof. Pure."""
    if not old:
        return list(new)
    finder = RangeFinder([row.lower for row in old if row.lower is not None])

    def carried(row: ProofRange) -> ProofRange:
        first = 0 if row.lower is None else finder.number(row.lower)
        last = len(old) - 1 if row.upper is None else finder.number(row.upper)
        covered = old[first : last + 1]
        oldest = min(covered, key=lambda one: one.position or "")
        worst = max(covered, key=lambda one: one.differences)
        return replace(
            row,
            compared_at=min(covered, key=lambda one: one.last_look).compared_at,
            position=oldest.position,
            cluster_time=oldest.cluster_time,
            proven_at=oldest.proven_at,
            differences=worst.differences,
            run_id=worst.run_id,
        )

    return [carried(row) for row in new]


@dataclass(frozen=True)
class ProofStatus:
    """Summary of ``control.proof`` for one source."""

    ranges: int
    unproven: int
    """Ranges that were never equal."""
    differences: int
    """Differences of the newest comparison of each range."""
    equal_through: datetime | None
    """Cluster time up to which every range was proven equal, UTC. None: a range was never equal."""
    oldest: str
    """Range with the oldest proof, or one without: ``shop.orders, range 3``. Numbers begin with 0."""

    def __str__(self) -> str:
        if self.equal_through is None:
            state = f"{self.ranges - self.unproven} of {self.ranges} ranges were proven equal"
        else:
            state = f"equal up to {self.equal_through:%Y-%m-%d %H:%M:%S} UTC"
        return f"{state}; oldest: {self.oldest}; differences: {self.differences}"


@dataclass(frozen=True)
class ProofTable:
    """Table ``control.proof``, of one source."""

    tables: TableStore
    source: str

    def read(self) -> dict[Namespace, list[ProofRange]]:
        """I/O: returns the ranges of each collection, in their order."""
        if not self.tables.exists(PROOF):
            return {}
        rows = self.tables.query(self._own().select(*(field.name for field in fields(ProofRange))).order("number"))
        ranges: dict[Namespace, list[ProofRange]] = {}
        for row in rows:
            ranges.setdefault(Namespace(row["db"], row["collection"]), []).append(ProofRange(**row))
        return ranges

    def write(self, ranges: Sequence[ProofRange]) -> None:
        """I/O: one commit that inserts *ranges*, or replaces them by their numbers."""
        self.tables.put_rows(PROOF, PROOF_DDL, [asdict(row) for row in ranges], "source", "db", "collection", "number")

    def delete(self, namespace: Namespace | None = None, first: int = 0) -> None:
        """I/O: one commit that deletes the ranges of a collection (None: of all) from the number *first*."""
        own: list[Condition] = [("source", "=", self.source), ("number", ">=", first)]
        if namespace is not None:
            own += [("db", "=", namespace.db), ("collection", "=", namespace.collection)]
        if self.tables.exists(PROOF):
            self.tables.delete_rows(PROOF, *own)

    def status(self) -> ProofStatus | None:
        """I/O: returns the summary. None: nothing was compared yet."""
        if not self.tables.exists(PROOF):
            return None
        (totals,) = self.tables.query(
            self._own().aggregate(
                ranges=("count", "number"),
                proven=("count", "position"),
                differences=("sum", "differences"),
                time=("min", "cluster_time"),
            )
        )
        if not totals["ranges"]:
            return None
        is_whole = totals["proven"] == totals["ranges"]
        some = self._own() if is_whole else self._own().where(("position", "is null", None))
        (oldest,) = self.tables.query(some.select("db", "collection", "number").order("position", "number").limit(1))
        return ProofStatus(
            ranges=totals["ranges"],
            unproven=totals["ranges"] - totals["proven"],
            differences=totals["differences"],
            equal_through=totals["time"] if is_whole else None,
            oldest=f"{oldest['db']}.{oldest['collection']}, range {oldest['number']}",
        )

    def _own(self) -> Query:
        return Query(PROOF).where(("source", "=", self.source))
