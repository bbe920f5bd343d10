"""Snapshots of collections that a rename gave a captured name, or that the server has copied for a new shard key.

Neither shows documents. Without a snapshot, bronze would lack the documents of such a collection.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from strandline.jobs.capture.filter_changes import earlier_selections
from strandline.jobs.capture_session import CaptureSession
from strandline.jobs.snapshot.plan import Plan, make_plan
from strandline.jobs.snapshot.run import SnapshotRun
from strandline.model.bson.raw import field, text
from strandline.model.namespaces import NamespaceEvent, namespace_event, namespace_of
from strandline.source.change_batch import cluster_time
from strandline.source.client import Collection, find_incarnation, translate_errors
from strandline.source.stages import Selection

_RENAME = b"\x02operationType\x00\x07\x00\x00\x00rename\x00"
_RESHARDING = b"\x02operationType\x00\x12\x00\x00\x00reshardCollection\x00"

_log = logging.getLogger("strandline.capture")


def unseen_renames(
    events: Iterable[bytes], selection: Selection, earlier: Callable[[str], Sequence[Selection]] = lambda _: ()
) -> list[NamespaceEvent]:
    """Return the renames whose target is captured and whose documents appeared in no captured event.

    Sources of such renames: ``$out`` under a filter, ``convertToCapped``, a collection that is not captured. A
    resharding counts as a rename to the same name: it copies the documents into a collection with another UUID.

    Args:
        earlier: Returns the selections of earlier runs that may have left out events before a cluster time (hex).
    """
    return [
        rename
        for event in events
        if (_RENAME in event or _RESHARDING in event) and (rename := _rename(event)) is not None
        if _is_unseen(rename, [selection, *earlier(rename.position)])
    ]


def _rename(event: bytes) -> NamespaceEvent | None:
    position, where, kind = cluster_time(event) or "", namespace_of(event), field(event, b"operationType")
    if where is not None and kind is not None and text(event, kind[1], kind[2]) == "reshardCollection":
        return NamespaceEvent(position, where, None, where)
    return namespace_event(position, event)


def _is_unseen(rename: NamespaceEvent, selections: Sequence[Selection]) -> bool:
    if rename.to is None or rename.to.is_temporary or not selections[0].admits(*rename.to):
        return False
    was_captured = all(selection.admits(*rename.namespace) for selection in selections)
    return rename.uuid is None or rename.namespace.is_filled_unseen or not was_captured


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
        unseen = unseen_renames(events, self.session.selection, partial(earlier_selections, self.session))
        if not unseen:
            return None
        collections = self.session.retry(lambda: self._existing(unseen))
        for collection in collections:
            _log.info("%s was renamed or resharded, and no event showed its documents: a snapshot reads it", collection)
        paused = running is not None and running.paused
        return SnapshotRun.create(self.session, uuid.uuid4().hex, self._plan(collections, running), paused=paused)

    def _existing(self, renames: Iterable[NamespaceEvent]) -> list[Collection]:
        """Return the renamed collections that exist now, under their current names."""
        return self._present(Collection(*rename.to, rename.uuid) for rename in renames if rename.to is not None)

    def _present(self, collections: Iterable[Collection]) -> list[Collection]:
        """Return those of *collections* that exist now, under their current names."""
        with translate_errors("listing collections"):
            current = (find_incarnation(self.session.client, collection) for collection in collections)
            return sorted({collection for collection in current if collection is not None}, key=str)

    def _plan(self, collections: list[Collection], running: SnapshotRun | None) -> Plan:
        session = self.session
        if running is None:
            return session.retry(lambda: make_plan(session, collections, kind="incremental"))
        running.close()
        if running.plan.complete:  # two halves, each read by another snapshot, give no certificate: read all again
            return session.retry(lambda: make_plan(session, sweeps=True))
        unread, before = running.progress.unfinished(), running.plan
        # Two halves cannot tell which documents are gone: a collection that is to be swept is read again, as a whole.
        ended_early = running.progress.ended_early
        swept = {each.collection for each in before.chunks if each.sweeps and not ended_early(str(each.collection))}
        names, again = {str(each) for each in swept}, session.retry(lambda: self._present(swept))
        if again:
            _log.info("the running snapshot begins again, because it is to find what was deleted")
        return session.retry(
            lambda: make_plan(
                session,
                sorted({*collections, *again}, key=str),
                unread,
                sweeps=bool(again),
                kind=before.kind,
                signal=before.signal,
                query_of=lambda name: (
                    None if name in names else session.settings.snapshot_collection_filter_overrides.get(name)
                ),
            )
        )
