"""The port to tables with few rows: Spark and delta-rs answer alike, and see each other's commits."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from strandline.control.dead_letters import DeadLetter, DeadLetters, identifier
from strandline.control.signal_inbox import SignalInbox, send
from strandline.control.sources import State, deleted_at, set_state, state_of
from strandline.errors import ConfigurationError, RetriableError
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.delta_schema import delta_schema
from strandline.io.tables.format_check import other_formats
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_store import TableStore, VersionGone
from strandline.jobs.context import open_lake
from strandline.jobs.lake_context import open_without_spark
from strandline.model import table_schemas
from strandline.model.lake_format import FORMAT, FORMAT_PROPERTY, format_of, stamp
from strandline.model.query import Query
from strandline.model.signal import Signal
from strandline.model.table_schemas import CUTS, DEAD_LETTERS, SOURCES, bronze_table
from strandline.model.tables import TableName
from strandline.settings.configuration import Settings

AT = datetime(2026, 3, 29, 1, 30, 0, 123456, UTC)
NOTES = TableName("control", "notes")
NOTES_DDL = "id STRING COMMENT 'it\\'s a key', at TIMESTAMP, n BIGINT, flag BOOLEAN, parts ARRAY<STRUCT<a: STRING>>"
HOSTILE = ("it's", 'a "b"', "back\\slash", "${env:HOME}", "line\nbreak", "\u2028", "%s {0} {x}", "`", "null", "")


def note(key: str, n: int, **more: Any) -> dict[str, Any]:
    return {"id": key, "at": AT, "n": n, "flag": None, "parts": [{"a": key}], **more}


class SparkTables(Tables):
    """Tables whose queries Spark answers, as in a catalog."""

    def query(self, query: Query) -> list[dict[str, Any]]:
        return self.query_by_spark(query)


@pytest.fixture(params=["spark", "delta-rs"])
def store(request: pytest.FixtureRequest, tables: Tables) -> TableStore:
    return SparkTables(tables.spark, tables.lake) if request.param == "spark" else DeltaRsTables(tables.lake)


@pytest.fixture
def other(store: TableStore, tables: Tables) -> TableStore:
    """The other way to the same tables."""
    return DeltaRsTables(tables.lake) if isinstance(store, Tables) else tables


# A table with VARIANT columns is created by Spark alone.
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "ddl", [ddl for name, ddl in vars(table_schemas).items() if name.endswith("_DDL") and "VARIANT" not in ddl]
)
def test_a_schema_is_the_one_that_spark_reads_from_the_same_text(ddl: str) -> None:
    assert StructType.fromJson(json.loads(delta_schema(ddl).to_json())) == schema_of(ddl)


def test_rows_are_inserted_once_and_read_alike(store: TableStore, other: TableStore) -> None:
    rows = [note(key, n) for n, key in enumerate(HOSTILE)]
    assert store.insert_rows(NOTES, NOTES_DDL, rows, "id", comment="some notes") == len(rows)
    for each in (store, other):
        assert each.insert_rows(NOTES, NOTES_DDL, rows, "id") == 0
        assert each.columns(NOTES) == ["id", "at", "n", "flag", "parts"]
        assert format_of(each.properties(NOTES)) == FORMAT
        everything = each.query(Query(NOTES).select("id", "at", "n", "flag", "parts").order("n"))
        assert everything == rows
        for key in HOSTILE:
            assert each.query(Query(NOTES).select("id").where(("id", "=", key))) == [{"id": key}]
    assert other.insert_rows(NOTES, NOTES_DDL, [*rows, note("new", 99)], "id", "n") == 1
    assert store.query(Query(NOTES).aggregate(most=("max", "n"), rows=("count", "id"))) == [
        {"most": 99, "rows": len(rows) + 1}
    ]


def test_rows_are_put_in_the_place_of_rows_with_their_key(store: TableStore, other: TableStore) -> None:
    store.put_rows(NOTES, NOTES_DDL, [note("a", 1), note("b", 2)], "id")
    other.put_rows(NOTES, NOTES_DDL, [note("b", 3, at=None), note("it's", 4)], "id")
    for each in (store, other):
        rows = each.query(Query(NOTES).select("id", "at", "n", "flag", "parts").order("n"))
        assert rows == [note("a", 1), note("b", 3, at=None), note("it's", 4)]


def test_every_condition_and_order_means_the_same(store: TableStore, tables: Tables) -> None:
    rows = [note("a", 1), note("b", 2, flag=True), note("c", 3, at=AT + timedelta(seconds=1)), note("d", 4, at=None)]
    tables.insert_rows(NOTES, NOTES_DDL, rows, "id")

    def found(query: Query) -> list[str]:
        return [row["id"] for row in store.query(query.select("id"))]

    by_id = Query(NOTES).order("id")
    assert found(by_id.where(("n", ">", 1), ("n", "<=", 3))) == ["b", "c"]
    assert found(by_id.where(("at", ">", AT))) == ["c"]
    assert found(by_id.where(("at", "=", AT), ("id", "<>", "a"))) == ["b"]
    assert found(by_id.where(("flag", "is not null", None))) == ["b"]
    assert found(by_id.where_any(("flag", "=", True), ("at", "is null", None))) == ["b", "d"]
    assert found(by_id.where(("id", "in", {"a", "d", "x"}))) == ["a", "d"]
    with pytest.raises(ValueError, match="unsupported operator or value"):
        found(by_id.where(("id", "in", ())))
    assert found(Query(NOTES).order("-at", "-n").limit(3)) == ["c", "b", "a"], "nulls come last"
    assert found(Query(NOTES).order("at", "n")) == ["a", "b", "c", "d"], "nulls come last"
    counted = (
        Query(NOTES).group("at").aggregate(rows=("count", "id"), total=("sum", "n"), kinds=("count_distinct", "at"))
    )
    assert store.query(counted.order("at").limit(1)) == [{"at": AT, "rows": 2, "total": 3, "kinds": 1}]


def test_rows_are_updated_and_deleted(store: TableStore, other: TableStore) -> None:
    store.insert_rows(NOTES, NOTES_DDL, [note("it's", 1), note("b", 2)], "id")
    store.update_rows(NOTES, {"n": 7, "at": AT + timedelta(days=1)}, ("id", "=", "it's"), ("n", "=", 1))
    expected = [note("b", 2), note("it's", 7, at=AT + timedelta(days=1))]
    everything = Query(NOTES).select("id", "at", "n", "flag", "parts").order("id")
    assert other.query(everything) == store.query(everything) == expected
    version = store.version(NOTES)
    store.update_rows(NOTES, {"n": 8}, ("id", "=", "nobody"))
    assert store.delete_rows(NOTES, ("n", ">", 7)) == 0
    assert other.version(NOTES) == version, "nothing matched, so nothing was committed"
    assert store.delete_rows(NOTES, ("n", "=", 7), ("id", "=", "it's")) == 1
    assert other.query(everything) == [note("b", 2)]
    older = Query(NOTES, version=version).aggregate(rows=("count", "id"))
    assert store.query(older) == [{"rows": 2}]


def test_a_version_that_is_not_there_has_a_name(store: TableStore, tables: Tables) -> None:
    tables.insert_rows(NOTES, NOTES_DDL, [note("a", 1)], "id")
    with pytest.raises(VersionGone, match=r"version 99 of control\.notes"):
        store.query(Query(NOTES, version=99).select("id"))


# scenario: R07
def test_operators_with_and_without_spark_take_numbers_of_their_own(tables: Tables) -> None:
    stores: list[TableStore] = [tables, DeltaRsTables(tables.lake), DeltaRsTables(tables.lake)]
    states: list[State] = ["paused", "running", "stopped"]
    for _ in range(3):
        together = threading.Barrier(3)

        def order(store: TableStore, state: State, barrier: threading.Barrier = together) -> None:
            barrier.wait()
            set_state(store, "shop", state, by=state, why=None)

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(order, stores, states))
        assert len({state_of(store, "shop") for store in stores}) == 1
    numbers = [row["number"] for row in tables.query(Query(SOURCES).select("number").order("number"))]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 3


def test_many_processes_without_spark_insert_each_row_once(tables: Tables) -> None:
    lake = tables.lake
    with ThreadPoolExecutor(4) as pool:
        inserted = list(
            pool.map(
                lambda number: DeltaRsTables(lake).insert_rows(NOTES, NOTES_DDL, [note(str(number % 6), number)], "id"),
                range(24),
            )
        )
    assert sum(inserted) == 6
    assert tables.read(NOTES).count() == 6


def test_signals_from_spark_and_from_delta_rs_reach_the_capture(store: TableStore, other: TableStore) -> None:
    sent = [Signal(f"s{n}", "log", '{"message": "it\'s"}', AT + timedelta(seconds=n), "ops") for n in range(2)]
    send(store, "shop", sent)
    send(other, "shop", sent)
    inbox = SignalInbox(other, "shop", ("table",), None, seconds=0)
    assert inbox.new_signals() == sent
    assert deleted_at(other, "shop") is None
    set_state(store, "shop", "deleted", by="ops", why="it's over")
    assert SignalInbox(store, "shop", ("table",), None, seconds=0).new_signals() == []


def test_a_dead_letter_from_either_engine_is_one_row(store: TableStore, other: TableStore) -> None:
    letter = DeadLetter("shop", "read", "OversizeEvent", "it's", "0:82", "db", "c", None, "k", 2, AT, b"\x05\0\0\0\0")
    for each in (store, other):
        DeadLetters(each).add([letter, letter])
    record = DeadLetters(other).find("shop", identifier(vars(letter)))
    assert record is not None
    assert (record["status"], record["raw"], record["at"], record["class"]) == ("open", letter.raw, AT, "OversizeEvent")
    DeadLetters(store).resolve(record["id"], "replayed", AT)
    assert DeadLetters(other).select("shop", Query(DEAD_LETTERS).select("status", "replayed_at")) == [
        {"status": "replayed", "replayed_at": AT}
    ]
    assert DeadLetters(other).purge("other", before=None, everything=True) == 0
    assert DeadLetters(other).purge("shop", before=AT + timedelta(days=1), everything=False) == 1
    assert len(astuple(letter)) == 12


# scenario: E12
@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
def test_a_table_of_another_format_is_refused_and_nothing_is_written(tables: Tables, other: int) -> None:
    tables.create(NOTES, schema_of(NOTES_DDL), properties=stamp(NOTES))
    tables.set_properties(NOTES, {FORMAT_PROPERTY: str(other)})
    version = tables.version(NOTES)
    with pytest.raises(ConfigurationError, match="nothing was written"):
        DeltaRsTables(tables.lake).insert_rows(NOTES, NOTES_DDL, [note("a", 1)], "id")
    with pytest.raises(ConfigurationError, match="nothing was written"):
        tables.create(NOTES, schema_of(NOTES_DDL))
    assert tables.version(NOTES) == version


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
@pytest.mark.parametrize("table", [CUTS, bronze_table("mongo")], ids=str)
def test_a_lake_of_another_format_is_refused_with_and_without_spark(
    tables: Tables, table: TableName, other: int
) -> None:
    tables.create(table, schema_of(NOTES_DDL), properties={"strandline.source": "mongo"})
    tables.set_properties(table, {FORMAT_PROPERTY: str(other)})
    settings = Settings(lake={"root": tables.lake.root})  # type: ignore[arg-type]  # why: pydantic builds the section
    version = tables.version(table)
    for opens in (open_without_spark, partial(open_lake, tables.spark)):
        with pytest.raises(ConfigurationError, match=f"{table} .*format {other}.*nothing was written"):
            opens(settings)
    assert [str(refusal) for refusal in other_formats(tables)] != []
    assert tables.version(table) == version


def test_a_table_with_a_feature_that_delta_rs_lacks_is_left_to_spark(tables: Tables) -> None:
    without_spark, bronze = DeltaRsTables(tables.lake), TableName("bronze", "shop")
    assert without_spark.can_use(bronze, [NOTES]), "no table is there yet"
    tables.create(bronze, schema_of(NOTES_DDL), cluster_by=("id",))
    tables.create(NOTES, schema_of(NOTES_DDL))
    assert without_spark.can_use(bronze, [NOTES])
    assert not without_spark.can_use(NOTES, [bronze]), "a clustered table can be read, and not written"
    tables.set_properties(NOTES, {"delta.enableDeletionVectors": "true"})
    assert not without_spark.can_use(bronze, [NOTES])


def test_a_data_file_that_is_gone_is_one_line(tables: Tables) -> None:
    tables.insert_rows(NOTES, NOTES_DDL, [note("a", 1)], "id")
    for file in Path(tables.lake.path(NOTES)).glob("*.parquet"):
        file.unlink()
    without_spark = DeltaRsTables(tables.lake)
    for work in (
        lambda: without_spark.query(Query(NOTES).select("id")),
        lambda: without_spark.delete_rows(NOTES, ("n", "=", 1)),
        lambda: without_spark.insert_rows(NOTES, NOTES_DDL, [note("a", 1)], "id"),
    ):
        with pytest.raises(RetriableError, match=r"control\.notes cannot be read or written"):
            work()


def test_rows_of_control_need_no_job_of_spark_where_delta_rs_writes_them(tables: Tables) -> None:
    store = replace(tables, control=DeltaRsTables(tables.lake))
    store.create_table(NOTES, NOTES_DDL)
    store.add_missing_columns(NOTES, f"{NOTES_DDL}, more STRING")
    columns = [("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("flag", pa.bool_())]
    parts = ("parts", pa.list_(pa.struct([("a", pa.string())])))
    rows = [note("a", 1, more="w"), note("b", 2, more=None)]
    store.append_rows(NOTES, pa.Table.from_pylist(rows, pa.schema([*columns, parts, ("more", pa.string())])))
    row = note("b", 3, more="x")
    store.put_rows(NOTES, f"{NOTES_DDL}, more STRING", [row], "id")
    assert store.insert_rows(NOTES, NOTES_DDL, [row], "id") == 0
    store.update_rows(NOTES, {"n": 4}, ("id", "=", "b"))
    assert store.delete_rows(NOTES, ("id", "=", "a")) == 1
    store.set_properties(NOTES, {"strandline.note": "y"})
    assert store.query(Query(NOTES).select("id", "n", "more")) == [{"id": "b", "n": 4, "more": "x"}]
    assert not any("Spark" in (commit.engine or "") for commit in tables.history(NOTES, 99))
    assert tables.read(NOTES).count() == 1
