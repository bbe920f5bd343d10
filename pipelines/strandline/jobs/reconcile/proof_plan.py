"""Plan of a continuous proof: the `_id` ranges of each collection, and those that the next step compares."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from strandline.control.proof import NEVER, ProofRange, ProofTable, carried_over
from strandline.io.telemetry.log_once import log_once
from strandline.jobs.reconcile.comparison import Comparison
from strandline.jobs.reconcile.run_reconcile import OpenedComparisons
from strandline.jobs.reconcile.source_digests import SourceDigests
from strandline.jobs.source_connection import connection_options
from strandline.model.bson import raw as rb
from strandline.model.namespaces import Namespace
from strandline.model.snapshot_policy import ChunkSize, Pace
from strandline.source.chunk_plan import index_bounds_after, plan_chunks
from strandline.source.client import Collection
from strandline.source.ranges import Range, ReadOptions, covers_all_ids

_log = logging.getLogger("strandline.reconcile")
_RANGE_SECONDS: Final = 10
"""Time for which one range is read. A stop waits for it."""
_MIN_RANGE_DOCUMENTS: Final = 1_000
"""For smaller ranges the planner's sample is so large that the server scans the collection."""
_KIND: Final = 4
"""Offset of the value's BSON type in ``{_id: value}``."""
_WITH_TEXT: Final = (rb.STRING, rb.SYMBOL, rb.DOCUMENT)


@dataclass(frozen=True)
class Share:
    """Ranges of one collection that a step compares."""

    comparison: Comparison
    old: Sequence[ProofRange]
    """Ranges of the collection in ``control.proof``."""
    plan: Sequence[ProofRange]
    """Ranges from now on."""
    numbers: Sequence[int]
    """Numbers of the ranges to compare, in *plan*."""


@dataclass(frozen=True)
class ProofPlan:
    """Choice of the ranges that one step compares: those whose newest comparison is the oldest.

    Args:
        pace: Budget of the source.
        rest: Minimum time between two comparisons of one range.
    """

    lake: OpenedComparisons
    table: ProofTable
    pace: Pace
    rest: timedelta

    def shares(self, names: Sequence[str], seconds: float) -> tuple[list[Share], bool]:
        """Return the shares of the next step, and True if no other range is due.

        I/O: reads ``control.proof``, and deletes collections from it that are not compared any more; reads samples and
        index entries of the source.

        Args:
            names: ``db.collection``. Empty: all.
            seconds: Time for which the step reads the source.
        """
        ranges, collections = self.table.read(), dict(self.lake.collections(names))
        for gone in () if names else ranges.keys() - collections.keys():
            self.table.delete(gone)
        left, shares = self.pace.documents_per_second * seconds, list[Share]()
        for namespace in sorted(collections, key=lambda one: (_looks(ranges.get(one, ())), one)):
            old = ranges.get(namespace, [])
            if left <= 0:
                return shares, False
            if old and not any(map(self._is_due, old)):
                continue
            plan = self._plan(namespace, collections[namespace], old)
            if plan and (chosen := list(self._chosen(plan, left))):
                left -= sum(map(self._documents, chosen))
                numbers = sorted(row.number for row in chosen)
                source = self._source(collections[namespace], plan, numbers)
                shares.append(Share(self.lake.comparison(namespace, source), old, plan, numbers))
        return shares, left > 0

    def _is_due(self, row: ProofRange) -> bool:
        return row.last_look <= self.lake.at - self.rest

    def _chosen(self, plan: Sequence[ProofRange], left: float) -> Iterator[ProofRange]:
        for row in sorted(filter(self._is_due, plan), key=lambda one: (one.last_look, one.number)):
            if left <= 0:
                return
            yield row
            left -= self._documents(row)

    def _documents(self, row: ProofRange) -> int:
        return self._size.documents if row.documents is None else row.documents

    @cached_property
    def _size(self) -> ChunkSize:
        size, documents = self.lake.ctx.settings.capture.chunk_size, self.pace.documents_per_second * _RANGE_SECONDS
        return replace(size, documents=min(size.documents, max(_MIN_RANGE_DOCUMENTS, int(documents))))

    def _plan(
        self, namespace: Namespace, collection: Collection | None, old: Sequence[ProofRange]
    ) -> Sequence[ProofRange]:
        """Return the ranges of a collection. It is divided anew when all ranges were compared.

        Empty: it cannot be compared in parts.
        """
        is_whole = covers_all_ids([Range(row.lower, row.upper) for row in old])
        if is_whole and any(row.last_look < row.planned_at for row in old):
            last = old[-1].lower
            if collection is None or last is None:
                return old
            added = index_bounds_after(self.lake.client, collection, last, self._size.documents)
            return with_divided_end(old, added) if added else old
        client = self.lake.client
        ranges = [Range()] if collection is None else plan_chunks(client, collection, self._size)
        bounds = [chunk.lower for chunk in ranges if chunk.lower is not None]
        if collection is not None and collection.has_collation and any(bound[_KIND] in _WITH_TEXT for bound in bounds):
            log_once(_log.name, "%s is left out of the continuous proof: a collation orders its _ids", str(namespace))
            return []
        source, at = self.table.source, self.lake.at
        new = [
            ProofRange(source, *namespace, number, chunk.lower, chunk.upper, at) for number, chunk in enumerate(ranges)
        ]
        return carried_over(old, new) if is_whole else new

    def _source(
        self, collection: Collection | None, plan: Sequence[ProofRange], numbers: Sequence[int]
    ) -> SourceDigests:
        settings = self.lake.ctx.settings
        fetch_size = min(settings.capture.snapshot_fetch_size, self.pace.reply_documents)
        reading = ReadOptions(self.lake.selection.fields, fetch_size=fetch_size, pace=self.pace)
        ranges = [Range(row.lower, row.upper) for row in plan]
        own_numbers = None if len(numbers) == len(plan) else numbers
        return SourceDigests(connection_options(settings), collection, ranges, reading, 1, own_numbers)


def with_divided_end(ranges: Sequence[ProofRange], bounds: Sequence[bytes]) -> list[ProofRange]:
    """Divide the last of *ranges* at *bounds*: documents with new `_id`s are often there. Pure."""
    last = ranges[-1]
    ends = zip([last.lower, *bounds], [*bounds, None], strict=True)
    parts = (
        replace(last, number=last.number + number, lower=lower, upper=upper, documents=None)
        for number, (lower, upper) in enumerate(ends)
    )
    return [*ranges[:-1], *parts]


def _looks(ranges: Sequence[ProofRange]) -> tuple[datetime, datetime]:
    """Return the times of the oldest and newest comparison: a collection without any goes before a large one."""
    looks = [row.last_look for row in ranges]
    return min(looks, default=NEVER), max(looks, default=NEVER)
