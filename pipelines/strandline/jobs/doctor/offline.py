"""The examination of `strandline doctor --offline`: settings and files. No server, no lake and no Spark."""

from __future__ import annotations

from strandline.jobs.doctor.file_checks import examine_files
from strandline.jobs.doctor.findings import Finding, Notes
from strandline.jobs.doctor.lake_checks import OPEN
from strandline.jobs.doctor.setting_checks import examine_settings
from strandline.jobs.doctor.source_checks import CONNECTION, selection
from strandline.jobs.selection import selection_of
from strandline.model.table_schemas import bronze_table
from strandline.settings.configuration import Settings


def examine_offline(settings: Settings) -> list[Finding]:
    """Examine settings and files. I/O: reads the files of gold and quality; writes nothing."""
    notes = Notes()
    notes.add(*examine_settings(settings))
    if settings.source.is_configured:
        notes.add(CONNECTION.ok("a URI is set; not looked at"))
    else:
        notes.add(CONNECTION.warning("no URI", fix="set STRANDLINE_SOURCE__URI before a capture"))
    if notes.attempt(selection, lambda: selection_of(settings.capture)) is not None:
        notes.add(selection.ok("the filters can be read"))
    lake, bronze = settings.lake_location, bronze_table(settings.source.name)
    notes.add(OPEN.ok(f"{lake.path(bronze) if lake.by_path else lake.sql(bronze)}; not looked at"))
    examine_files(notes, settings)
    return notes.sorted()
