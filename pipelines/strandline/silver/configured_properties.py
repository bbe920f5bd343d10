"""Delta properties of a table that `silver.table_properties` names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from strandline.errors import ContractError, one_line
from strandline.model.tables import TableName, literal
from strandline.plain_text import condition_of

if TYPE_CHECKING:
    from strandline.io.tables.spark_tables import Tables

CONFIGURED: Final = "strandline.table_properties"
"""Property with the names of the properties that Strandline has set because the setting named them."""
_NOT_A_VALUE: Final = "UNSUPPORTED_TABLE_CHANGE"
"""Error condition of a value that Delta does not take. PySpark has no class for it."""


def configured_in(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the properties that the setting named at the last run, from a table's properties."""
    return tuple(json.loads(properties.get(CONFIGURED, "[]")))


def are_applied(properties: Mapping[str, str], configured: Mapping[str, str]) -> bool:
    """Return True if a table has the *properties* that the setting names, so that `apply_properties` does nothing."""
    return _changed(properties, configured) == {} and set(configured_in(properties)) == set(configured)


def _changed(current: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    folded = {name.casefold(): value for name, value in current.items()}
    return {name: value for name, value in configured.items() if folded.get(name.casefold()) != value}


def apply_properties(tables: Tables, table: TableName, configured: Mapping[str, str]) -> None:
    """Set the properties that the setting names. Unset those that it named before and names no longer.

    No file is rewritten. Other properties stay.

    I/O: reads properties; writes up to three commits, or none. Idempotent.

    Raises:
        ContractError: Delta does not take a name or a value. Nothing was changed.

    Effects on failure:
        A property that the setting no longer names may still be there. The next call unsets it.
    """
    current = tables.properties(table)
    before, changed = configured_in(current), _changed(current, configured)
    configured_names = {name.casefold() for name in configured}
    removed = [name for name in before if name.casefold() not in configured_names]
    if changed or not set(before) >= set(configured):
        _set(tables, table, {**changed, CONFIGURED: json.dumps([*configured, *removed])})
    if removed:
        names = ", ".join(map(literal, removed if configured else [*removed, CONFIGURED]))
        tables.spark.sql(f"ALTER TABLE {tables.lake.sql(table)} UNSET TBLPROPERTIES IF EXISTS ({names})")
        if configured:
            tables.set_properties(table, {CONFIGURED: json.dumps([*configured])})


def _set(tables: Tables, table: TableName, properties: Mapping[str, str]) -> None:
    from py4j.protocol import Py4JJavaError  # not above: silver reads `are_applied` without PySpark
    from pyspark.errors import AnalysisException, IllegalArgumentException

    try:
        tables.set_properties(table, properties)
    except (AnalysisException, IllegalArgumentException, Py4JJavaError) as error:
        if isinstance(error, Py4JJavaError) and condition_of(error) != _NOT_A_VALUE:
            raise
        named = ", ".join(f"{name}: {value}" for name, value in properties.items() if name != CONFIGURED)
        raise ContractError(
            f"Delta does not take silver.table_properties {{{named}}} for {table}: {one_line(error)}",
            next_step="correct or remove the property; the rows are merged, and no property was changed",
        ) from error
