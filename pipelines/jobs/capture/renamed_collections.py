"""Collections that came to a captured name by a rename, and whose documents no event has shown: they are read, as a snapshot reads."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.jobs.capture_session import CaptureSession
from pipelines.jobs.snapshot.plan import Plan, make_plan
from pipelines.jobs.snapshot.run import SnapshotRun
from pipelines.model.namespaces import NamespaceEvent, namespace_event
from pipelines.source.client import Collection, find_incarnation, translate_errors
from pipelines.source.stages import Selection

_RENAME = b"\x02operationType\x00\x07\x00\x00\x00rename\x00"

_log = logging.getLogger("strandline.capture")


def unseen_renames(events: Iterable[bytes], selection: Selection) -> list[NamespaceEvent]:
    """Renames onto captured names of what no event has shown: ``$out`` under a filter, ``convertToCapped``, another collection. Pure."""
    renames = (namespace_event("", event) for event in events if _RENAME in event)
    return [rename for rename in renames if rename is not None and _is_unseen(rename, selection)]


def _is_unseen(rename: NamespaceEvent, selection: Selection) -> bool:
    if rename.to is None or rename.to.is_temporary or not selection.admits(*rename.to):
        return False
    return rename.uuid is None or rename.namespace.is_filled_unseen or not selection.admits(*rename.namespace)


@dataclass(frozen=True)
class RenamedCollections:
    """Reads what came unseen, in a snapshot of its own."""

    session: CaptureSession

    def snapshot_of(self, events: Iterable[bytes], *, running: SnapshotRun | None) -> SnapshotRun | None:
        """I/O: plans the reading of what came unseen with *events*; None where nothing did. It is not started.

        Only one snapshot runs at a time: the new one takes over the chunks that *running* has not read, and whether it waits, and that
        one ends.

        Effects on failure:
            A plan that no batch names stays in bronze, and is never read; the batch comes again, and is planned again.
        """
        unseen = unseen_renames(events, self.session.selection)
        if not unseen:
            return None
        collections = self.session.retry(lambda: self._found(unseen))
        for collection in collections:
            _log.info("%s came by a rename that showed none of its documents: it is read", collection)
        paused = running is not None and running.paused
        return SnapshotRun.begin(self.session, uuid.uuid4().hex, self._plan(collections, running), paused=paused)

    def _found(self, unseen: Iterable[NamespaceEvent]) -> list[Collection]:
        with translate_errors("listing collections"):
            came = (Collection(*rename.to, rename.uuid) for rename in unseen if rename.to is not None)
            arrived = (find_incarnation(self.session.client, collection) for collection in came)
            return sorted({collection for collection in arrived if collection is not None}, key=str)

    def _plan(self, collections: list[Collection], running: SnapshotRun | None) -> Plan:
        session = self.session
        if running is None:
            return session.retry(lambda: make_plan(session, collections, kind="incremental"))
        running.close()
        if running.plan.complete:  # what two snapshots have read in halves certifies nothing
            return session.retry(lambda: make_plan(session, sweeps=True))
        left, before = running.progress.remaining(), running.plan
        return session.retry(lambda: make_plan(session, collections, left, kind=before.kind, signal=before.signal))
