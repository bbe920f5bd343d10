"""First step of an erasure: no present version of a table shows the documents."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql import functions as F

from strandline.bronze.erasure import ErasureRule, token_in, without_token
from strandline.bronze.offsets import committed
from strandline.errors import RetriableError
from strandline.io.spark.races import retrying
from strandline.jobs.context import JobContext
from strandline.jobs.erase.from_bronze import AGAIN, erase_from_bronze, purge_marked_rows, replace_values
from strandline.jobs.erase.places import KeyedTable, Scope
from strandline.jobs.gold.planned import is_defined
from strandline.jobs.gold.run_gold import run_gold
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.silver.table_names import names_of
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.ids_in_tokens import IdsInTokens
from strandline.model.merge_rule import MergeRule
from strandline.model.table_schemas import CUTS, PROOF, QUALITY
from strandline.model.tables import TableName, literal, literals
from strandline.quality.table_checks import TABLE_KINDS
from strandline.silver.progress import BronzeLog, Progress
from strandline.silver.silver_metadata import SilverMetadata

_POSITIONS: Final = ((CUTS, "position"), (CUTS, "read_position"), (QUALITY, "position_from"), (QUALITY, "position_to"))
_PAGES: Final = ("validations", "index.html")
"""Files of Data Docs that show values."""


def hide(scope: Scope) -> dict[TableName, int]:
    """Remove the documents from every table, and what names them from other rows. Return the tables' new versions.

    I/O: brings silver up to date before and after bronze: silver reads old commits of bronze, too. Then all else.
    What names the documents elsewhere goes before their rows: after a kill, `maintain` knows their keys by these alone.

    Raises:
        RetriableError: A writer was at work, or gold could not be built. Calling again is safe.
    """
    ctx, erasure = scope.ctx, ErasureRule(scope.keys, scope.names)
    last = committed(ctx.tables, scope.bronze)
    run_silver(ctx)
    _forget_tokens(scope, erasure.tokens)
    _forget_ranges(scope)
    erase_from_bronze(scope, erasure)
    through = BronzeLog.of(ctx.tables, scope.bronze).newest()
    run_silver(ctx)
    scope = replace(scope)  # silver may have made archives
    store_progress(scope, through)
    for table in scope.keyed[1:]:
        _delete(scope, table)
    if committed(ctx.tables, scope.bronze) != last:  # a capture has landed more events meanwhile
        _forget_tokens(scope, erasure.tokens)
    _forget_checks(scope)
    if is_defined(ctx.settings):
        _build_gold(ctx)
    left = [str(table) for table, counts in scope.counts() if counts]
    if left:
        raise RetriableError(f"rows of the documents came again into {', '.join(left)}", next_step=AGAIN)
    return scope.versions()


def store_progress(scope: Scope, through: Progress) -> None:
    """I/O: stores that the tables have merged bronze *through* a version without the rows: a rebuild reads that one."""
    for table in {table for name in scope.names for table in names_of(scope.ctx, name)} & {*scope.typed_tables}:
        metadata = SilverMetadata(scope.ctx.tables, table)
        progress = metadata.progress()
        if progress is not None and progress.version < through.version:
            metadata.set_progress(through, {})


def _delete(scope: Scope, table: KeyedTable) -> None:
    """I/O: deletes the rows of the documents. The commit names no key, as DELETE would."""
    tables, keys = scope.ctx.tables, scope.key_rows().withColumnRenamed("erased", table.key)
    rule = MergeRule((table.key,)).delete(when="true")
    retrying()(lambda: tables.merge(table.name, keys, rule, among=table.among))
    purge_marked_rows(tables, table.name)


def _forget_tokens(scope: Scope, tokens: IdsInTokens) -> None:
    """I/O: replaces positions that contain an `_id`, in control tables and in properties."""
    tables = scope.ctx.tables
    for table, column in _POSITIONS:
        if tables.exists(table):
            positions = tables.read(table).where(F.length(column) > len("0" * 17 + "~")).select(column).distinct()
            new = [(row[0], without_token(row[0])) for row in positions.collect() if token_in(row[0]) in tokens]
            replace_values(tables, table, column, dict(new))
    for name in (scope.bronze, *scope.typed_tables):
        properties = tables.properties(name)
        changed = {key: text for key, old in properties.items() if (text := tokens.removed_from(old)) != old}
        if changed:
            tables.set_properties(name, changed)


def _forget_checks(scope: Scope) -> None:
    """I/O: empties what checks of columns have seen in tables of the documents and in gold; removes the pages."""
    tables, settings = scope.ctx.tables, scope.ctx.settings
    if tables.exists(QUALITY):
        checked = [str(name) for name in (*scope.typed_tables, *_gold(scope))]
        values = f"expectation NOT IN ({literals(TABLE_KINDS)}) AND observed <> '{{}}'"
        if checked:
            tables.update(QUALITY, {"observed": "'{}'"}, f"table IN ({literals(checked)}) AND {values}")
    docs = Path(settings.quality.docs_dir)
    if (docs / _PAGES[0]).is_dir():
        shutil.rmtree(docs / _PAGES[0])
    (docs / _PAGES[1]).unlink(missing_ok=True)


def _forget_ranges(scope: Scope) -> None:
    """I/O: deletes the ranges of a comparison in one of the collections if one of them begins at a document."""
    tables = scope.ctx.tables
    for name in scope.names if tables.exists(PROOF) else ():
        its = f"db = {literal(name.db)} AND collection = {literal(name.collection)}"
        bounds = tables.read(PROOF).where(f"{its} AND lower IS NOT NULL").select("lower").distinct().collect()
        if scope.keys & {document_merge_key(bytes(row["lower"])) for row in bounds}:
            tables.delete(PROOF, its)


def _gold(scope: Scope) -> list[TableName]:
    return [table for table in scope.other_tables if table.layer == "gold"]


def _build_gold(ctx: JobContext) -> None:
    for result in run_gold(ctx):
        if result.blocks and ctx.tables.exists(TableName("gold", result.name)):
            raise RetriableError(
                f"gold.{result.name} could not be built, and may hold the documents: {result.reason}",
                next_step="correct it, then erase again",
            )
