"""Column names that Delta and Spark use themselves: each stops a command, or is refused, in this version of Spark."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.errors import ContractError
from strandline.gold.graph import parse
from strandline.gold.publish import publish
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.model.delta_names import CHANGE_FEED, DELETION_VECTORS, ROW_COMMANDS
from strandline.model.merge_rule import MergeRule
from strandline.model.tables import TableName

T = TableName("silver", "t")
FINE = ("_condition_", "_row_id", "_target_row_index_", "_input_file_name_", "maxRowIndexCol", "packedData", "path")
"""Names in Delta's sources that may be columns."""
VECTORS = {*DELETION_VECTORS, "__delta_internal_is_row_deleted", "_tmp_metadata_row_index"}
"""Names that stop a command in a table with deletion vectors. The last two, as written here, stop one in any table."""


def change_rows(tables: Tables, *names: str, vectors: bool) -> None:
    """Change rows of a table with columns of these names, by each command that silver runs."""
    ddl = "".join(f", `{name}` STRING" for name in names)
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": str(vectors).lower()}
    tables.create(T, schema_of(f"_key STRING, v INT{ddl}"), properties=properties)
    columns, on_key = ["_key", "v", *names], MergeRule(("_key",))

    def rows(v: int, *keys: int) -> DataFrame:
        own = [F.concat(F.lit("x"), F.col("id")).alias(name) for name in names]
        found = tables.spark.createDataFrame([(key,) for key in keys], "id INT")
        return found.select(F.col("id").cast("string").alias("_key"), F.lit(v).alias("v"), *own)

    newer = on_key.update(columns, when="s.v > t.v")
    tables.merge(T, rows(1, *range(8)), on_key.insert(columns))
    tables.merge(T, rows(2, 1, 2, 9), newer.insert(columns))
    tables.merge(T, F.broadcast(rows(3, 1)), newer)
    tables.update(T, {"v": "9"}, "v = 2")
    tables.delete(T, "_key = '4'")
    found = {row["_key"]: row for row in tables.read(T).collect()}
    assert set(found) == {"0", "1", "2", "3", "5", "6", "7", "9"}
    assert all(row[name] == f"x{key}" for key, row in found.items() for name in names)


def test_other_names_of_deltas_sources_are_columns_as_any(tables: Tables) -> None:
    change_rows(tables, *FINE, vectors=True)


@pytest.mark.parametrize("name", sorted({*ROW_COMMANDS, *DELETION_VECTORS} - {"__delta_internal_row_index"}))
@pytest.mark.long
def test_a_column_of_such_a_name_stops_a_command(tables: Tables, name: str) -> None:
    with pytest.raises((ContractError, PySparkException, Py4JJavaError, AssertionError)):
        change_rows(tables, name.upper(), vectors=name in VECTORS)


def test_an_incremental_table_of_gold_with_such_a_column_is_refused_before_it_is_built(tables: Tables) -> None:
    tables.create(T, schema_of("_key STRING, v INT"), properties={"delta.enableChangeDataFeed": "true"})
    for name in ("_File_Name_", CHANGE_FEED[0]):
        graph = parse({"m.sql": f"-- materialized: incremental\n-- keys: _key\nselect _key, v as {name} from silver.t"})
        (result,) = publish(tables, graph)
        assert (result.status, result.reason) == (
            "failed",
            f"m.sql: Delta's MERGE uses the column name {name} itself → {name} AS another name",
        )
    assert not tables.exists(TableName("gold", "m"))
