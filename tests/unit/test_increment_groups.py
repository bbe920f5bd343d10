"""Groups of bronze rows in this process: however the rows are cut into parts, the increment is the same."""

from __future__ import annotations

import random
from typing import Any

import bson
import pyarrow as pa
import pytest

from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.namespaces import Namespace
from strandline.model.tables import Lake, TableName
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.increment_groups import groups_in
from strandline.silver.small_batch import BATCH

_SCHEMA = BATCH.append(pa.field("_commit_version", pa.int64()))


def _row(chance: random.Random, number: int) -> dict[str, Any]:
    op, step = chance.choice(["c", "u", "d", "r", "heartbeat", "ddl"]), chance.randrange(50)
    row: dict[str, Any] = {"op": op, "position": f"{step:016x}:82", "_commit_version": number}
    if op == "ddl":
        names = {"ns": {"db": "d", "coll": "a"}, "to": {"db": "d", "coll": "b"}}
        event = {"operationType": "rename", **names, "collectionUUID": bson.Binary(b"a" * 16, 4)}
        row |= {"operation_type": "rename", "envelope": bson.encode(event)}
    elif op != "heartbeat":
        row |= {"db": "d", "collection": chance.choice("ab"), "collection_uuid": chance.choice([None, "u", "v"])}
    if op != "r":
        row |= {"batch": number, "source": {"txn_number": (None, 7)[step % 2]}}
    if op == "heartbeat":
        row |= {"resume_token": f'{{"_data": "82{number:04}"}}', "epoch": 1, "ends_outside_transaction": True}
    return row


# promise 2
@pytest.mark.parametrize("seed", range(100))
def test_parts_of_rows_give_the_increment_of_all_rows(seed: int) -> None:
    chance = random.Random(seed)
    rows = [_row(chance, number) for number in range(chance.randint(0, 40))]
    whole = pa.Table.from_pylist(rows, _SCHEMA)
    cut = chance.randint(0, len(rows))
    parts = [whole.slice(0, cut), whole.slice(cut)]
    chance.shuffle(parts)
    bronze, tables = TableName("bronze", "b"), DeltaRsTables(Lake("nowhere"))
    here, other = (
        BronzeIncrement.of_groups([group for part in some for group in groups_in(part)], tables, bronze, 3)
        for some in ([whole], parts)
    )
    assert (here.changed, here.reach, set(here.events)) == (other.changed, other.reach, set(other.events))
    expected: dict[Namespace, dict[str, str]] = {}
    for row in rows:
        if row["op"] in "cudr":
            first = expected.setdefault(Namespace(row["db"], row["collection"]), {})
            uuid = row["collection_uuid"] or ""
            first[uuid] = min(first.get(uuid, row["position"]), row["position"])
    assert here.changed == expected
    assert len(here.events) == len({row["position"] for row in rows if row["op"] == "ddl"}), "once each"
    streamed = [row["position"] for row in rows if row["op"] != "r"]
    assert here.reach.position == max(streamed, default=None)
    assert here.reach.read_position == max((row["position"] for row in rows if row["op"] == "r"), default=None)
