"""Bronze with documents as Extended JSON, whether capture stored the JSON or not."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.bronze.envelope import SCHEMA
from strandline.bronze.json_columns import json_columns
from strandline.io.spark.arrow_functions import column_function
from strandline.io.tables.ddl import schema_of
from strandline.model.bson.extended_json import WRITERS, JsonMode
from strandline.model.table_schemas import BRONZE_DDL, CHANGE_OPS, JSON_COLUMNS

_DERIVED = "_derived"
_ARROW = pa.struct([SCHEMA.field(name) for name in JSON_COLUMNS])


def with_json(rows: DataFrame, mode: JsonMode = "extended") -> DataFrame:
    """Fill `JSON_COLUMNS` from the envelope. Pure and lazy: a query that does not read them pays nothing.

    Args:
        rows: Bronze.
        mode: Format of the JSON. In mode ``extended`` (canonical), values that capture stored are kept.

    Returns:
        The same rows and columns. Null: a document with text that is not UTF-8; ``envelope`` holds it.
    """

    def derive(op: pa.Array, envelope: pa.Array) -> pa.Array:
        columns = json_columns(zip(op.to_pylist(), envelope.to_pylist(), strict=True), WRITERS[mode])
        return pa.StructArray.from_arrays(
            [pa.array(columns[field.name], field.type) for field in _ARROW], fields=list(_ARROW)
        )

    written = column_function(derive, _derived_type())
    filled = rows.withColumn(_DERIVED, F.when(F.col("op").isin(*CHANGE_OPS), written("op", "envelope")))
    stored_columns = JSON_COLUMNS if mode == "extended" else ()
    return filled.withColumns(
        {name: F.coalesce(*([name] if name in stored_columns else []), f"{_DERIVED}.{name}") for name in JSON_COLUMNS}
    ).drop(_DERIVED)


def _derived_type() -> str:
    schema = schema_of(BRONZE_DDL)
    return f"struct<{', '.join(f'{name}: {schema[name].dataType.simpleString()}' for name in JSON_COLUMNS)}>"
