"""Failures of MERGE, UPDATE and DELETE that the table itself causes: names of its columns, and its constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException

from strandline.errors import ContractError
from strandline.io.spark.races import lost_a_race
from strandline.model.shape import is_delta_name
from strandline.model.tables import TableName
from strandline.plain_text import condition_of, without_values

_BROKEN: Final = ("DELTA_VIOLATE_CONSTRAINT", "DELTA_NOT_NULL_CONSTRAINT", "DELTA_EXCEED_CHAR_VARCHAR_LIMIT")
"""Beginnings of the error conditions of a row that a constraint refuses."""


@contextmanager
def row_command(table: TableName, columns: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Turn a failure that the table causes into one line without values. Other failures are raised as they are.

    Args:
        columns: Returns the table's columns. Called after a failure only.

    Raises:
        ContractError: A column has a name that Delta's commands use themselves, or the row breaks a constraint.
    """
    try:
        yield
    except PySparkException as error:
        if lost_a_race(error):
            raise
        if condition_of(error).startswith(_BROKEN):
            raise ContractError(
                f"a constraint of {table} refuses a row: {without_values(error)}",
                next_step="ALTER TABLE … DROP CONSTRAINT, or a constraint that accepts the row",
            ) from error
        name = next(filter(is_delta_name, columns()), None)
        if name is None:
            raise
        raise ContractError(
            f"{table} has a column {name}: Delta's commands use that name themselves, so no row can be changed",
            next_step=f"name the column otherwise; strandline rebuild {table} makes a silver table without it",
        ) from error
