"""The alerts and the dashboard name only metrics, labels and pages that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import strandline.io.telemetry.live_metrics
import strandline.jobs.operations.metrics  # noqa: F401  # why: the imports enter the metrics into the table
from scripts.dashboard import dashboard, dashboard_page
from strandline.cli import app
from strandline.io.telemetry.metric_table import described

ROOT = Path(__file__).parents[2]
_RULES = ROOT / "ops" / "prometheus" / "strandline.rules.yml"
_METRIC = re.compile(r"\b(strandline_\w+?)(?:_bucket|_sum|_count)?\b(?:\{([^}]*)\})?(?![\w])")
_EVERYWHERE = {"source", "instance", "job"}


def labels_of(name: str) -> set[str]:
    """Labels of a metric in either place; KeyError if there is no such metric."""
    found = [each for each in described() if each.name == name]
    if not found:
        raise KeyError(name)
    return _EVERYWHERE.union(*(each.labels for each in found))


def check(expression: str) -> None:
    """Every metric exists and has the labels that the expression selects by."""
    found = _METRIC.findall(expression)
    assert found, expression
    for name, selectors in found:
        assert set(re.findall(r"(\w+)\s*=", selectors or "")) <= labels_of(name), expression
    used = {label for by in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for label in re.findall(r"\w+", by)}
    assert used <= set().union(*(labels_of(name) for name, _ in found)) | {"le"}, expression


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_can_fire_and_says_what_to_run(rule: dict[str, Any]) -> None:
    check(rule["expr"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    told = rule["annotations"]
    assert set(told) == {"summary", "description", "command", "runbook"}
    page, _, anchor = told["runbook"].partition("#")
    text = (ROOT / page).read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ")).replace(" ", "-").lower()
        for line in text.splitlines()
        if line.startswith("#")
    }
    assert not anchor or anchor in headings, told["runbook"]
    for verb in re.findall(r"strandline ([\w-]+)", told["command"]):
        names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
        names += [str(group.typer_instance.info.name) for group in app.registered_groups if group.typer_instance]
        assert verb.replace("-", "_") in [str(name).replace("-", "_") for name in names], verb


def test_every_expression_of_the_dashboard_names_real_metrics() -> None:
    found = list(expressions())
    assert len(found) > 20
    for expression in found:
        check(expression)


def test_the_committed_dashboard_is_the_generated_one() -> None:
    committed = (ROOT / "ops" / "grafana" / "strandline.json").read_text(encoding="utf-8")
    assert committed == dashboard_page()
    assert len({panel["id"] for panel in json.loads(committed)["panels"]}) == len(json.loads(committed)["panels"])


def test_an_alert_on_an_unknown_metric_is_reported() -> None:
    with pytest.raises(KeyError, match="strandline_nothing"):
        check("strandline_nothing > 1")
    with pytest.raises(AssertionError):
        check('strandline_connected{table="x"} > 1')
