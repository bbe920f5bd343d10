"""What the tables tell, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pipelines.jobs.context import JobContext
from pipelines.jobs.operations.dead_letters import error_metrics
from pipelines.jobs.operations.status import Offset, TableStatus, held_rows, show_offset, silver_status


def exposition(ctx: JobContext) -> str:
    """I/O: reads the newest rows of bronze, a small aggregate of each silver table and the dead letters; asks the source as `status` does.

    Raises:
        ConfigurationError: Nothing has been captured from this source.
    """
    registry = CollectorRegistry()
    registry.register(
        _Read([*_of_offset(show_offset(ctx)), *_of_silver(silver_status(ctx), held_rows(ctx)), *_of_errors(ctx)])
    )
    return generate_latest(registry).decode()


class _Read(Collector):
    """What was read once."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def _of_offset(offset: Offset) -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "strandline_source_state", "1 for the state that an operator has set.", labels=("source", "state")
    )
    state.add_metric((offset.source, offset.state), 1)
    yield state
    known = (
        ("batch", "The newest batch of bronze.", offset.batch),
        ("captured_timestamp_seconds", "When the newest batch was committed.", _seconds(offset.captured_at)),
        ("last_event_timestamp_seconds", "Cluster time of the newest event in bronze.", _seconds(offset.last_event_at)),
        (
            "position_age_seconds",
            "How far the committed position lies behind the source's present.",
            offset.age_seconds,
        ),
        (
            "oplog_headroom_seconds",
            "Until the source forgets the position, as fast as its oplog rolls now.",
            offset.headroom_seconds,
        ),
    )
    for name, what, value in known:
        if value is not None:  # nothing is known: no sample, so that an alert on absence sees it
            family = GaugeMetricFamily(f"strandline_{name}", what, labels=("source",))
            family.add_metric((offset.source,), value)
            yield family


def _of_silver(tables: list[TableStatus], held: dict[str, int]) -> Iterator[Metric]:
    rows = GaugeMetricFamily(
        "strandline_silver_table_rows", "Rows of a silver table, by what they are.", labels=("table", "kind")
    )
    newest = GaugeMetricFamily(
        "strandline_silver_newest_change_timestamp_seconds", "Cluster time of its newest change.", labels=("table",)
    )
    for table in tables:
        name = str(table.table)
        kinds = {"live": table.live, "tombstone": table.tombstones, "rescued": table.rescued, "waiting": table.waiting}
        for kind, count in (kinds | {"stale": table.stale, "quarantined": held.get(name, 0)}).items():
            rows.add_metric((name, kind), count)
        if (seconds := _seconds(table.newest_change)) is not None:
            newest.add_metric((name,), seconds)
    yield from (rows, newest)


def _of_errors(ctx: JobContext) -> Iterator[Metric]:
    """KIP-298's names, with the dashes that Prometheus does not allow as underscores; of all runs together."""
    for name, value in error_metrics(ctx).items():
        is_time = isinstance(value, datetime) or name.endswith("timestamp")
        own_name = f"strandline_{name.replace('-', '_')}{'_seconds' if is_time else ''}"
        family = GaugeMetricFamily(own_name, f"{name}, of control.dead_letters.")
        if value is not None:
            family.add_metric((), value.timestamp() if is_time else value)
            yield family


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
