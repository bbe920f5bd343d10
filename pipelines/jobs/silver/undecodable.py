"""Dead letters for documents that JSON cannot show."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.control.dead_letters import DeadLetters
from pipelines.jobs.context import JobContext
from pipelines.model.namespaces import Namespace
from pipelines.silver.poison import poisoned_documents


def record_poison(ctx: JobContext, namespace: Namespace, state: DataFrame) -> None:
    """I/O: writes a dead letter for each document of *state* that silver can store only as bytes. Idempotent."""
    found = poisoned_documents(state).withColumns(
        {
            "source": F.lit(ctx.settings.source.name),
            "stage": F.lit("convert"),
            "class": F.lit("NoJson"),
            "db": F.lit(namespace.db),
            "collection": F.lit(namespace.collection),
            "collection_uuid": F.lit(None).cast("string"),
            "attempts": F.lit(1),
            "at": F.lit(datetime.now(UTC)),
        }
    )
    DeadLetters(ctx.tables).add_rows(found)
