"""Generate ops/grafana/strandline.json: a dashboard of one source."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

_WIDTH, _HEIGHT = 8, 7
_COLUMNS: Final = 3
_SOURCE: Final = 'source="$source"'


@dataclass(frozen=True)
class Panel:
    """One graph: its expressions, each with the legend of its series."""

    title: str
    unit: str
    expressions: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


def _of(metric: str, more: str = "") -> str:
    return f"{metric}{{{_SOURCE}{more}}}"


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"histogram_quantile({quantile}, sum by (le) (rate({_of(metric + '_bucket')}[$__rate_interval])))", name)
        for quantile, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    )


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Now": (
        Panel("Behind the source", "s", ((_of("strandline_behind_source_seconds"), "behind"),), "stat"),
        Panel("Oplog headroom", "s", ((_of("strandline_oplog_headroom_seconds"), "headroom"),), "stat"),
        Panel(
            "Connected, and failing layers",
            "none",
            (
                (_of("strandline_connected"), "connected"),
                (_of("strandline_layer_failing"), "failures of {{layer}} in a row"),
            ),
            "stat",
        ),
    ),
    "Stream": (
        Panel(
            "Changes per second",
            "ops",
            ((f"sum by (operation) (rate({_of('strandline_changes_total')}[$__rate_interval]))", "{{operation}}"),),
        ),
        Panel("Lag", "s", ((_of("strandline_behind_source_seconds"), "behind the source"),)),
        Panel("Source to bronze", "s", _quantiles("strandline_source_to_bronze_seconds")),
        Panel("Source to silver", "s", _quantiles("strandline_source_to_silver_seconds")),
        Panel("Source to gold", "s", _quantiles("strandline_source_to_gold_seconds")),
        Panel("Commit", "s", _quantiles("strandline_commit_seconds")),
        Panel(
            "Queue",
            "bytes",
            (
                (_of("strandline_queue_bytes"), "waiting"),
                (_of("strandline_queue_capacity_bytes"), "capacity"),
            ),
        ),
        Panel(
            "Disconnects and elections per hour",
            "none",
            (
                (f"increase({_of('strandline_disconnects_total')}[1h])", "disconnects"),
                (f"increase({_of('strandline_primary_elections_total')}[1h])", "elections"),
            ),
        ),
        Panel(
            "Failures and retries per hour",
            "none",
            (
                (f"increase({_of('strandline_record_failures_total')}[1h])", "failures"),
                (f"increase({_of('strandline_retries_total')}[1h])", "retries"),
                (f"increase({_of('strandline_deadletterqueue_records_produced_total')}[1h])", "dead letters"),
            ),
        ),
    ),
    "Snapshot": (
        Panel(
            "Chunks",
            "none",
            (
                (_of("strandline_snapshot_chunks_done"), "done"),
                (_of("strandline_snapshot_chunks"), "all"),
            ),
        ),
        Panel(
            "Documents per second",
            "ops",
            ((f"rate({_of('strandline_snapshot_documents_total')}[$__rate_interval])", "documents"),),
        ),
        Panel("Documents by collection", "none", ((_of("strandline_snapshot_rows"), "{{collection}}"),)),
    ),
    "Silver": (
        Panel("Rows", "none", ((_of("strandline_silver_table_rows", ', kind="live"'), "{{table}}"),)),
        Panel(
            "Rows that need a look",
            "none",
            (
                (
                    "sum by (table, kind) ("
                    + _of("strandline_silver_table_rows", ', kind=~"rescued|waiting|stale|quarantined"')
                    + ") > 0",
                    "{{table}} {{kind}}",
                ),
            ),
        ),
        Panel(
            "Age of the newest change",
            "s",
            ((f"time() - {_of('strandline_silver_newest_change_timestamp_seconds')}", "{{table}}"),),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}, "panels": []})
        for number, panel in enumerate(row):
            place = {"x": number % _COLUMNS * _WIDTH, "y": top + 1 + number // _COLUMNS * _HEIGHT}
            panels.append(_panel(panel, {**place, "w": _WIDTH, "h": _HEIGHT}))
        top += 1 + -(-len(row) // _COLUMNS) * _HEIGHT
    for number, each in enumerate(panels, 1):
        each["id"] = number
    return {
        "uid": "strandline",
        "title": "Strandline",
        "tags": ["strandline"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_data_source(), _source()]},
        "panels": panels,
    }


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(65 + number), "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(panel.expressions)
        ],
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _source() -> dict[str, Any]:
    return {
        "name": "source",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": "label_values(strandline_connected, source)",
        "refresh": 2,
    }


def dashboard_page() -> str:
    """Return the text of ops/grafana/strandline.json."""
    return json.dumps(dashboard(), indent=2) + "\n"
