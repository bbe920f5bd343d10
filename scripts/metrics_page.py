"""Generate docs/metrics.md from the table of metrics in the code."""

from __future__ import annotations

from typing import Final

import strandline.io.telemetry.live_metrics
import strandline.jobs.operations.metrics  # noqa: F401  # why: the imports enter the metrics into the table
from strandline.io.telemetry.metric_table import STATE, UNKNOWN, Described, Place, described

_HEAD: Final = """# Metrics, for Prometheus

There are two sources of metrics. A running `strandline capture` or `strandline run` serves its own:

```yaml
metrics:
  port: 9400
  address: 0.0.0.0      # default: 127.0.0.1
  tags: {environment: prod}
```

`strandline metrics` prints what the tables tell about the source, whether or not anything runs: for the textfile
collector of the node exporter, a Pushgateway, or a job's log.

Every series has the label `source`, and the labels of `metrics.tags`. Counters of a process begin at zero with each
process; what the tables tell is of all time. A value that is not known has no sample. Tables and collections beyond
`metrics.max_tables` are summed under `(others)`. With `Accept: application/openmetrics-text` the endpoint answers in
the OpenMetrics format.

`GET /log` on the same port answers in JSON the newest 200 log lines, which the web page shows.

`GET /state` on the same port answers in JSON what a number cannot say: the newest event, the position, the last
transaction, the captured collections, the chunk of a snapshot. It holds no value of a document; the bounds of a chunk,
which are `_id`s, only with `logging.show_keys`.

A web page of another site cannot read the endpoint through a browser. On the loopback interface it answers only if the
request names `localhost` or a loopback address. With another `metrics.address`, `/log` and `/state` answer to an IP
address or to a name without a dot; `/metrics`, `/livez` and `/readyz` answer to any name.

[Traces and lineage](telemetry.md) are sent by other means, and are off by default.

`make docs` generates this page from the table of metrics in the code.
"""
_LAG: Final = """
## The lag

`strandline_behind_source_seconds` is the age of the state that bronze shows. It is computed when it is scraped: now,
minus the time until which all changes are in bronze. That time is the moment at which the stream had no more events, if
everything before it is committed, or the cluster time of the newest committed event. So it grows while the source, the
lake, a pause or a blocking snapshot holds the stream. It compares two clocks: that of the source and that of this
machine.

Quantiles come from the histogram:

    histogram_quantile(0.95, sum by (le) (rate(strandline_source_to_bronze_seconds_bucket[5m])))
"""
_TITLES: Final[dict[Place, str]] = {"process": "Of a process", "tables": "Of the tables"}
_CONTEXTS: Final = {
    "kip": "KIP-298",
    "streaming": "Debezium, streaming",
    "snapshot": "Debezium, snapshot",
}


def metrics_page() -> str:
    """Return the text of docs/metrics.md."""
    return _HEAD + _LAG + "".join(map(_place, _TITLES)) + _origins()


def _place(place: Place) -> str:
    rows = [
        f"| `{each.name}` | {each.kind} | {_labels(each)} | {each.text} |"
        for each in described()
        if each.place == place
    ]
    return (
        f"\n## {_TITLES[place]}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _labels(metric: Described) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels) or "–"


def origins() -> dict[str, str]:
    """Return the place of each attribute of Debezium and KIP-298: metrics, ``/state``, or the reason for none."""
    found: dict[str, list[str]] = {}
    for metric in described():
        for name in metric.origin:
            found.setdefault(name, []).append(f"`{metric.name}`")
    places = {name: " and ".join(dict.fromkeys(metrics)) for name, metrics in found.items()}
    return places | {name: f"`/state`: {place}" for name, place in STATE.items()} | UNKNOWN


def _origins() -> str:
    page = (
        "\n## Under the names of Debezium and KIP-298\n\nDebezium's times are in milliseconds, these are in seconds.\n"
    )
    for context, title in _CONTEXTS.items():
        rows = {name.partition(".")[2]: place for name, place in origins().items() if name.partition(".")[0] == context}
        page += f"\n### {title}\n\n| attribute | here |\n|---|---|\n"
        page += "".join(f"| `{name}` | {place} |\n" for name, place in sorted(rows.items()))
    return page
