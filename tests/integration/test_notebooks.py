"""The notebook runs from its first cell to its last on a lake that the pipeline made, in a kernel of its own."""

from __future__ import annotations

import ast
import datetime as dt
import json
from pathlib import Path
from typing import Any

import bson
import jupytext
import pytest
import vl_convert
from nbclient import NotebookClient
from nbformat import NotebookNode

from pipelines.bronze.writer import BronzeWriter
from pipelines.io.tables import Tables
from pipelines.jobs.context import JobContext
from pipelines.jobs.gold import run_gold
from pipelines.jobs.silver import run_silver
from pipelines.settings import Settings

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
DEPARTURE = dt.datetime(2013, 1, 1, 10, 15, tzinfo=dt.UTC)


def flight(number: int, carrier: str, late: int) -> dict[str, Any]:
    return {
        "_id": f"2013-01-01-{carrier}-{number}-EWR-0515",
        "carrier": carrier,
        "flight": number,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "scheduled": {"departure": DEPARTURE, "arrival": DEPARTURE + dt.timedelta(hours=4)},
        "status": "arrived",
        "delay": {"departure": late, "arrival": late},
        "events": [{"type": "arrived", "at": DEPARTURE}],
    }


DOCUMENTS: dict[str, list[dict[str, Any]]] = {
    "airlines": [{"_id": "UA", "name": "United Air Lines Inc."}, {"_id": "B6", "name": "JetBlue Airways"}],
    "flights": [flight(1, "UA", 3), flight(2, "UA", 40), flight(3, "B6", -5)],
    "planes": [{"_id": "N14228", "year": 1999, "manufacturer": "BOEING", "seats": 149}],
    "weather": [
        {"_id": {"origin": "EWR", "time": DEPARTURE.replace(minute=0)}, "temp": 39.0, "precip": 0.0, "visib": 10.0, "wind_speed": 9.2}
    ],
}


def insertions() -> list[bytes]:
    """Change events as a server sends them, in stream order."""
    found = []
    for collection, documents in DOCUMENTS.items():
        for document in documents:
            number = len(found) + 1
            event = {
                "_id": {"_data": f"82{number:08X}"},
                "operationType": "insert",
                "clusterTime": bson.Timestamp(1_357_035_300 + number, 1),
                "wallTime": DEPARTURE,
                "fullDocument": document,
                "ns": {"db": "airline", "coll": collection},
                "documentKey": {"_id": document["_id"]},
            }
            found.append(bson.encode(event))
    return found


@pytest.fixture
def airline(tables: Tables) -> Tables:
    """Bronze, silver and gold of a very small airline."""
    captured = int(DEPARTURE.timestamp() * 1_000_000) + 250_000
    writer = BronzeWriter(tables, "airline", "run-1", clock_us=lambda: captured)
    writer.open("cluster-1", None)
    writer.commit(insertions(), batch=1, resume_token='{"_data": "82FF"}', snapshot_id=None)
    settings = Settings(source={"name": "airline"}, lake={"root": tables.lake.root})  # type: ignore[arg-type]  # why: pydantic builds the sections
    ctx = JobContext(settings, tables.spark, tables)
    assert len(run_silver(ctx)) == len(DOCUMENTS)
    assert {result.status for result in run_gold(ctx)} == {"built"}
    return tables


def executed(notebook: Path) -> NotebookNode:
    """As Jupyter runs it: cell by cell, from the notebook's folder; the first error of a cell is raised."""
    cells = jupytext.read(notebook)
    NotebookClient(cells, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(notebook.parent)}}).execute()
    return cells


def outputs(notebook: NotebookNode, kind: str) -> list[str]:
    return [output["data"][kind] for cell in notebook.cells for output in cell.get("outputs", []) if kind in output.get("data", {})]


def chart_in(notebook: NotebookNode) -> dict[str, Any]:
    """The one Vega-Lite specification that a cell shows."""
    start = '{"config":'
    (page,) = [html for html in outputs(notebook, "text/html") if start in html]
    specification: dict[str, Any] = json.JSONDecoder().raw_decode(page, page.index(start))[0]
    return specification


def test_it_shows_the_lake_and_draws_the_carriers(airline: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LAKE__ROOT", str(airline.lake.root))
    monkeypatch.setenv("STRANDLINE_SOURCE__NAME", "airline")
    monkeypatch.setenv("STRANDLINE_SPARK__CONF", json.dumps({"spark.driver.memory": "1g"}))  # a second JVM beside the tests' own
    notebook = executed(NOTEBOOKS / "explore_lake.py")

    shown = "\n".join(outputs(notebook, "text/plain"))
    assert '"_data": "82FF"' in shown, "the committed token"
    assert "silver.flights" in shown
    assert "0.25" in shown, "the lag in seconds"

    chart = chart_in(notebook)
    assert chart["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    (carriers,) = chart["datasets"].values()
    assert {row["airline"]: row["percent_on_time"] for row in carriers} == {"JetBlue Airways": 100.0, "United Air Lines Inc.": 50.0}
    assert drawn(chart) != drawn({**chart, "datasets": {name: [] for name in chart["datasets"]}}), "the data can be seen"


def drawn(chart: dict[str, Any]) -> bytes:
    picture: bytes = vl_convert.vegalite_to_png(json.dumps(chart))
    assert picture.startswith(b"\x89PNG")
    return picture


@pytest.mark.parametrize("file", sorted(NOTEBOOKS.glob("*.py")), ids=lambda file: file.stem)
def test_a_notebook_only_imports_and_shows(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert source.startswith("# Databricks notebook source\n")
    logic = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While, ast.If, ast.Try)
    assert [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, logic)] == []
    assert [
        word for word in (".write", ".save", "MERGE ", "INSERT ", "CREATE ", "DELETE FROM", "run_silver", "run_capture") if word in source
    ] == []


def test_there_is_a_notebook() -> None:
    assert (NOTEBOOKS / "explore_lake.py").is_file()
