"""Whether a query names columns that its tables have, as far as that can be told without Spark."""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from scripts.reference import columns_of
from strandline.demo.dataset import load_dataset
from strandline.demo.files import GOLD
from strandline.demo.replay import completed
from strandline.gold.statement import DIALECT
from strandline.model import table_schemas as columns
from strandline.model.tables import TableName

_CONTROL = {
    str(table): getattr(columns, f"{name}_DDL")
    for name, table in vars(columns).items()
    if isinstance(table, TableName) and hasattr(columns, f"{name}_DDL")
}
_IN_ANOTHER_SHAPE = ("_debezium", "_transactions")
"""In the names of views over bronze whose columns another tool has chosen."""


def unknown_columns(query: str) -> list[str]:
    """Return names that no table of *query* has, and tables that do not exist.

    For a silver table outside the demo only the bookkeeping columns are known. There every other name may be a field.
    """
    tree = sqlglot.parse_one(query, dialect=DIALECT)
    made = {each.alias for each in tree.find_all(exp.CTE, exp.Subquery, exp.Alias, exp.Table) if each.alias}
    made |= {alias.name for each in tree.find_all(exp.CTE) for alias in each.args["alias"].columns}
    tables = [f"{table.db}.{table.name}" for table in tree.find_all(exp.Table) if table.db]
    if any(shape in table for table in tables for shape in _IN_ANOTHER_SHAPE):
        return []
    known = {table: columns_of_table(table) for table in tables}
    missing = [table for table, names in known.items() if not names]
    names = set().union(*known.values())
    has_fields = any("_key" in of and "carrier" not in names for of in known.values())
    for column in tree.find_all(exp.Column):
        parts = [part.name for part in column.parts]
        name = parts[1] if len(parts) > 1 and parts[0] not in names else parts[0]
        may_be_a_field = has_fields and not name.startswith("_")
        if name not in names | made and not may_be_a_field:
            missing.append(name)
    return missing


def columns_of_table(table: str) -> set[str]:
    """Names of its columns; none where there is no such table."""
    layer, _, name = table.removeprefix("delta.lake/").replace("/", ".").partition(".")
    if layer == "gold":
        file = GOLD / f"{name}.sql"
        return (
            set(sqlglot.parse_one(file.read_text(encoding="utf-8"), dialect=DIALECT).named_selects)
            if file.is_file()
            else set()
        )
    if layer == "silver":
        bookkeeping = columns.SILVER_HISTORY_DDL if name.endswith("_history") else columns.SILVER_BOOKKEEPING_DDL
        return _names(bookkeeping) | {"_id"} | _fields(name)
    if layer == "bronze":
        return _names(columns.BRONZE_DDL)
    return _names(_CONTROL[table]) if table in _CONTROL else set()


def _fields(collection: str) -> set[str]:
    if collection != "flights":
        return set()
    return {field for flight in load_dataset(50).flights for field in completed(flight)}


def _names(ddl: str) -> set[str]:
    return {name for name, _, _ in columns_of(ddl)}
