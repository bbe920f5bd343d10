"""Schemas as SQL."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from strandline.io.tables.ddl import columns_ddl
from strandline.model import quarantine, table_schemas

_DDL = [
    value for module in (table_schemas, quarantine) for name, value in vars(module).items() if name.endswith("_DDL")
]


def test_every_name_is_quoted_and_nothing_of_a_column_is_lost() -> None:
    inner = T.StructType(
        [T.StructField("a b", T.DecimalType(38, 2)), T.StructField("`", T.VariantType(), nullable=False)]
    )
    schema = T.StructType(
        [
            T.StructField("x.y", T.ArrayType(inner), metadata={"comment": "it's"}),
            T.StructField("m", T.MapType(T.StringType(), T.ArrayType(T.TimestampType())), nullable=False),
            T.StructField("none", T.StructType([])),
        ]
    )
    assert columns_ddl(schema) == (
        "`x.y` ARRAY<STRUCT<`a b`: decimal(38,2), ````: variant NOT NULL>> COMMENT 'it\\'s', "
        "`m` MAP<string, ARRAY<timestamp>> NOT NULL, `none` STRUCT<>"
    )


@pytest.mark.parametrize("ddl", _DDL)
def test_no_comment_of_a_table_holds_a_doubled_quote(ddl: str) -> None:
    """Spark 4.0 cannot parse one, so it could create no lake."""
    assert "''" not in ddl
