"""The table that a rebuild fills beside a silver table: new for each rebuild, and complete before anything is taken from it."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import ConfigurationError, ContractError
from pipelines.io.table_swap import discard
from pipelines.io.tables import Tables
from pipelines.model.tables import TableName
from pipelines.silver.silver_table import SilverTable

_log = logging.getLogger("strandline.rebuild")


@contextmanager
def new_shadow(tables: Tables, table: TableName) -> Iterator[SilverTable]:
    """I/O: a table of a name that no other rebuild has; it is removed at the end. Shadows that a killed rebuild left are removed, too.

    Effects on failure:
        A shadow that cannot be removed stays in ``control``. No later rebuild reads it.
    """
    prefix = f"rebuild_{table.name}"
    left = re.compile(rf"{prefix}(_[0-9a-f]{{8}})?\Z")  # earlier releases: without a suffix
    for name in tables.names("control"):
        if left.match(name.name):
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
    """I/O: before rows of *shadow* replace rows of *table*.

    Args:
        changes: Bronze rows of which *shadow* was built.

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
