"""Metrics of the lake in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pipelines.bronze.ownership import SOURCE
from pipelines.io.metrics import labelled
from pipelines.jobs.context import JobContext
from pipelines.jobs.offsets.position import Offset, show_offset
from pipelines.jobs.operations.dead_letters import error_metrics
from pipelines.jobs.operations.status import TableStatus, quarantined_rows, silver_status


def exposition(ctx: JobContext) -> str:
    """Return all metrics in the Prometheus text format.

    I/O: reads the newest rows of bronze, one small aggregate of each silver table and the dead letters; asks the source
    for its current time, as `show_offset` does.

    Raises:
        ConfigurationError: Nothing has been captured from this source.
    """
    registry = CollectorRegistry()
    registry.register(
        _StaticCollector(
            [
                *_offset_metrics(show_offset(ctx)),
                *_silver_metrics(_own_tables(ctx), quarantined_rows(ctx)),
                *_error_metrics(ctx),
            ],
            {"source": ctx.settings.source.name},
        )
    )
    return generate_latest(registry).decode()


class _StaticCollector(Collector):
    """Collector of metrics that were read once. Every series gets *labels*."""

    def __init__(self, metrics: list[Metric], labels: Mapping[str, str]) -> None:
        self._metrics = [labelled(metric, labels) for metric in metrics]

    def collect(self) -> list[Metric]:
        return self._metrics


def _own_tables(ctx: JobContext) -> list[TableStatus]:
    """Return the silver tables of the source. A lake may hold other sources' tables, too."""
    source = ctx.settings.source.name
    return [each for each in silver_status(ctx) if ctx.tables.properties(each.table).get(SOURCE, source) == source]


def _offset_metrics(offset: Offset) -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "strandline_source_state",
        "1 for the current state of the source, which an operator sets.",
        labels=("state",),
    )
    state.add_metric((offset.state,), 1)
    yield state
    known = (
        ("batch", "Number of the newest batch in bronze.", offset.batch),
        ("captured_timestamp_seconds", "Commit time of the newest batch.", _seconds(offset.captured_at)),
        ("last_event_timestamp_seconds", "Cluster time of the newest event in bronze.", _seconds(offset.last_event_at)),
        (
            "position_age_seconds",
            "Age of the committed position: current time of the source minus its cluster time.",
            offset.age_seconds,
        ),
        (
            "oplog_headroom_seconds",
            "Time until the oplog drops the position, at the current write rate.",
            offset.headroom_seconds,
        ),
    )
    for name, description, value in known:
        if value is not None:  # unknown values give no sample, so that an alert on absence fires
            family = GaugeMetricFamily(f"strandline_{name}", description)
            family.add_metric((), value)
            yield family


def _silver_metrics(tables: list[TableStatus], quarantined: dict[str, int]) -> Iterator[Metric]:
    rows = GaugeMetricFamily(
        "strandline_silver_table_rows", "Rows of a silver table by kind.", labels=("table", "kind")
    )
    newest = GaugeMetricFamily(
        "strandline_silver_newest_change_timestamp_seconds",
        "Cluster time of the newest change in a silver table.",
        labels=("table",),
    )
    for table in tables:
        name = str(table.table)
        kinds = {"live": table.live, "tombstone": table.tombstones, "rescued": table.rescued, "waiting": table.waiting}
        for kind, count in (kinds | {"stale": table.stale, "quarantined": quarantined.get(name, 0)}).items():
            rows.add_metric((name, kind), count)
        if (seconds := _seconds(table.newest_change)) is not None:
            newest.add_metric((name,), seconds)
    yield from (rows, newest)


def _error_metrics(ctx: JobContext) -> Iterator[Metric]:
    """Yield metrics with KIP-298 names, as totals over all runs. Prometheus needs underscores instead of dashes."""
    for name, value in error_metrics(ctx).items():
        is_time = isinstance(value, datetime) or name.endswith("timestamp")
        own_name = f"strandline_{name.replace('-', '_')}{'_seconds' if is_time else ''}"
        family = GaugeMetricFamily(own_name, f"{name}, from the control tables.")
        if value is not None:
            family.add_metric((), value.timestamp() if is_time else value)
            yield family


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
