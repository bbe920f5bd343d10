"""Findings of `doctor` about a lake that a test has opened already."""

from __future__ import annotations

from datetime import UTC, datetime

from strandline.jobs.doctor.examination import examine_context
from strandline.jobs.doctor.findings import Finding, Notes
from strandline.jobs.lake_context import LakeContext


def examined(ctx: LakeContext) -> dict[str, Finding]:
    """Findings of source, tables and files, by the name of the check. Of several, the last one."""
    notes = Notes()
    examine_context(notes, ctx.settings, ctx, datetime.now(UTC))
    return {finding.check: finding for finding in notes.sorted()}
