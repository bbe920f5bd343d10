"""Changed filters: find the collections to read again, and record gaps for events that the last run left out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from strandline.bronze.gaps import commit_absence, commit_hiding, newest_of
from strandline.bronze.offsets import Committed
from strandline.jobs.capture.collection_starts import commit_later_starts
from strandline.jobs.capture_session import CaptureSession
from strandline.jobs.snapshot.plan import captured_for_snapshots
from strandline.model.field_rules import StoredRule
from strandline.model.namespaces import Namespace
from strandline.model.position import cluster_time_hex
from strandline.source.client import Collection, operation_time
from strandline.source.listing import captured_collections
from strandline.source.stages import Selection

_FILTERS = (
    "databases",
    "collections",
    "excluded_databases",
    "excluded_collections",
    "match_mode",
    "skipped_operations",
)
_FIELDS = "fields"
_HIDING = "hiding"


def filters_to_json(selection: Selection) -> str:
    """Return the filters of *selection* as JSON: namespaces, operations, fields and user stages.

    The next run compares it.
    """
    filters = {name: getattr(selection, name) for name in _FILTERS}
    return json.dumps(filters | {_FIELDS: selection.fields.as_stored(), _HIDING: _stages_fingerprint(selection)})


def _stages_fingerprint(selection: Selection) -> str | None:
    """Return a fingerprint of the user's stages. None: the stages leave out no event."""
    users = selection.user_pipeline
    return None if users.passes_all else hashlib.sha256(repr((users.order, users.stages)).encode()).hexdigest()


def earlier_selection(selection: Selection, filters: str) -> Selection:
    """Return *selection* with the *filters* of an earlier run (JSON).

    The rules for fields stay those of *selection*.
    """
    fields = {name: value for name, value in json.loads(filters).items() if name in _FILTERS}
    values: dict[str, Any] = {name: value if isinstance(value, str) else tuple(value) for name, value in fields.items()}
    return replace(selection, **values)


@dataclass(frozen=True)
class _EarlierFilters:
    """Filters of the last run, compared with the filters of this run.

    Args:
        filters: JSON of `filters_to_json`.
    """

    session: CaptureSession
    filters: str

    @cached_property
    def selection(self) -> Selection:
        return earlier_selection(self.session.selection, self.filters)

    def changed_rules(self, db: str, name: str) -> tuple[list[str], list[str]] | None:
        """Return fingerprints of a collection's field rules in the last run and in this run.

        None: the rules are equal.
        """
        entries = json.loads(self.filters)[_FIELDS]
        before, now = (
            [rule.fingerprint for rule in rules if rule.applies_to(db, name)]
            for rules in (self._stored_rules(entries), self._current_rules)
        )
        return None if before == now else (before, now)

    @cached_property
    def _stages_hid_events(self) -> bool:
        """Return True if the user's stages have changed, and the earlier stages may have left out events."""
        fingerprint = json.loads(self.filters)[_HIDING]
        return fingerprint is not None and fingerprint != _stages_fingerprint(self.session.selection)

    @staticmethod
    def _stored_rules(entries: list[list[str]]) -> list[StoredRule]:
        return [StoredRule(*entry) for entry in entries]

    @cached_property
    def _current_rules(self) -> list[StoredRule]:
        return self.session.selection.fields.as_stored()

    def may_lack_events(self, db: str, name: str) -> bool:
        """Return True if bronze may lack events or fields of the collection."""
        return not self.selection.admits(db, name) or self.changed_rules(db, name) is not None

    def needs_snapshot(self, db: str, name: str) -> bool:
        """Return True if the collection must be read again.

        Reasons: the last run left it out, or a rule or user stage that left out a part is gone. If updates come as
        patches, every changed rule is a reason, because a patch waits until its document is read.
        """
        if self._stages_hid_events or not self.selection.admits(db, name):
            return True
        if (rules := self.changed_rules(db, name)) is None:
            return False
        before, now = rules
        return bool(set(before) - set(now)) or self.session.settings.update_kind == "patch"


def earlier_selections(session: CaptureSession, at: str) -> list[Selection]:
    """Return the selections of earlier runs that may have left out events before the cluster time *at* (hex)."""
    entries = json.loads(session.writer.earlier_filters or "[]")
    return [earlier_selection(session.selection, entry["filters"]) for entry in entries if at <= entry["until"]]


def commit_filter_changes(session: CaptureSession, last: Committed) -> None:
    """Record a gap for each collection whose events or fields the last run left out, and the filters of the last run.

    While the user's stages may leave out events, one more gap stays open. The earlier filters tell later if documents
    of a collection were left out before it was renamed.

    I/O: writes gaps and properties to bronze; lists the source's collections if the filters have changed. Call it
    before the first event of the run is committed.

    Args:
        last: Last committed offset.

    Raises:
        ConfigurationError: See `commit_later_starts`.
    """
    present = session.retry(lambda: operation_time(session.client))
    commit_hiding(session.writer, not session.selection.user_pipeline.passes_all, present)
    if (changed := _changed_filters(session)) is not None:
        entries = json.loads(session.writer.earlier_filters or "[]")
        unread = [
            entry
            for entry in entries
            if entry["until"] > (last.last_event or "") and entry["filters"] != changed.filters
        ]
        ended = {"filters": changed.filters, "until": cluster_time_hex(*present)}
        session.writer.keep_earlier_filters(json.dumps([*unread, ended]))
        session.retry(lambda: commit_later_starts(session, _first_included(session, changed), last))
    if affected := session.retry(lambda: _collections_with_gaps(session)):
        commit_absence(session.writer, affected, present)


def _first_included(session: CaptureSession, earlier: _EarlierFilters) -> list[str]:
    """Return the collections of ``capture.starts`` that the last run left out, and of which bronze has no document."""
    names = [Namespace.parse(name) for name in session.settings.starts]
    left_out = [name for name in names if not earlier.selection.admits(*name)]
    newest = newest_of(session.writer, left_out)
    return [str(name) for name in left_out if name not in newest]


def _collections_with_gaps(session: CaptureSession) -> list[Namespace]:
    earlier = _changed_filters(session)
    if earlier is None:
        return []
    every = bool(set(earlier.selection.skipped_operations) - set(session.selection.skipped_operations))
    captured = captured_collections(session.client, session.selection)
    return [
        Namespace(collection.db, collection.name)
        for collection in captured
        if every or earlier.may_lack_events(collection.db, collection.name)
    ]


def newly_included_collections(session: CaptureSession) -> list[Collection]:
    """Return the captured collections that the last run left out, in whole or in part.

    I/O: lists the source's collections if the filters have changed. Empty: the filters are equal, or the snapshot mode
    takes no snapshots.
    """
    earlier = _changed_filters(session)
    if earlier is None or not session.settings.snapshot_policy.first:
        return []
    return [
        collection
        for collection in captured_for_snapshots(session)
        if earlier.needs_snapshot(collection.db, collection.name)
    ]


def _changed_filters(session: CaptureSession) -> _EarlierFilters | None:
    """Return the filters of the last run. None: they equal those of this run, or no run has stored any."""
    filters = session.writer.filters
    return (
        None if filters is None or filters == filters_to_json(session.selection) else _EarlierFilters(session, filters)
    )
