"""Snapshots of collections that a rename gave a captured name, or that the server has moved to another UUID.

Neither shows documents. Without a snapshot, bronze would lack the documents of a renamed collection. A moved collection
keeps its documents in silver; the snapshot heals what an unseen creation of a collection would leave.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from strandline.jobs.capture.filter_changes import earlier_selections
from strandline.jobs.capture_session import CaptureSession
from strandline.jobs.snapshot.plan import Plan, make_plan
from strandline.jobs.snapshot.run import SnapshotRun
from strandline.model.lives import NameEvent, boundaries
from strandline.model.namespaces import NamespaceEvent, namespace_event, namespace_of, operation_of
from strandline.source.change_batch import cluster_time
from strandline.source.client import Collection, find_incarnation, translate_errors
from strandline.source.stages import Selection

_NAME_EVENT = re.compile(rb"\x02operationType\x00.{4}(?:create|drop|rename|reshardCollection)\x00", re.DOTALL)

_log = logging.getLogger("strandline.capture")


def unseen_renames(
    events: Iterable[bytes], selection: Selection, earlier: Callable[[str], Sequence[Selection]] = lambda _: ()
) -> list[NamespaceEvent]:
    """Return the renames whose target is captured and whose documents appeared in no captured event.

    Sources of such renames: ``$out`` under a filter, ``convertToCapped``, a collection that is not captured. A move to
    another UUID counts as a rename to the same name: a resharding, or a ``movePrimary`` up to MongoDB 7.0.

    Args:
        earlier: Returns the selections of earlier runs that may have left out events before a cluster time (hex).
    """
    renames, named = [], []
    for event in events:
        if _NAME_EVENT.search(event) is None or (where := namespace_of(event)) is None:
            continue
        position = cluster_time(event) or ""
        if operation_of(event) == "reshardCollection":
            renames.append(NamespaceEvent(position, where, None, where))
        elif (name_event := namespace_event(position, event)) is not None:
            named.append(name_event)
    renames += [event for event in named if event.to is not None] + _moves(named)
    return [rename for rename in renames if _is_unseen(rename, [selection, *earlier(rename.position)])]


def _moves(events: Sequence[NamespaceEvent]) -> list[NamespaceEvent]:
    """Return the moves among *events*: a collection got another UUID, and the drop of the old one ended nothing."""
    moves = []
    for namespace in {event.namespace for event in events}:
        own = [
            name_event for name_event in (NameEvent.of(event, namespace) for event in events) if name_event is not None
        ]
        dropped = [event for event in own if event.kind == "drop"]
        ending = boundaries(own, dict.fromkeys((event.uuid for event in dropped if event.uuid is not None), ""))
        moves += [
            NamespaceEvent(event.position, namespace, None, namespace) for event in dropped if event not in ending
        ]
    return moves


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
            _log.info("%s was renamed or moved, and no event showed its documents: a snapshot reads it", collection)
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
        before = running.plan
        running.close()
        if before.complete:  # two halves, each read by another snapshot, give no certificate: read all again
            query_of = None if before.kind == "initial" else lambda _: None
            return session.retry(
                lambda: make_plan(
                    session,
                    sweeps=True,
                    kind=before.kind,
                    signal=before.signal,
                    query_of=query_of,
                    scheduled=before.scheduled,
                )
            )
        unread = running.progress.unfinished()
        # Two halves cannot tell which documents are gone: a collection that is to be swept is read again, as a whole.
        ended_early = running.progress.ended_early
        swept = {chunk.collection for chunk in before.chunks if chunk.sweeps and not ended_early(str(chunk.collection))}
        names, again = {str(collection) for collection in swept}, session.retry(lambda: self._present(swept))
        if again:
            _log.info("the running snapshot begins again, because it is to find what was deleted")
        return session.retry(
            lambda: make_plan(
                session,
                sorted({*collections, *again}, key=str),
                unread,
                sweeps=bool(again),
                kind="incremental" if before.kind == "scheduled" else before.kind,
                signal=before.signal,
                query_of=lambda name: (
                    None if name in names else session.settings.snapshot_collection_filter_overrides.get(name)
                ),
            )
        )
