"""Shadow tables: a rebuild fills a new one, and checks that it is complete before rows of silver are replaced."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.errors import ConfigurationError, ContractError
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_swap import discard
from strandline.model.tables import TableName
from strandline.silver.silver_table import SilverTable

_PREFIX, _SUFFIX = "rebuild_", "_[0-9a-f]{8}"
_SHADOW = re.compile(rf"{_PREFIX}.+{_SUFFIX}\Z")
_log = logging.getLogger("strandline.rebuild")


def is_shadow(table: TableName) -> bool:
    """Return True if *table* is the shadow table of a rebuild, by its name."""
    return table.layer == "control" and _SHADOW.match(table.name) is not None


@contextmanager
def new_shadow(tables: Tables, table: TableName) -> Iterator[SilverTable]:
    """Provide a shadow table with a unique name, and drop it at the end.

    I/O: first drops shadow tables that killed rebuilds of *table* have left.

    Effects on failure:
        A shadow table that cannot be dropped stays in ``control``. No later rebuild reads it.
    """
    prefix = f"{_PREFIX}{table.name}"
    leftover = re.compile(rf"{prefix}{_SUFFIX}\Z")
    for name in tables.names("control"):
        if leftover.match(name.name):
            _remove(tables, name)
    shadow = SilverTable(tables, TableName("control", f"{prefix}_{uuid.uuid4().hex[:8]}"))
    try:
        yield shadow
    finally:
        _remove(tables, shadow.name)


def _remove(tables: Tables, shadow: TableName) -> None:
    try:
        discard(tables, shadow)
    except ConfigurationError as error:
        _log.warning("%s", error)


def require_all_keys(shadow: DataFrame, changes: DataFrame, table: TableName) -> None:
    """Require that the shadow table has every key of bronze, before its rows replace rows of *table*.

    I/O: reads *shadow* and *changes*.

    Args:
        shadow: Rows of the shadow table.
        changes: Bronze rows from which *shadow* was built.
        table: The silver table, for the error.

    Raises:
        ContractError: *shadow* lacks a key of *changes*. Nothing was replaced.
    """
    keys = changes.select("key").distinct()
    lacking = keys.join(shadow.select("_key"), F.col("key").eqNullSafe(F.col("_key")), "left_anti")
    count = lacking.count()
    if count:
        raise ContractError(
            f"the rebuilt {table} lacks {count} keys that bronze has, so {table} stays as it is",
            next_step=f"strandline rebuild {table} --dry-run; if it says the same, report it as a defect",
        )
