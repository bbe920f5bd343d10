"""Collections that came to a captured name by a rename, and whose documents no event has shown: they are read, as a snapshot reads."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pipelines.bronze.writer import BronzeWriter
from pipelines.jobs.snapshot import SnapshotRun, make_plan
from pipelines.model.namespaces import NamespaceEvent, namespace_event
from pipelines.settings import CaptureSettings
from pipelines.source.client import AnyClient, Collection, ConnectionOptions, asking, find_incarnation
from pipelines.source.stages import Selection

_RENAME = b"\x02operationType\x00\x07\x00\x00\x00rename\x00"

_log = logging.getLogger("strandline.capture")


def unseen_arrivals(events: Iterable[bytes], selection: Selection) -> list[NamespaceEvent]:
    """Renames onto captured names of what no event has shown: ``$out`` under a filter, ``convertToCapped``, another collection. Pure."""
    renames = (namespace_event("", event) for event in events if _RENAME in event)
    return [rename for rename in renames if rename is not None and _is_unseen(rename, selection)]


def _is_unseen(rename: NamespaceEvent, selection: Selection) -> bool:
    if rename.to is None or rename.to.is_temporary or not selection.admits(*rename.to):
        return False
    return rename.uuid is None or rename.namespace.is_filled_unseen or not selection.admits(*rename.namespace)


@dataclass(frozen=True)
class Arrivals:
    """Reads what came unseen, in a snapshot of its own.

    Args:
        client: Opened with ``raw=True``.
    """

    writer: BronzeWriter
    options: ConnectionOptions
    client: AnyClient
    selection: Selection
    settings: CaptureSettings
    report: Callable[[str, int], None]

    def snapshot_of(self, events: Iterable[bytes], *, running: SnapshotRun | None) -> SnapshotRun | None:
        """I/O: plans the reading of what came unseen with *events*; None where nothing did. It is not started.

        Only one snapshot runs at a time: the new one takes over the chunks that *running* has not read, and that one ends.

        Effects on failure:
            A plan that no batch names stays in bronze, and is never read; the batch comes again, and is planned again.
        """
        unseen = unseen_arrivals(events, self.selection)
        if not unseen:
            return None
        with asking("listing collections"):
            arrived = (find_incarnation(self.client, Collection(*rename.to, rename.uuid)) for rename in unseen if rename.to is not None)
            collections = sorted({collection for collection in arrived if collection is not None}, key=str)
        taken_over = []
        if running is not None:
            running.close()
            taken_over = running.remaining()
        for collection in collections:
            _log.info("%s came by a rename that showed none of its documents: it is read", collection)
        plan = make_plan(self.client, collections, self.settings, taken_over)
        return SnapshotRun.begin(self.writer, self.options, uuid.uuid4().hex, plan, self.report, self.selection)
