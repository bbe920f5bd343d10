"""Metrics of the lake in the Prometheus text format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from strandline.control.notifications import MAINTENANCE, newest_notification
from strandline.control.proof import ProofStatus, ProofTable
from strandline.io.telemetry.live_metrics import largest
from strandline.io.telemetry.metric_table import describe
from strandline.io.telemetry.metrics import OTHERS, labelled
from strandline.jobs.lake_context import LakeContext
from strandline.jobs.offsets.show_offset import Offset, show_offset
from strandline.jobs.operations.dead_letters import error_metrics
from strandline.jobs.operations.status import TableStatus, quarantined_rows, silver_status
from strandline.model.query import Query
from strandline.model.table_schemas import RECONCILE

_TEXTS: Final = {
    "source_state": "1 for the state of the source that an operator has set: running, paused, stopped, deleted.",
    "capture_alive": "1: the process that captured last runs, or its last batch is young. 0: it has ended, or has "
    "committed nothing for five minutes and three heartbeats. `process` names it.",
    "batch": "Number of the newest batch in bronze.",
    "captured_timestamp_seconds": "Time of the newest batch. An idle capture still commits heartbeats.",
    "last_event_timestamp_seconds": "Cluster time of the newest event in bronze.",
    "position_age_seconds": "Age of the committed position: current time of the source minus its cluster time.",
    "oplog_headroom_seconds": "Time until the oplog drops the position, at the current write rate. "
    "Absent while the oplog has never dropped anything.",
    "silver_table_rows": "Rows of a silver table by kind: live, tombstone, rescued, waiting, stale, quarantined.",
    "silver_newest_change_timestamp_seconds": "Cluster time of the newest change in a silver table.",
    "reconcile_differences": "Confirmed differences that the newest reconcile run with differences found, and that "
    "are not repaired.",
    "proof_ranges": "Ranges of `_id` that the continuous comparison covers, by state: proven, unproven (never equal).",
    "proof_equal_timestamp_seconds": "Cluster time up to which every range was proven equal to the source. Absent "
    "while a range was never equal.",
    "proof_differences": "Differences that the newest comparison of each range found.",
    "maintained_timestamp_seconds": "End of the newest run of `strandline maintain`.",
}
_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "source_state": ("state",),
    "capture_alive": ("process",),
    "silver_table_rows": ("table", "kind"),
    "silver_newest_change_timestamp_seconds": ("table",),
    "proof_ranges": ("state",),
}
_KIP_NAMES: Final = {
    "total-record-failures": "Failures of all runs: of single events, and those that ended a run.",
    "total-records-skipped": "Events of all runs that landed without their document.",
    "total-retries": "Retries of single events, of all runs.",
    "deadletterqueue-records-produced": "Rows in control.dead_letters. All of them are `total-failures-logged`, too.",
    "last-failure-timestamp": "Time of the last failure of all runs.",
}


def _own_name(kip_name: str) -> str:
    """Return a name of KIP-298 as Prometheus allows it."""
    return kip_name.replace("-", "_") + ("_seconds" if kip_name.endswith("timestamp") else "")


_NAMES: Final = {
    name: describe(name, "gauge", text, labels=_LABELS.get(name, ()), place="tables") for name, text in _TEXTS.items()
} | {
    kip: describe(_own_name(kip), "gauge", text, origin=f"kip.{kip}", place="tables")
    for kip, text in _KIP_NAMES.items()
}


def exposition(ctx: LakeContext) -> str:
    """Return all metrics in the Prometheus text format.

    I/O: reads the newest rows of bronze, one small aggregate of each silver table and the control tables; asks the
    source for its current time, as `show_offset` does.

    Raises:
        ConfigurationError: Nothing has been captured from this source.
    """
    settings = ctx.settings.metrics
    registry = CollectorRegistry()
    registry.register(
        _StaticCollector(
            [
                *_offset_metrics(show_offset(ctx)),
                *_silver_metrics(
                    silver_status(ctx, ctx.settings.source.name), quarantined_rows(ctx), settings.max_tables
                ),
                *_control_metrics(ctx),
            ],
            {"source": ctx.settings.source.name, **settings.tags},
        )
    )
    return generate_latest(registry).decode()


class _StaticCollector(Collector):
    """Collector of metrics that were read once. Every series gets *labels*."""

    def __init__(self, metrics: list[Metric], labels: Mapping[str, str]) -> None:
        self._metrics = [labelled(metric, labels) for metric in metrics]

    def collect(self) -> list[Metric]:
        return self._metrics


def _family(name: str) -> GaugeMetricFamily:
    text = _TEXTS.get(name) or _KIP_NAMES[name]
    return GaugeMetricFamily(_NAMES[name], text, labels=_LABELS.get(name, ()))


def _gauges(values: Mapping[str, float | datetime | None]) -> Iterator[Metric]:
    """Yield gauges without labels. An unknown value gives no sample, so that an alert on absence fires."""
    for name, value in values.items():
        if value is not None:
            family = _family(name)
            family.add_metric((), value.timestamp() if isinstance(value, datetime) else value)
            yield family


def _offset_metrics(offset: Offset) -> Iterator[Metric]:
    state = _family("source_state")
    state.add_metric((offset.state,), 1)
    yield state
    if offset.process is not None:
        alive = _family("capture_alive")
        alive.add_metric((offset.process.worker,), offset.process.alive)
        yield alive
    yield from _gauges(
        {
            "batch": offset.batch,
            "captured_timestamp_seconds": offset.captured_at,
            "last_event_timestamp_seconds": offset.last_event_at,
            "position_age_seconds": offset.age_seconds,
            "oplog_headroom_seconds": offset.headroom_seconds,
        }
    )


def _silver_metrics(tables: list[TableStatus], quarantined: dict[str, int], limit: int) -> Iterator[Metric]:
    """Yield the metrics of silver. The tables with the fewest rows beyond *limit* are summed under `OTHERS`."""
    shown = largest({str(table.table): table.live for table in tables}, limit)
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    newest: dict[str, float] = {}
    for table in tables:
        name = str(table.table)
        label = name if name in shown else OTHERS
        kinds = {"live": table.live, "tombstone": table.tombstones, "rescued": table.rescued, "waiting": table.waiting}
        for kind, count in (kinds | {"stale": table.stale, "quarantined": quarantined.get(name, 0)}).items():
            counts[label, kind] += count
        if table.newest_change is not None:
            newest[label] = max(newest.get(label, 0.0), table.newest_change.timestamp())
    rows, changes = _family("silver_table_rows"), _family("silver_newest_change_timestamp_seconds")
    for labels, count in counts.items():
        rows.add_metric(labels, count)
    for label, seconds in newest.items():
        changes.add_metric((label,), seconds)
    yield from (rows, changes)


def _control_metrics(ctx: LakeContext) -> Iterator[Metric]:
    source = ctx.settings.source.name
    yield from _gauges(error_metrics(ctx))
    yield from _proof_metrics(ProofTable(ctx.tables, source).status())
    yield from _gauges(
        {
            "reconcile_differences": _differences(ctx),
            "maintained_timestamp_seconds": newest_notification(ctx.tables, source, MAINTENANCE),
        }
    )


def _proof_metrics(proof: ProofStatus | None) -> Iterator[Metric]:
    if proof is not None:
        ranges = _family("proof_ranges")
        ranges.add_metric(("proven",), proof.ranges - proof.unproven)
        ranges.add_metric(("unproven",), proof.unproven)
        yield ranges
        yield from _gauges(
            {"proof_equal_timestamp_seconds": proof.equal_through, "proof_differences": proof.differences}
        )


def _differences(ctx: LakeContext) -> int | None:
    """Return the open differences of the newest reconcile run with differences. None: no run ever found any."""
    if not ctx.tables.exists(RECONCILE):
        return None
    of_source = Query(RECONCILE).where(("source", "=", ctx.settings.source.name))
    newest = ctx.tables.query(of_source.select("run_id", "at").order("-at").limit(1))
    if not newest:
        return None
    is_open = of_source.where(
        ("run_id", "=", newest[0]["run_id"]), ("confirmed", "=", True), ("repaired_at", "is null", None)
    )
    (counts,) = ctx.tables.query(is_open.aggregate(rows=("count", "run_id")))
    return int(counts["rows"])
