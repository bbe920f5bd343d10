"""Readers of Delta: what each reads of a lake, and how it refuses the rest (tests/readers.yml).

Readers with a Spark of their own run in processes of their own (tests/support/spark_reader.py), in `make places`.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bson
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyspark
import pytest
import yaml
from deltalake import DeltaTable
from lakehouse import land, pipeline, with_silver
from pymongo import MongoClient
from pyspark.sql import SparkSession

from strandline import read
from strandline.errors import ConfigurationError
from strandline.io.delta_log.delta_rs_query import arrow_table, without_views
from strandline.io.spark.delta_jars import ivy_home
from strandline.io.spark.spark_versions import minor_of
from strandline.jobs.gold.run_gold import run_gold

MATRIX: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "readers.yml").read_text("utf-8"))
LONG_AGO, FAR_AWAY = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999000)
SALES = """-- description: Sales by day.
-- materialized: table
SELECT date(ordered) AS day, count(*) AS orders FROM silver.orders WHERE NOT _deleted GROUP BY 1
"""
BUSY = """-- description: Days; newest first
SELECT s.day, s.orders, count_if(o.v <=> 2) AS changed, count(o.v) AS many
FROM gold.sales s JOIN silver.orders o ON date(o.ordered) = s.day WHERE NOT o._deleted
GROUP BY s.day, s.orders ORDER BY s.day
"""


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, mongo_uri: str, mongo: MongoClient[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A lake with a portable table, a table with column mapping, a native table, history, gold and control tables."""
    root, name = tmp_path_factory.mktemp("lake"), f"t_{bson.ObjectId()}"
    (root / "gold_sql").mkdir()
    (root / "gold_sql" / "sales.sql").write_text(SALES, encoding="utf-8")
    (root / "gold_sql" / "busy.sql").write_text(BUSY, encoding="utf-8")
    (root / "gold" / "_views").mkdir(parents=True)
    (root / "gold" / "_views" / "removed.spark.sql").touch()
    ctx = with_silver(
        pipeline(spark, mongo_uri, name, root),
        history="scd2",
        history_collections=(f"{name}.orders",),
        compatibility="portable",
        compatibility_by_collection={f"{name}.native": "native"},
    )
    gold = ctx.settings.gold.model_copy(update={"sql_dir": root / "gold_sql"})
    ctx = replace(ctx, settings=ctx.settings.model_copy(update={"gold": gold}))
    database = mongo[name]
    for collection, extra in (("orders", {}), ("mapped", {"unit price": 1}), ("native", {})):
        database[collection].insert_many(
            [
                {"_id": 1, "v": 1, "mixed": 1, "ordered": LONG_AGO, **extra},
                {"_id": 2, "v": 1, "mixed": "x", "ordered": FAR_AWAY, **extra},
                {"_id": 3, "v": 1, "mixed": {"a": [bson.ObjectId()]}, "ordered": dt.datetime(2026, 11, 25), **extra},
            ]
        )
    land(ctx)
    for collection in ("orders", "mapped", "native"):
        database[collection].update_one({"_id": 1}, {"$set": {"v": 2}})
        database[collection].delete_one({"_id": 2})
    land(ctx)
    run_gold(ctx)
    yield root
    mongo.drop_database(name)


def _silver(rows: pa.Table) -> object:
    """Return key, value and tombstone of every row. The dates must be as they are in MongoDB."""
    instants = rows["ordered"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    assert dict(zip(rows["_key"].to_pylist(), instants, strict=True)) == {
        "1": -62_135_596_800_000_000,
        "2": 253_402_300_799_999_000,
        "3": 1_795_564_800_000_000,
    }
    return sorted(zip(*(rows[name].to_pylist() for name in ("_key", "v", "_deleted")), strict=True))


LATEST = [("1", 2, False), ("2", 1, True), ("3", 1, False)]
Check = tuple[str, Callable[[pa.Table], object], object]
TABLES: dict[str, Check] = {
    "bronze": ("bronze/test", lambda rows: rows.filter(pc.field("op") == "d").num_rows, 3),
    "silver, portable": ("silver/orders", _silver, LATEST),
    "silver, portable with column mapping": ("silver/mapped", _silver, LATEST),
    "silver, native": ("silver/native", _silver, LATEST),
    "history": ("silver/orders_history", lambda rows: rows.num_rows, 5),
    "gold table": ("gold/sales", lambda rows: sorted(rows["orders"].to_pylist()), [1, 1]),
    "control": ("control/cuts", lambda rows: rows.num_rows > 0, True),
}


def _by_module(path: str) -> pa.Table:
    root, layer, name = path.rsplit("/", 2)
    return read(f"{layer}.{name}", root=root, everything=True)


def _change_feed(path: str) -> pa.Table:
    return _last_images(path, without_views(arrow_table(DeltaTable(path).load_cdf(starting_version=0))))


def _last_images(path: str, changes: pa.Table) -> pa.Table:
    """Return the table as its change feed tells it: all rows that it was given, without those that it lost."""
    is_new = pc.field("_change_type").isin(["insert", "update_postimage"])
    rows = changes.filter(is_new).sort_by([("_commit_version", "ascending")])
    keys = [name for name in ("_key", "_position") if name in rows.schema.names]
    if not keys:
        return rows
    key = keys if path.endswith("_history") else keys[:1]
    last = {tuple(row[name] for name in key): number for number, row in enumerate(rows.select(key).to_pylist())}
    return rows.take(sorted(last.values()))


def _older(path: str) -> pa.Table:
    return DeltaTable(path, version=_older_version(path)).to_pyarrow_table()


def _older_version(path: str) -> int:
    """Return the version before the newest; the first build of a gold table makes version 0 alone."""
    return max(DeltaTable(path).version() - 1, 0)


READERS: dict[str, Callable[[str], pa.Table]] = {
    "`strandline.read`": _by_module,
    "deltalake": lambda path: DeltaTable(path).to_pyarrow_table(),
    "deltalake, change feed": _change_feed,
    "deltalake, an older version": _older,
    "polars": lambda path: pl.scan_delta(path).collect().to_arrow(),
    "DuckDB": lambda path: duckdb.from_arrow(DeltaTable(path).to_pyarrow_dataset()).to_arrow_table(),
    "pyarrow": lambda path: ds.dataset(DeltaTable(path).file_uris(), format="parquet").to_table(),
}
CELLS = [(one["name"], table, said) for one in MATRIX["readers"] for table, said in one["cells"].items()]
_SESSION = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
SESSIONS: dict[str, dict[str, str]] = {
    "with extension": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "without extension": {},
    "without extension, check off": {"spark.databricks.delta.requiredSparkConfsCheck.enabled": "false"},
}
CALLS: dict[str, Callable[[str], dict[str, str]]] = {
    "table": lambda _: {},
    "change feed": lambda _: {"readChangeFeed": "true", "startingVersion": "0"},
    "an older version": lambda path: {"versionAsOf": str(_older_version(path))},
}


def test_the_matrix_names_every_reader_and_table_and_the_installed_versions() -> None:
    assert {(reader, table) for reader, table, _ in CELLS} == {
        (reader, table) for reader in READERS for table in TABLES
    }
    assert MATRIX["versions"] == {name: version(name) for name in MATRIX["versions"]}


# scenario: S07
def test_each_reader_reads_what_the_matrix_says_and_otherwise_refuses(
    lake: Path, spark: SparkSession, subtests: pytest.Subtests
) -> None:
    for reader, table, said in CELLS:  # one test, because each process would make a lake of its own
        with subtests.test(reader=reader, table=table):
            _check(reader, table, said, lake, spark)


def _check(reader: str, table: str, said: str, lake: Path, spark: SparkSession) -> None:
    path, found, wanted = TABLES[table]
    at = str(lake / path)
    if said == "wrong rows":
        assert "v" not in READERS[reader](at).schema.names, "columns of fields have internal names"
    elif said != "reads":
        with pytest.raises(Exception, match=re.escape(said)):  # each library has classes of its own
            found(READERS[reader](at))
    elif reader == "deltalake, an older version":
        assert READERS[reader](at).num_rows == _older_count(spark, at)
    else:
        assert found(READERS[reader](at)) == wanted


def _older_count(spark: SparkSession, path: str) -> int:
    return spark.read.format("delta").options(**CALLS["an older version"](path)).load(path).count()


@pytest.mark.places
def test_each_spark_reads_what_the_matrix_says_and_otherwise_refuses(
    lake: Path, spark: SparkSession, subtests: pytest.Subtests
) -> None:
    for of in MATRIX["spark"]["sessions"]:
        cells = [(call, table, said) for call, tables in of["cells"].items() for table, said in tables.items()]
        paths = [str(lake / TABLES[table][0]) for _, table, _ in cells]
        reads = [{"path": path, "options": CALLS[call](path)} for path, (call, *_) in zip(paths, cells, strict=True)]
        answers = _ask(of["versions"], SESSIONS[of["session"]], reads)
        for (call, table, said), path, answer in zip(cells, paths, answers, strict=True):
            with subtests.test(reader=of["name"], call=call, table=table):
                _check_answer(table, call, said, path, answer, spark)


def _ask(versions: Mapping[str, str], conf: Mapping[str, str], reads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a Spark of *versions* says to each read: ``rows`` or ``error``."""
    minor = minor_of(versions["pyspark"])
    python, ivy = Path(sys.executable), ivy_home()
    if minor != minor_of(pyspark.__version__):
        folder = Path(sys.prefix) / "share" / "strandline" / f"reader-spark-{minor}"
        python, ivy = folder / "bin" / "python", folder / "ivy"
    assert python.exists(), f"PySpark {minor} is not there: make places fetches it"
    program = Path(__file__).parents[1] / "support" / "spark_reader.py"
    asked = json.dumps({"conf": {**_SESSION, "spark.jars.ivy": str(ivy), **conf}, "reads": reads})
    done = subprocess.run([python, program], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["versions"] == versions
    found: list[dict[str, Any]] = said["reads"]
    return found


def _check_answer(table: str, call: str, said: str, path: str, answer: dict[str, Any], spark: SparkSession) -> None:
    if said not in ("reads", "wrong rows"):
        assert said in answer.get("error", "it was read")
        return
    assert "error" not in answer, answer["error"]
    rows = _scalars(answer["rows"])
    _, found, wanted = TABLES[table]
    if call == "an older version":
        assert rows.num_rows == _older_count(spark, path)
    else:
        is_right = found(rows if call == "table" else _last_images(path, rows)) == wanted
        assert is_right == (said == "reads"), rows


def _scalars(rows: list[dict[str, Any]]) -> pa.Table:
    """Return the columns of *rows* that hold no arrays and no documents."""
    names = [name for name in rows[0] if not any(isinstance(row[name], list | dict) for row in rows)]
    return pa.Table.from_pylist([{name: row[name] for name in names} for row in rows])


@pytest.mark.long
def test_one_function_gives_the_live_documents_to_every_library(lake: Path, spark: SparkSession) -> None:
    columns = ["_key", "_rescued", "_id", "v", "mixed", "ordered"]
    arrow = read("orders", root=lake)
    assert arrow.schema.names == columns
    assert sorted(arrow["_key"].to_pylist()) == ["1", "3"]
    lazy = read("silver.orders", root=lake, using="polars")
    assert lazy.collect_schema().names() == columns
    assert sorted(lazy.collect()["_key"].to_list()) == ["1", "3"]
    relation = read("orders", root=lake, using="duckdb")
    assert relation.columns == columns
    assert relation.aggregate("sum(v)").fetchall() == [(3,)]
    assert read("gold.sales", root=lake).num_rows == 2
    busy = [(dt.date(1, 1, 1), 1, 1, 1), (dt.date(2026, 11, 25), 1, 0, 1)]
    assert read("gold.busy", root=lake, using="duckdb").fetchall() == busy, "a view, by its SQL file"
    assert read("gold.busy", root=lake).to_pylist()[0]["changed"] == 1
    assert read("gold.busy", root=lake, using="polars").collect().height == 2
    spark.sql((lake / "gold" / "_views" / "busy.spark.sql").read_text("utf-8"))
    assert spark.table("busy").collect() == busy
    spark.catalog.dropTempView("busy")
    assert sorted(file.name for file in (lake / "gold" / "_views").iterdir()) == ["busy.duckdb.sql", "busy.spark.sql"]
    assert "unit price" in read("mapped", root=lake).schema.names
    for wrong, match in (
        ({"table": "nothing"}, r"there is no table silver\.nothing in .* → strandline status"),
        ({"table": "other.orders"}, r"there is no table silver\.other\.orders in "),
        ({"table": "orders", "using": "spark"}, "is none of arrow, polars, duckdb"),
    ):
        with pytest.raises(ConfigurationError, match=match):
            read(**wrong, root=lake)  # type: ignore[arg-type]  # why: one argument is wrong on purpose
