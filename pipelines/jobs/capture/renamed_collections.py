"""Snapshots of collections that a rename gave a captured name.

A rename carries no documents. Without a snapshot, bronze would lack the documents of such a collection.
"""

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
    """Return the renames whose target is captured and whose documents appeared in no captured event. Pure.

    Sources of such renames: ``$out`` under a filter, ``convertToCapped``, a collection that is not captured.
    """
    renames = (namespace_event("", event) for event in events if _RENAME in event)
    return [rename for rename in renames if rename is not None and _is_unseen(rename, selection)]


def _is_unseen(rename: NamespaceEvent, selection: Selection) -> bool:
    if rename.to is None or rename.to.is_temporary or not selection.admits(*rename.to):
        return False
    return rename.uuid is None or rename.namespace.is_filled_unseen or not selection.admits(*rename.namespace)


@dataclass(frozen=True)
class RenamedCollections:
    """Plans snapshots of renamed collections."""

    session: CaptureSession

    def plan_snapshot(self, events: Iterable[bytes], *, running: SnapshotRun | None) -> SnapshotRun | None:
        """Plan a snapshot of the collections that *events* renamed unseen. None: no such collection.

        I/O: reads the source; writes the plan to bronze. The snapshot is not started.

        Args:
            running: Current snapshot. It is closed, because only one runs at a time. The new snapshot takes over its
                unread chunks and its pause.

        Effects on failure:
            A plan that no batch names stays in bronze and is never read. The batch is read again and planned again.
        """
        unseen = unseen_renames(events, self.session.selection)
        if not unseen:
            return None
        collections = self.session.retry(lambda: self._existing(unseen))
        for collection in collections:
            _log.info("%s was renamed, and no event showed its documents: a snapshot reads it", collection)
        paused = running is not None and running.paused
        return SnapshotRun.create(self.session, uuid.uuid4().hex, self._plan(collections, running), paused=paused)

    def _existing(self, renames: Iterable[NamespaceEvent]) -> list[Collection]:
        """Return the renamed collections that exist now, under their current names."""
        with translate_errors("listing collections"):
            targets = (Collection(*rename.to, rename.uuid) for rename in renames if rename.to is not None)
            current = (find_incarnation(self.session.client, collection) for collection in targets)
            return sorted({collection for collection in current if collection is not None}, key=str)

    def _plan(self, collections: list[Collection], running: SnapshotRun | None) -> Plan:
        session = self.session
        if running is None:
            return session.retry(lambda: make_plan(session, collections, kind="incremental"))
        running.close()
        if running.plan.complete:  # two halves, each read by another snapshot, give no certificate: read all again
            return session.retry(lambda: make_plan(session, sweeps=True))
        unread, before = running.progress.unfinished(), running.plan
        return session.retry(lambda: make_plan(session, collections, unread, kind=before.kind, signal=before.signal))
