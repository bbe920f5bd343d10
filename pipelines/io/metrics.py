"""Prometheus metrics of this process. The first seven are those of KIP-298.

For example, ``total-retries`` of KIP-298 is ``strandline_retries_total``. Every series gets the label ``source`` when
it is read: a process works for one source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pipelines.errors import ConfigurationError
from pipelines.io.live_state import CAPTURE

disable_created_metrics()  # type: ignore[no-untyped-call]  # why: the library has no types there

RECORD_FAILURES = Counter("strandline_record_failures", "Failures seen, each attempt.")
RECORDS_SKIPPED = Counter(
    "strandline_records_skipped", "Events that landed without their document, because it could not be had."
)
RETRIES = Counter("strandline_retries", "Attempts after the first.")
FAILURES_LOGGED = Counter("strandline_failures_logged", "Failures that stand in the log or in control.dead_letters.")
LETTERS_PRODUCED = Counter("strandline_deadletterqueue_records_produced", "Rows noted in control.dead_letters.")
LETTER_FAILURES = Counter("strandline_deadletterqueue_produce_failures", "Commits to control.dead_letters that failed.")
LAST_FAILURE = Gauge("strandline_last_failure_timestamp_seconds", "When the last failure was seen; 0: never.")

EVENTS = Counter("strandline_events", "Change events that landed in bronze.")
DOCUMENTS = Counter("strandline_snapshot_documents", "Documents that snapshots landed in bronze.")
COMMIT_SECONDS = Histogram("strandline_commit_seconds", "Commits of the stream to bronze, proof included.")
LAST_EVENT = Gauge("strandline_last_event_timestamp_seconds", "Cluster time of the newest event that landed.")
SILVER_ROWS = Counter("strandline_silver_rows", "Rows that silver runs wrote.", ["table", "done"])
SILVER_SECONDS = Histogram("strandline_silver_seconds", "One table's share of a silver run.", ["table"])


def count_failures(seen: int, *, logged: int = 0, retries: int = 0) -> None:
    """Count failures, each attempt.

    Args:
        logged: Number of failures that are in the log or in a dead letter.
        retries: Number of failures that were retried.
    """
    RECORD_FAILURES.inc(seen)
    FAILURES_LOGGED.inc(logged)
    RETRIES.inc(retries)
    LAST_FAILURE.set_to_current_time()


def count_documents(committed: int) -> None:
    """Count the documents of one committed chunk of a snapshot."""
    DOCUMENTS.inc(committed)
    CAPTURE.committed()


class _LiveMetrics(Collector):
    """Metrics that are computed when they are read. An unknown value gives no sample."""

    def collect(self) -> Iterator[Metric]:
        behind = GaugeMetricFamily(
            "strandline_behind_source_seconds", "Age of the state that bronze shows, at the moment of the scrape."
        )
        if (seconds := CAPTURE.behind_seconds) is not None:
            behind.add_metric((), seconds)
        yield behind


REGISTRY.register(_LiveMetrics())


class _Labelled(Collector):
    """All metrics of this process, with more labels on every series."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)

    def collect(self) -> Iterator[Metric]:
        return (labelled(family, self._labels) for family in REGISTRY.collect())


def labelled(family: Metric, labels: Mapping[str, str]) -> Metric:
    """Return *family* with *labels* on every sample. A sample's own label wins."""
    found = Metric(family.name, family.documentation, family.type, family.unit)
    found.samples = [sample._replace(labels={**labels, **sample.labels}) for sample in family.samples]
    return found


def serve(port: int, address: str, labels: Mapping[str, str]) -> None:
    """I/O: serves ``GET /metrics`` in a thread until the process ends.

    Args:
        labels: Labels of every series: the source, and the user's own.

    Raises:
        ConfigurationError: The port is taken.
    """
    registry = CollectorRegistry()
    registry.register(_Labelled(labels))
    try:
        start_http_server(port, address, registry)
    except OSError as error:
        raise ConfigurationError(
            f"metrics cannot be served at {address}:{port} ({error.strerror})", next_step="choose another metrics.port"
        ) from error
