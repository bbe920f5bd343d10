"""Functions over Arrow arrays as functions of Spark's columns, in every supported Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyspark.sql.pandas.functions as made_by_spark  # pyspark.sql.functions has no types for them
from pyspark.sql import Column

_arrow_udf: Final[Any] = getattr(made_by_spark, "arrow_udf", None)  # Spark 4.0 has none


def column_function(function: Callable[..., pa.Array], returns: str) -> Callable[..., Column]:
    """Return *function* as a function of columns.

    Spark 4.1 and newer hand Arrow arrays to it. For Spark 4.0 they pass through pandas.

    Args:
        function: Takes one array per column, and returns one of the same length.
        returns: The result's type, as DDL.
    """
    made: Callable[..., Column] = (_arrow_udf or through_pandas)(function, returns)
    return made


def through_pandas(function: Callable[..., pa.Array], returns: str) -> Callable[..., Column]:
    """Return *function* as `column_function` does for a Spark without `arrow_udf`."""

    def rows(*columns: pd.Series) -> pd.DataFrame:
        structs = function(*(pa.Array.from_pandas(column) for column in columns))
        return pd.DataFrame({field.name: structs.field(field.name).to_pylist() for field in structs.type}, dtype=object)

    def values(*columns: pd.Series) -> pd.Series:
        return pd.Series(function(*(pa.Array.from_pandas(column) for column in columns)).to_pylist(), dtype=object)

    pandas_udf: Any = made_by_spark.pandas_udf
    made: Callable[..., Column] = pandas_udf(rows if returns.startswith("struct<") else values, returns)
    return made
