"""Prometheus metrics of this process. The first seven are those of KIP-298.

For example, ``total-retries`` of KIP-298 is ``strandline_retries_total``. Every series gets the label ``source`` when
it is read: a process works for one source.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, Metric, disable_created_metrics
from prometheus_client.registry import Collector

from strandline.io.telemetry.metric_table import describe

disable_created_metrics()  # type: ignore[no-untyped-call]  # why: the library has no types there

_AGES = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 900, 3600)
"""Bounds of the buckets of latencies, in seconds."""
OTHERS = "(others)"
"""Value of the label ``table`` for all tables beyond the limit."""


def _counter(name: str, text: str, *labels: str, origin: str = "") -> Counter:
    return Counter(describe(name, "counter", text, labels=labels, origin=origin), text, labels)


def _gauge(name: str, text: str, *labels: str, origin: str = "") -> Gauge:
    return Gauge(describe(name, "gauge", text, labels=labels, origin=origin), text, labels)


def _histogram(name: str, text: str, *labels: str, origin: str = "", ages: bool = False) -> Histogram:
    shown = describe(name, "histogram", text, labels=labels, origin=origin)
    return Histogram(shown, text, labels, buckets=_AGES if ages else Histogram.DEFAULT_BUCKETS)


RECORD_FAILURES = _counter(
    "record_failures",
    "Failures, each attempt: of events, of the connection, of commits, and the failure that ends a run.",
    origin="kip.total-record-failures",
)
RECORDS_SKIPPED = _counter(
    "records_skipped",
    "Events that landed without their document, because it could not be read.",
    origin="kip.total-records-skipped",
)
RETRIES = _counter("retries", "Attempts after the first.", origin="kip.total-retries")
FAILURES_LOGGED = _counter(
    "failures_logged", "Failures in the log or in control.dead_letters.", origin="kip.total-failures-logged"
)
LETTERS_PRODUCED = _counter(
    "deadletterqueue_records_produced",
    "Rows written to control.dead_letters.",
    origin="kip.deadletterqueue-records-produced",
)
LETTER_FAILURES = _counter(
    "deadletterqueue_produce_failures",
    "Failed commits to control.dead_letters.",
    origin="kip.deadletterqueue-produce-failures",
)
LAST_FAILURE = _gauge(
    "last_failure_timestamp_seconds", "Time of the last failure; 0: never.", origin="kip.last-failure-timestamp"
)

EVENTS = _counter("events", "Change events committed to bronze.", origin="streaming.TotalNumberOfEventsSeen")
CHANGES = _counter(
    "changes",
    "Change events committed to bronze, by operation: create, update, delete.",
    "operation",
    origin="streaming.TotalNumberOfCreateEventsSeen streaming.TotalNumberOfUpdateEventsSeen "
    "streaming.TotalNumberOfDeleteEventsSeen",
)
UNKNOWN_EVENTS = _counter(
    "unknown_events",
    "Change events committed to bronze of an operation type that this release does not know. Silver ignores them.",
    "operation_type",
)
TRANSACTIONS = _counter(
    "transactions",
    "Transactions of the source whose events were committed to bronze.",
    origin="streaming.NumberOfCommittedTransactions",
)
DOCUMENTS = _counter(
    "snapshot_documents", "Documents of snapshots committed to bronze.", origin="snapshot.TotalNumberOfEventsSeen"
)
SNAPSHOT_SLOWED = _counter(
    "snapshot_slowed_seconds",
    "Time that threads of snapshots waited before a chunk because the source was loaded, by reason: tickets, "
    "replication_lag, flow_control, overload.",
    "reason",
)
COMMIT_SECONDS = _histogram("commit_seconds", "Duration of a commit of the stream to bronze, with its proof.")
LAST_EVENT = _gauge("last_event_timestamp_seconds", "Cluster time of the newest event in bronze.")
SOURCE_TO_BRONZE = _histogram(
    "source_to_bronze_seconds",
    "Age of the oldest event of a batch when the batch is committed.",
    origin="streaming.MilliSecondsBehindSourceMinValue streaming.MilliSecondsBehindSourceMaxValue "
    "streaming.MilliSecondsBehindSourceAverageValue streaming.MilliSecondsBehindSourceP50 "
    "streaming.MilliSecondsBehindSourceP95 streaming.MilliSecondsBehindSourceP99",
    ages=True,
)
SOURCE_TO_SILVER = _histogram(
    "source_to_silver_seconds", "The same when silver has merged the batch (`strandline run`).", ages=True
)
SOURCE_TO_GOLD = _histogram(
    "source_to_gold_seconds", "The same when gold is built from it (`strandline run`).", ages=True
)
_SILVER_ROWS = _counter(
    "silver_rows", "Rows that silver runs wrote, by what was done: inserted, updated, versions.", "table", "done"
)
_SILVER_SECONDS = _histogram("silver_seconds", "Duration of one table's part of a silver run.", "table")
_SILVER_ALONE = _counter(
    "silver_documents_alone",
    "Documents that silver runs read one by one: in small batches, and where they are unlike the others of a batch.",
    "table",
)

LAYER_FAILURES = _counter("layer_failures", "Failed runs of silver, gold or proof in `strandline run`.", "layer")
LAYER_FAILING = _gauge("layer_failing", "Failed runs of silver, gold or proof in a row; 0: it works.", "layer")

TELEMETRY_FAILURES = _counter(
    "telemetry_failures",
    "Deliveries of traces or lineage that failed: of a batch of spans, or of one lineage event.",
    "kind",
)


class _BoundedNames:
    """The first tables keep their names; all further ones share `OTHERS`. So the number of series is bounded."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lock = threading.Lock()
        self.limit = 50

    def __call__(self, table: str) -> str:
        with self._lock:
            if table in self._names or len(self._names) < self.limit:
                self._names.add(table)
                return table
        return OTHERS


TABLE_NAMES = _BoundedNames()


def count_silver(table: str, counts: Mapping[str, int], seconds: float) -> None:
    """Count one table's part of a silver run: rows by what was done, and its duration."""
    name = TABLE_NAMES(table)
    for what, rows in counts.items():
        _SILVER_ROWS.labels(name, what).inc(rows)
    _SILVER_SECONDS.labels(name).observe(seconds)


def count_alone(table: str, documents: int) -> None:
    """Count the documents of a batch that were not read together with the others."""
    _SILVER_ALONE.labels(TABLE_NAMES(table)).inc(documents)


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


class Labelled(Collector):
    """All metrics of this process and of a capture, with more labels on every series."""

    def __init__(self, labels: Mapping[str, str], capture: Collector) -> None:
        self._labels, self._capture = dict(labels), capture

    def collect(self) -> Iterator[Metric]:
        return (labelled(family, self._labels) for family in (*REGISTRY.collect(), *self._capture.collect()))


def labelled(family: Metric, labels: Mapping[str, str]) -> Metric:
    """Return *family* with *labels* on every sample. A sample's own label wins."""
    metric = Metric(family.name, family.documentation, family.type, family.unit)
    metric.samples = [sample._replace(labels={**labels, **sample.labels}) for sample in family.samples]
    return metric
