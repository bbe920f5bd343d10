"""Patches that wait in a silver table, and what the MERGE writes of them."""

from __future__ import annotations

import bson

from pipelines.io.tables import Tables
from pipelines.model.shape import Shape
from pipelines.model.tables import TableName
from pipelines.silver.keys import keys_of
from pipelines.silver.patches import folded_per_key
from pipelines.silver.rows import typed_rows
from pipelines.silver.writer import SilverTable

_CHANGES = (
    "key STRING, position STRING, op STRING, cluster_time TIMESTAMP, collection_uuid STRING, document_size INT, envelope BINARY, "
    "_commit_version BIGINT"
)


# promise 3; scenario: C06, D06
def test_an_older_patch_that_comes_later_waits_beside_the_newer_one(tables: Tables) -> None:
    table = SilverTable(tables, TableName("silver", "t"))
    table.open("db.t", "test")
    for position in ("5", "3"):
        event = bson.encode({"operationType": "update", "updateDescription": {"updatedFields": {position: 1}, "removedFields": []}})
        new = tables.spark.createDataFrame([("1", position, "u", None, None, None, event, 0)], _CHANGES)
        state = folded_per_key(new, tables.read(table.name), exact_updates=True)
        table.merge(typed_rows(state, Shape("struct")), keys=keys_of(new), deletes="soft")
    assert tables.read(table.name).select("_position", "_pending.position").collect() == [("5", ["3", "5"])]
