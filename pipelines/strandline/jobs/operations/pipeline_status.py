"""Status of the whole pipeline at one moment: position, silver tables, quarantine, errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from strandline.control.notifications import unknown_operations
from strandline.control.proof import ProofStatus, ProofTable
from strandline.jobs.gold.planned import gold_orphans
from strandline.jobs.lake_context import LakeContext
from strandline.jobs.offsets.show_offset import Offset, show_offset
from strandline.jobs.operations.dead_letters import error_metrics
from strandline.jobs.operations.engines import engines_of_rows
from strandline.jobs.operations.scheduled_status import ScheduledStatus, scheduled_status
from strandline.jobs.operations.status import TableStatus, docs_page, quarantined_rows, silver_status
from strandline.model.tables import TableName


@dataclass(frozen=True)
class PipelineStatus:
    """State of the pipeline at one moment."""

    at: datetime
    """UTC."""
    offset: Offset
    tables: tuple[TableStatus, ...]
    """Silver tables."""
    quarantined: dict[str, int]
    """Rows in quarantine by silver table. A table without a quarantine has no entry."""
    quality_page: Path | None
    """Index of the Data Docs; None: no page has been written yet."""
    gold_orphans: tuple[TableName, ...]
    """Gold tables whose SQL file was removed or renamed."""
    unknown_operations: tuple[str, ...]
    """Operation types of MongoDB that this release does not know. Bronze has their events, and silver ignores them."""
    engines: dict[TableName, str]
    """Engine that wrote the newest rows of each table of bronze, silver and gold."""
    proof: ProofStatus | None
    """Continuous comparison with the source. None: there was none."""
    scheduled: tuple[ScheduledStatus, ...]
    """Collections of ``capture.scheduled``."""
    errors: dict[str, Any] | None
    """Totals of the dead letters, under the names of KIP-298. None: they were not counted."""


def pipeline_status(ctx: LakeContext, *, with_errors: bool = False) -> PipelineStatus:
    """Return the state of the pipeline.

    I/O: reads the end of bronze and the control tables; runs one small aggregate for each silver table; reads the
    newest commits of all tables; asks the source for its oplog, if it answers; lists the SQL files of gold.

    Args:
        with_errors: True: also count the dead letters.
    """
    return PipelineStatus(
        at=datetime.now(UTC),
        offset=show_offset(ctx),
        tables=tuple(silver_status(ctx)),
        quarantined=quarantined_rows(ctx),
        quality_page=docs_page(ctx.settings),
        gold_orphans=tuple(gold_orphans(ctx)),
        unknown_operations=tuple(unknown_operations(ctx.tables, ctx.settings.source.name)),
        engines=engines_of_rows(ctx.tables),
        proof=ProofTable(ctx.tables, ctx.settings.source.name).status(),
        scheduled=tuple(scheduled_status(ctx)),
        errors=error_metrics(ctx) if with_errors else None,
    )
