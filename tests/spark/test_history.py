"""The history table: changes made by new facts, and versions that are not read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.io.tables.ddl import schema_of
from strandline.model.lives import ONE_LIFE, Lives
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape
from strandline.model.table_schemas import HISTORY_ACTION, HISTORY_BOOKKEEPING, SILVER_HISTORY_DDL
from strandline.silver.history.changes import ends_at, facts_in, history_changes, swept_versions
from strandline.silver.incarnations import end_position
from strandline.silver.sweep import Sweep

_BRONZE = (
    "key STRING, position STRING, op STRING, collection_uuid STRING, captured_at TIMESTAMP, "
    "envelope BINARY, inexact STRING"
)
_SHAPE = Shape("struct", fields={"_id": Shape("int"), "v": Shape("int")})
_CAPTURED = datetime(2026, 1, 1, tzinfo=UTC)
_CHANGE = (
    "_key STRING, _strandline_action STRING, _position STRING, _valid_to_position STRING, _valid_from TIMESTAMP, "
    "_valid_to TIMESTAMP, "
    "_deleted BOOLEAN, _exact BOOLEAN, v INT"
)


def position(second: int) -> str:
    return f"{second:08x}00000001:82"


def time(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def change(key: int, second: int, op: str, v: int | None = None) -> tuple[Any, ...]:
    event = {
        "operationType": {"c": "insert", "u": "update", "d": "delete"}[op],
        "fullDocument": None if v is None else {"_id": key, "v": v},
    }
    return (str(key), position(second), op, None, _CAPTURED, bson.encode(event), "lookup" if op == "u" else None)


def version(key: int, second: int, until: int | None, v: int | None) -> tuple[Any, ...]:
    """Return a stored version of an insert or a deletion."""
    ended = (None, None) if until is None else (position(until), time(until))
    document = None if v is None else bson.encode({"_id": key, "v": v})
    known = (None, _CAPTURED, None) if v is None else (True, _CAPTURED, document)
    op, exact, captured, raw = ("d" if v is None else "c"), known[0], known[1], known[2]
    return (
        str(key),
        position(second),
        ended[0],
        time(second),
        ended[1],
        op,
        v is None,
        captured,
        None,
        exact,
        None,
        None,
        None,
        raw,
    )


def test_new_facts_change_their_own_versions_and_those_before_them(spark: SparkSession) -> None:
    table = spark.createDataFrame(
        [
            version(1, 10, None, 1),
            version(2, 10, 20, 1),
            version(2, 20, None, 2),
            version(3, 10, None, 3),
            version(4, 10, None, 4),
        ],
        schema_of(SILVER_HISTORY_DDL),
    )
    assert table.columns == list(HISTORY_BOOKKEEPING)
    bronze = [
        change(1, 30, "u", 5),
        change(2, 15, "u", 9),
        change(3, 30, "d"),
        change(3, 40, "c", 6),
        change(4, 10, "c", 4),
        (None,) * 7,
    ]
    facts = facts_in(spark.createDataFrame(bronze, _BRONZE))
    changes = history_changes(facts, table, _SHAPE, "native", lives=ONE_LIFE, hard_deletes=False)
    expected = [
        ("1", "window", position(10), position(30), time(10), time(30), False, True, None),
        ("1", "write", position(30), None, time(30), None, False, False, 5),
        ("2", "window", position(10), position(15), time(10), time(15), False, True, None),
        ("2", "write", position(15), position(20), time(15), time(20), False, False, 9),
        ("3", "window", position(10), position(30), time(10), time(30), False, True, None),
        ("3", "write", position(30), position(40), time(30), time(40), True, None, None),
        ("3", "write", position(40), None, time(40), None, False, True, 6),
    ]
    shown = changes.select(*(name.split()[0] for name in _CHANGE.split(", ")))
    assert_df_equality(shown, spark.createDataFrame(expected, _CHANGE), ignore_row_order=True, ignore_nullable=True)


def test_a_sweep_ends_what_was_in_force_when_the_snapshot_began_to_read(spark: SparkSession) -> None:
    """The snapshot began to read at 20 and had read everything at 30."""
    in_force, told = [version(1, 10, None, 1)], [version(2, 10, 25, 1), version(2, 25, None, None)]
    inserted_again = [version(3, 10, 22, 1), version(3, 22, None, 2), version(4, 10, 40, 1), version(4, 40, None, 2)]
    deleted_later = [version(5, 10, 40, 1), version(5, 40, None, None)]
    over = [version(6, 10, 15, 1), version(6, 15, None, None), version(7, 25, None, 1)]
    rows = [*in_force, *told, *inserted_again, *deleted_later, *over, version(8, 10, None, 1)]
    read_keys = spark.createDataFrame([("8",)], "key STRING")
    sweep = Sweep("s", Namespace("d", "c"), position(20), position(30))
    gone = swept_versions(spark.createDataFrame(rows, schema_of(SILVER_HISTORY_DDL)), read_keys, sweep)
    assert sorted(map(tuple, gone.select("_key", "_position").collect())) == [(key, position(10)) for key in "1345"]


def test_the_end_of_a_collection_ends_its_documents(spark: SparkSession) -> None:
    table = spark.createDataFrame(
        [version(1, 10, 20, 1), version(1, 20, None, None), version(2, 10, None, 1)], schema_of(SILVER_HISTORY_DDL)
    )
    at = (position(15), position(40))
    lives = Lives(at, frozenset(at))
    over = table.withColumn("end", F.expr(end_position(lives)))
    assert {(row["_key"], row["_position"]): row["end"] for row in over.collect()} == {
        ("1", position(10)): position(15),
        ("1", position(20)): position(40),
        ("2", position(10)): position(15),
    }
    facts = ends_at(over.where("_key = '2'"), over["end"])
    changes = history_changes(facts, table, _SHAPE, "native", lives=lives, hard_deletes=True)
    assert sorted((row[HISTORY_ACTION], row["_position"]) for row in changes.collect()) == [
        ("remove", position(10)),
        ("write", position(15)),
    ]
