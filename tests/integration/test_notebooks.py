"""The notebooks run from the first cell to the last on the demo's lake, in a kernel of their own, and draw charts."""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from lakehouse import Demo, bronze_writer
from nbformat import NotebookNode
from processes import QUICK_JVM
from pyspark.sql import SparkSession

from scripts.pictures import CHARTS, NOTEBOOKS, drawn_charts, executed, lake_environment, outputs, packed
from strandline.bronze.gaps import commit_gap
from strandline.control.dead_letters import DeadLetter, DeadLetters
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.demo import COLLECTIONS, DATABASE
from strandline.model.tables import Lake
from strandline.settings.project_folder import project_above

_CHARTS_AS_JSON = (
    "import json; "
    "print(json.dumps([shown.to_dict() for shown in Out.values() if isinstance(shown, alt.TopLevelMixin)]))"
)


def add_trouble(tables: Tables) -> None:
    """What a demo has none of: a gap, and a document that could not be taken."""
    writer = bronze_writer(tables, DATABASE, "run-2", lambda: 1_800_000_000_000_000)
    last = writer.open(tables.properties(writer.table)["strandline.deployment"], None)
    assert last is not None
    assert last.resume_token is not None
    commit_gap(
        writer,
        last,
        "altered",
        to_token=last.resume_token,
        present=(1_800_000_000, 1),
        snapshot_id=None,
        why="lost on purpose",
    )
    at = datetime(2027, 1, 15, tzinfo=UTC)
    DeadLetters(tables).add(
        [DeadLetter(DATABASE, "read", "Oversize", "too large", "p", DATABASE, "flights", None, "k", 1, at, b"")]
    )


def text_of(notebook: NotebookNode) -> str:
    return "\n".join(outputs(notebook, "text/plain") + outputs(notebook, "text/html"))


def specifications(notebook: NotebookNode) -> list[dict[str, Any]]:
    """Its charts in Vega-Lite, as the cell after its last one prints them."""
    (printed,) = notebook.cells[-1].outputs
    found: list[dict[str, Any]] = json.loads(printed.text)
    return found


def drawn(chart: dict[str, Any]) -> bytes:
    picture: bytes = vl_convert.vegalite_to_png(json.dumps(chart), scale=2)
    return picture


def flattened(chart: dict[str, Any]) -> dict[str, Any]:
    """The same chart of nothing but zeros."""
    rows = {
        name: [{key: 0 if isinstance(value, int | float) else value for key, value in row.items()} for row in rows]
        for name, rows in chart["datasets"].items()
    }
    return {**chart, "datasets": rows}


@pytest.mark.long
def test_the_notebooks_show_the_demos_lake_and_draw_their_charts(demo: Demo, spark: SparkSession) -> None:
    add_trouble(Tables(spark, Lake(root=str(demo.lake))))
    small = QUICK_JVM | {
        "STRANDLINE_SPARK__CONF": json.dumps({"spark.driver.memory": "1g"})
    }  # a second JVM beside the tests' own
    shown = executed(NOTEBOOKS, lake_environment(demo.lake) | small, last_cell=_CHARTS_AS_JSON)

    for name, expected in {
        "explore_bronze": ["update or replace", "resume_token", "median_seconds", "lost on purpose", *COLLECTIONS],
        "explore_silver": [
            "silver.flights",
            "tombstones",
            "struct<departure:timestamp,arrival:timestamp>",
            "arrival_delay",
            "departed",
            "_valid_to",
        ],
        "explore_gold": ["JetBlue Airways", "median_departure_delay", "BOEING"],
        "operate": [
            "completed",
            "holds",
            "expect_column_values_to_be_between",
            "Oversize",
            "index.html",
            "total-record-failures",
        ],
    }.items():
        assert [text for text in expected if text not in text_of(shown[name])] == [], name

    for name, notebook in shown.items():
        charts, pictures = specifications(notebook), drawn_charts(notebook)
        assert len(charts) == len(pictures) >= max(1, len(CHARTS.get(name, ()))), name
        for chart, picture in zip(charts, pictures, strict=True):
            assert picture == drawn(chart)
            assert picture != drawn(flattened(chart)), "its data can be seen"
            assert len(packed(picture)) < 100_000


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_only_imports_and_shows(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert source.startswith("# Databricks notebook source\n# MAGIC %md\n# MAGIC # ")
    logic = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While, ast.If, ast.Try)
    assert [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, logic)] == []
    assert [
        word
        for word in (".write", ".save", "MERGE ", "INSERT ", "CREATE ", "DELETE FROM", "run_silver", "run_capture")
        if word in source
    ] == []


def test_the_notebooks_folder_holds_the_four_notebooks() -> None:
    assert [file.stem for file in NOTEBOOKS] == ["explore_bronze", "explore_gold", "explore_silver", "operate"]


def test_a_notebook_finds_the_configuration_above_it(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "base.yml").touch()
    deep = tmp_path / "notebooks" / "mine"
    deep.mkdir(parents=True)
    assert project_above(deep) == project_above(tmp_path) == tmp_path
    assert project_above(tmp_path.parent) == tmp_path.parent
