"""Rows of a batch that is typed in parts: the same as if all changes were reduced by key together."""

from __future__ import annotations

import random
from typing import Any

import bson
import pyarrow as pa
import pytest

from strandline.model.shape import Shape
from strandline.silver.batch_rows import BatchRows, HeldKeys, row_groups, state_of_held
from strandline.silver.small_batch import rows_by_collection, state_of, typed, without_deleted_values

_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("key", "position", "op", "collection_uuid", "inexact"), pa.string()),
        "cluster_time": pa.timestamp("us", tz="UTC"),
        "document_size": pa.int32(),
        "envelope": pa.binary(),
        "_commit_version": pa.int64(),
    }
)
_SHAPE = Shape("struct", fields={"_id": Shape("string"), "n": Shape("int")})


def _change(chance: random.Random, version: int) -> dict[str, Any]:
    key, op = chance.choice([None, *(f"k{number}" for number in range(80))]), chance.choice("rrrrrcud")
    document = None if op == "d" or chance.random() < 0.1 else {"_id": key or "", "n": chance.choice([1, "x", None])}
    envelope = (document or {}) if op == "r" else {"fullDocument": document}
    return {
        "key": key,
        "position": f"{chance.randrange(10**6):08x}",
        "op": op,
        "collection_uuid": chance.choice([None, "a" * 32]),
        "inexact": "lookup" if op == "u" and document else None,
        "cluster_time": version,
        "document_size": None if document is None else len(bson.encode(document)),
        "envelope": bson.encode(envelope),
        "_commit_version": version,
    }


def _parts(chance: random.Random) -> list[pa.Table]:
    return [
        pa.Table.from_pylist([_change(chance, version) for _ in range(chance.randint(1, 15))], _SCHEMA)
        for version in range(chance.randint(1, 6))
    ]


# promise 2
@pytest.mark.parametrize("seed", range(200))
def test_rows_of_held_and_of_other_keys_are_those_of_one_reduction(seed: int) -> None:
    chance = random.Random(seed)
    parts, hard = _parts(chance), chance.random() < 0.5
    state = state_of(pa.concat_tables(parts))
    expected = typed(without_deleted_values(state) if hard else state, _SHAPE)
    keys = pa.array([f"k{number}" for number in range(80) if chance.random() < 0.3])
    held = HeldKeys.among(pa.concat_tables(parts), [keys] if chance.random() < 0.5 else [])
    batch = BatchRows(held, _SHAPE, hard, "")
    some = pa.concat_tables(map(held.changes, parts))
    rows = [part for part in map(batch.single, parts) if part is not None]
    rows += batch.typed_parts(state_of_held(some)) if some.num_rows else []
    assert pa.concat_tables(rows).sort_by("_key") == expected.sort_by("_key").select(rows[0].schema.names)


def test_small_tables_are_joined_to_groups_of_megabytes() -> None:
    part = pa.table({"a": [b"x" * (5 << 20)]})
    assert [group.num_rows for group in row_groups([part] * 8)] == [7, 1]
    assert list(row_groups([part.slice(0, 0)])) == []


# promise 2
def test_a_row_below_the_purge_watermark_is_not_new() -> None:
    """Its tombstone may have been purged."""
    changes = [_change(random.Random(seed), 1) | {"key": f"k{seed}", "position": f"{seed:02}"} for seed in range(10)]
    batch = BatchRows(HeldKeys.among(pa.Table.from_pylist(changes, _SCHEMA)), _SHAPE, False, "04")
    rows = batch.single(pa.Table.from_pylist(changes, _SCHEMA))
    assert rows is not None
    assert rows["_position"].to_pylist() == ["04", "05", "06", "07", "08", "09"]


def test_rows_of_each_collection_are_in_the_order_of_bronze() -> None:
    names = [("d", "b"), ("d", "a.b"), (None, None), ("d", "b"), ("e", "b"), ("d", "a.b")]
    rows = [{"db": db, "collection": collection, "n": number} for number, (db, collection) in enumerate(names)]
    schema = pa.schema({"db": pa.string(), "collection": pa.string(), "n": pa.int64()})
    parts = rows_by_collection(
        pa.concat_tables(pa.Table.from_pylist(some, schema) for some in (rows[:4], [], rows[4:]))
    )
    assert {name: part["n"].to_pylist() for name, part in parts.items()} == {"d.a.b": [1, 5], "d.b": [0, 3], "e.b": [4]}
    assert rows_by_collection(schema.empty_table()) == {}
