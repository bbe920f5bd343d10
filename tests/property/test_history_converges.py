"""Random histories: for any order and batches, the history table equals the one computed by a plain loop.

Many histories share one table, with one key each. A failure replays with the seed that it prints.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from seeds import SEEDS

from strandline.io.tables.spark_tables import Tables
from strandline.model.lives import ONE_LIFE
from strandline.model.shape import Compatibility, Shape
from strandline.model.tables import Lake, TableName
from strandline.silver.history.changes import facts_in, history_changes
from strandline.silver.history.table import HistoryTable

_BRONZE = (
    "key STRING, position STRING, op STRING, collection_uuid STRING, captured_at TIMESTAMP, "
    "envelope BINARY, inexact STRING"
)
_SHAPE = Shape("struct", fields={"_id": Shape("int"), "v": Shape("int")})
_CAPTURED = datetime(2026, 1, 1, tzinfo=UTC)
Version = tuple[str, str, str | None, bool, int | None]


def random_history(chance: random.Random, key: int) -> tuple[list[tuple[Any, ...]], list[Version]]:
    """Bronze rows of one document, with READs at any moment, and its versions: one for each event."""
    rows, told, now = [], [], None
    for second in range(1, chance.randint(2, 9)):
        position = f"{second:08x}00000001:82{chance.randrange(16**4):04X}"
        before, op = now, "c" if now is None else chance.choice("uupd")
        now = None if op == "d" else chance.choice([second, 7])
        rows.append(
            (str(key), position, "u" if op == "p" else op, None, _CAPTURED, bson.encode(event(op, key, now)), None)
        )
        told.append((position, op == "d", now))
        if now is not None and chance.random() < 0.4:
            rows.append(
                (str(key), f"{second:08x}00000002:~", "r", None, _CAPTURED, bson.encode({"_id": key, "v": now}), None)
            )
        assert before is None or op != "c"
    ends = [*(position for position, _, _ in told[1:]), None]
    return rows, [(str(key), position, end, deleted, v) for (position, deleted, v), end in zip(told, ends, strict=True)]


def event(op: str, key: int, v: int | None) -> dict[str, Any]:
    """Return a bronze row; ``p`` is an update without its document."""
    if op == "p":
        return {"operationType": "update", "updateDescription": {"updatedFields": {"v": v}, "removedFields": []}}
    words = {"c": "insert", "u": "update", "d": "delete"}
    return {"operationType": words[op], "fullDocument": None if v is None else {"_id": key, "v": v}}


def content(table: DataFrame) -> list[Version]:
    found = table.select(
        "_key", "_position", "_valid_to_position", "_deleted", "v", F.col("_document").alias("raw")
    ).collect()
    for row in found:
        assert (None if row["raw"] is None else bson.decode(bytes(row["raw"]))["v"]) == row["v"]
    return sorted(tuple(row)[:5] for row in found)


# promise 2; scenario: C12, C13, D06
@settings(
    deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None, max_examples=1
)
@given(seed=SEEDS)
def test_any_order_any_batching_and_any_repetition_give_the_same_history(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)
    histories = [random_history(chance, key) for key in range(150)]
    rows = [row for history, _ in histories for row in history]
    messy = rows + chance.sample(rows, len(rows) // 3)
    chance.shuffle(messy)
    cut = chance.randrange(1, len(messy))
    table = HistoryTable(
        Tables(spark, Lake(root=str(tmp_path_factory.mktemp("history")))), TableName("silver", "t_history")
    )
    kind: Compatibility = chance.choice(["portable", "native"])
    shape = table.align_columns(table.open("db.t", "test", kind).shape, _SHAPE)
    for batch in (messy[:cut], messy[cut:]):
        facts = facts_in(spark.createDataFrame(batch, _BRONZE))
        current = table.tables.read(table.name)
        changes = history_changes(facts, current, shape, kind, lives=ONE_LIFE, hard_deletes=False)
        assert table.merge(changes, since=min(row[1] for row in batch)).rows > 0
    assert content(table.tables.read(table.name)) == sorted(
        version for _, versions in histories for version in versions
    )
