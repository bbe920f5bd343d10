"""Pending patches in a silver table: storing and folding."""

from __future__ import annotations

import bson
import pytest
from bronze_changes import CHANGES_DDL
from lakehouse import bronze_writer

from strandline.bronze.gaps import commit_beginning, commit_way_back, standing_gaps
from strandline.io.tables.spark_tables import Tables
from strandline.model.gap import Gap
from strandline.model.shape import Shape
from strandline.model.tables import TableName
from strandline.silver.batch_profile import profile_batch
from strandline.silver.compatibility import compatibility_in
from strandline.silver.decode.rows import typed_rows
from strandline.silver.fold.patches import folded_per_key
from strandline.silver.silver_table import SilverTable

_KNOWN = (
    *(
        ("_position", "STRING"),
        ("_base_position", "STRING"),
        ("_op", "STRING"),
        ("_deleted", "BOOLEAN"),
        ("_exact", "BOOLEAN"),
    ),
    ("_document", "BINARY"),
)


# promise 3; scenario: C06, D06
def test_an_older_patch_that_comes_later_waits_beside_the_newer_one(tables: Tables) -> None:
    table = SilverTable(tables, TableName("silver", "t"))
    table.open("db.t", "test")
    for position in ("5", "3"):
        event = bson.encode(
            {"operationType": "update", "updateDescription": {"updatedFields": {position: 1}, "removedFields": []}}
        )
        new = tables.spark.createDataFrame([("1", position, "u", None, None, None, event, 0, None)], CHANGES_DDL)
        state = folded_per_key(new, tables.read(table.name))
        table.merge(
            typed_rows(state, Shape("struct"), compatibility_in(tables.properties(table.name))),
            keys=profile_batch(new, max_depth=8).keys,
            deletes="soft",
        )
    assert tables.read(table.name).select("_position", "_pending.position").collect() == [("5", ["3", "5"])]


# scenario: O06
@pytest.mark.long
def test_a_way_back_is_a_gap_until_it_is_captured_unless_something_cuts_it_off(tables: Tables) -> None:
    writer = bronze_writer(tables, "test", "a run")
    assert writer.open("a cluster", None) is None

    def capture(batch: int, position: str) -> int:
        tables.append(writer.table, tables.spark.createDataFrame([(batch, position)], "batch BIGINT, position STRING"))
        return tables.version(writer.table)

    def gaps(version: int | None = None) -> tuple[Gap, ...]:
        return standing_gaps(tables, writer.table, tables.version(writer.table) if version is None else version)

    capture(1, "0000000900000001:82E")
    commit_way_back(writer, None, to_token='{"_data": "82E"}', batch=2)
    assert gaps() == ()
    commit_way_back(writer, (1, 0), to_token='{"_data": "82A"}', batch=2)
    on_the_way = Gap("0000000100000000", "0000000900000001:82E", again_from=2)
    halfway = capture(3, "0000000300000001:82C")
    assert gaps() == (on_the_way,)
    capture(4, "0000000900000001:82E")
    assert gaps() == ()
    commit_beginning(writer, (16, 1))
    assert [gap.before for gap in gaps()] == ["0000001000000001:~"]
    assert on_the_way in gaps(halfway), "whoever looks at what bronze was then"

    commit_way_back(writer, None, to_token='{"_data": "81"}', batch=5)
    commit_beginning(writer, (17, 1))
    capture(6, "0000001200000001:82F")
    assert Gap("", "0000000300000001:82C") in gaps(), "what lies between will never come"
