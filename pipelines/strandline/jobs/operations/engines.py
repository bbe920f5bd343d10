"""Engines that wrote rows: of the results of a run, and of the newest rows of tables, read from their logs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from strandline.io.delta_log.commits import REPLACEMENT
from strandline.io.tables.table_store import TableStore, own_tables
from strandline.model.engines import SPARK, engine_in, engines_text
from strandline.model.tables import Layer, TableName

if TYPE_CHECKING:
    from strandline.gold.results import GoldResult
    from strandline.jobs.capture.stream_loop import CaptureResult
    from strandline.jobs.silver.collection import SilverResult

_MOST_COMMITS: Final = 20
"""Commits of a table that are looked at, newest first. Mostly, the second one has rows."""
_WITH_ROWS: Final = (
    *("WRITE", "STREAMING UPDATE", "MERGE", "UPDATE", "DELETE"),
    *("CREATE TABLE AS SELECT", REPLACEMENT, "REPLACE TABLE AS SELECT"),
)
"""Operations, in Delta's words, that write or remove rows."""


def engines_of_results(capture: CaptureResult, silver: Iterable[SilverResult], gold: Iterable[GoldResult]) -> str:
    """Return who wrote what, such as ``bronze: delta-rs; silver: Spark 3 tables, delta-rs 14``."""
    tables: list[tuple[Layer, str | None]] = [("bronze", capture.engine)]
    for result in silver:
        tables += [("silver", result.engine), *([("silver", SPARK)] if result.versions else ())]
    return engines_text([*tables, *(("gold", result.engine) for result in gold)])


def engine_of_rows(tables: TableStore, table: TableName) -> str | None:
    """Return the engine that wrote the newest rows of *table*.

    None: no row was written lately, or the commit does not say. I/O: reads the newest commits of the table.
    """
    newest = islice(tables.commits_after(table, -1), _MOST_COMMITS)
    commit = next((commit for commit in newest if commit.operation in _WITH_ROWS), None)
    return None if commit is None else engine_in(commit.engine)


def engines_of_rows(tables: TableStore) -> dict[TableName, str]:
    """Return the engine that wrote the newest rows of each table of bronze, silver and gold. I/O: as `engine_of_rows`.

    A table without such an engine has no entry.
    """
    engines = ((table, engine_of_rows(tables, table)) for table in own_tables(tables, "bronze", "silver", "gold"))
    return {table: engine for table, engine in engines if engine is not None}
