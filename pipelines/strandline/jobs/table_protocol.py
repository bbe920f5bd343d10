"""Delta protocol of a silver table that became portable."""

from __future__ import annotations

import logging
from typing import Final

from pyspark.errors import PySparkException

from strandline.errors import one_line
from strandline.io.delta_log.plain_protocol import drop_reader_features
from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import tables_here
from strandline.model.tables import TableName
from strandline.silver.compatibility import compatibility_in, is_mapped_in

_DROPPED_BY_SPARK: Final = ("deletionVectors", "typeWidening", "variantType", "columnMapping")
_log = logging.getLogger("strandline.silver")


def lower_protocol(ctx: JobContext, table: TableName) -> None:
    """Remove the reader features that a portable table no longer uses. All its files were just replaced.

    I/O: one commit where delta-rs reaches the lake. Elsewhere one or two statements of Spark for each feature; a
    feature that Spark cannot drop stays, with a line in the log. Idempotent.
    """
    if (tables := tables_here(ctx.settings)) is not None:
        drop_reader_features(tables.folder(table))
        return
    is_mapped = is_mapped_in(ctx.tables.properties(table))
    present = set(ctx.tables.detail(table)["tableFeatures"] or ()) - ({"columnMapping"} if is_mapped else set())
    for feature in _DROPPED_BY_SPARK:
        if feature in present:
            _drop(ctx, table, feature)


def complete_protocol(ctx: JobContext, table: TableName) -> None:
    """Repeat `lower_protocol` for a portable table whose rebuild was killed before it. Not in a catalog.

    I/O: reads the table's properties, protocol and log; at most one commit. Idempotent. Features that something else
    than a rebuild has left, or that a file, a column or a property uses, stay.
    """
    is_portable = compatibility_in(ctx.tables.properties(table)) == "portable"
    if is_portable and (tables := tables_here(ctx.settings)) is not None:
        drop_reader_features(tables.folder(table))


def _drop(ctx: JobContext, table: TableName, feature: str) -> None:
    try:
        ctx.spark.sql(f"ALTER TABLE {ctx.tables.lake.sql(table)} DROP FEATURE {feature}")
    except PySparkException as error:
        _log.warning("%s: its readers still need the Delta feature %s (%s)", table, feature, one_line(error))
