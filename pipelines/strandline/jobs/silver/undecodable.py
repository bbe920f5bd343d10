"""Dead letters for documents that silver cannot store as they are."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline.control.dead_letters import IDENTITY, count_added
from strandline.io.tables.ddl import schema_of
from strandline.io.telemetry import metrics
from strandline.jobs.context import JobContext
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import DEAD_LETTERS, DEAD_LETTERS_DDL
from strandline.model.tenants import TENANT_COLUMNS
from strandline.silver.poison import poisoned_documents


def record_poison(ctx: JobContext, namespace: Namespace, state: DataFrame) -> None:
    """I/O: writes a dead letter for each document of *state* that silver can store only as bytes. Idempotent."""
    record_letters(ctx, namespace, poisoned_documents(state), "NoJson")


def record_letters(ctx: JobContext, namespace: Namespace, letters: DataFrame, error_class: str) -> None:
    """I/O: writes a dead letter for each document in *letters*. Idempotent.

    Args:
        namespace: The collection. A tenant table: each key names its collection.
        letters: ``key``, ``position``, ``message``, ``raw``.
        error_class: Class of the failure.
    """
    schema, identity = schema_of(DEAD_LETTERS_DDL), (F.coalesce(F.col(name), F.lit("")) for name in IDENTITY)
    if namespace.is_tenant_table:
        letters = letters.withColumnRenamed("key", "_key")
    letters = letters.withColumns(
        {
            "source": F.lit(ctx.settings.source.name),
            "stage": F.lit("convert"),
            "class": F.lit(error_class),
            **_names(namespace),
            "collection_uuid": F.lit(None).cast("string"),
            "attempts": F.lit(1),
            "at": F.lit(datetime.now(UTC)),
            "status": F.lit("open"),
            "replayed_at": F.lit(None).cast("timestamp"),
        }
    )
    letters = letters.withColumn("id", F.substring(F.sha2(F.concat_ws("\0", *identity), 256), 1, 16))
    ctx.tables.create(DEAD_LETTERS, schema)
    with metrics.LETTER_FAILURES.count_exceptions():
        count_added(ctx.tables.insert_missing(DEAD_LETTERS, letters.select(*schema.names), "id"))


def _names(namespace: Namespace) -> dict[str, Column]:
    """Return the columns that name the collection of a letter. In a tenant table, and its bare key, by ``_key``."""
    if namespace.is_tenant_table:
        return {name: F.expr(sql) for name, sql in TENANT_COLUMNS.items()}
    return {name: F.lit(value) for name, value in namespace._asdict().items()}
