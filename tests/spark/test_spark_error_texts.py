"""Texts of Spark's errors: condition and message, never a value of a row."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.errors import one_line
from strandline.io.tables.spark_tables import Tables
from strandline.model.tables import TableName

SECRET = "ada's 555-0199"
FAILING = {
    "cast(v AS INT)": '[CAST_INVALID_INPUT] The value <expression> of the type "STRING" cannot be cast to "INT"',
    "to_timestamp(v)": '[CAST_INVALID_INPUT] The value <expression> of the type "STRING" cannot be cast to "TIMESTAMP"',
    "raise_error(v)": "[USER_RAISED_EXCEPTION] <errorMessage>",
    "map(v, 1, v, 2)": "[DUPLICATED_MAP_KEY] Duplicate map key <key> was found",
    "1 / (length(v) - 14)": "[DIVIDE_BY_ZERO] Division by zero.",
    "from_json(v, 'a INT', map('mode', 'FAILFAST'))": "[MALFORMED_RECORD_IN_PARSING",
}


@pytest.mark.parametrize(("expression", "told"), FAILING.items())
def test_a_failed_query_is_told_without_the_value_that_it_failed_at(
    spark: SparkSession, expression: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = spark.createDataFrame([(SECRET,)], "v STRING").selectExpr(f"{expression} AS x")
    with pytest.raises(Exception) as failed:  # noqa: PT011  # why: PySpark has no class for some of them
        rows.collect()
    text = one_line(failed.value)
    assert text.startswith(told)
    assert "555-0199" not in text
    logged = capfd.readouterr()
    assert "555-0199" not in logged.out + logged.err


def test_an_error_of_a_python_worker_is_told_by_its_class(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(SECRET,)], "v STRING").select(F.udf(lambda value: int(value), "INT")("v"))
    with pytest.raises(Exception) as failed:  # noqa: PT011  # why: as above
        rows.collect()
    assert one_line(failed.value) == "[PYTHON_EXCEPTION] ValueError in a Python worker"


def test_an_error_of_a_constraint_hides_the_row(tables: Tables) -> None:
    table = TableName("silver", "people")
    tables.replace(table, tables.spark.createDataFrame([("n",)], "v STRING"))
    where = tables.lake.sql(table)
    tables.spark.sql(f"ALTER TABLE {where} ADD CONSTRAINT short CHECK (length(v) < 3)")
    with pytest.raises(Exception) as failed:  # noqa: PT011  # why: as above
        tables.append(table, tables.spark.createDataFrame([(SECRET,)], "v STRING"))
    text = one_line(failed.value)
    assert text.startswith("[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES]")
    assert "short" in text
    assert "555-0199" not in text


def test_an_error_of_a_query_shows_its_names(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(SECRET,)], "v STRING")
    with pytest.raises(Exception) as failed:  # noqa: PT011  # why: as above
        rows.selectExpr("nothing").collect()
    assert "`nothing` cannot be resolved. Did you mean one of the following? [`v`]" in one_line(failed.value)
