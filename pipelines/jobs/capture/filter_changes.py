"""Differences between the filters of this run and of the last one: collections to read, and gaps that no patch is folded across."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pipelines.bronze.gaps import commit_absence, commit_hiding
from pipelines.jobs.capture_session import CaptureSession
from pipelines.jobs.snapshot.plan import captured_for_snapshots
from pipelines.model.field_rules import NotedRule
from pipelines.model.namespaces import Namespace
from pipelines.source.client import Collection, captured_collections, operation_time
from pipelines.source.stages import Selection

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


def filters_of(selection: Selection) -> str:
    """The namespaces, operations and fields that *selection* admits, in words: kept beside the stream for the next run."""
    admitted = {name: getattr(selection, name) for name in _FILTERS}
    return json.dumps(admitted | {_FIELDS: selection.fields.noted(), _HIDING: _hiding(selection)})


def _hiding(selection: Selection) -> str | None:
    """A fingerprint of the user's stages; None where they leave out nothing."""
    users = selection.user_pipeline
    return None if users.passes_all else hashlib.sha256(repr((users.order, users.stages)).encode()).hexdigest()


def earlier_selection(selection: Selection, filters: str) -> Selection:
    """*selection* with the *filters* of an earlier run; its rules for fields are those of *selection*."""
    known = {name: value for name, value in json.loads(filters).items() if name in _FILTERS}
    stored: dict[str, Any] = {name: value if isinstance(value, str) else tuple(value) for name, value in known.items()}
    return replace(selection, **stored)


@dataclass(frozen=True)
class _Earlier:
    """Filters of the last run."""

    session: CaptureSession
    filters: str

    @cached_property
    def selection(self) -> Selection:
        return earlier_selection(self.session.selection, self.filters)

    def changed_rules(self, db: str, name: str) -> tuple[list[str], list[str]] | None:
        """Fingerprints of the rules for fields of one collection, before and now; None where they are the same, or the last run noted
        none."""
        stored = json.loads(self.filters).get(_FIELDS)
        if stored is None:  # an older release
            return None
        before, now = (
            [rule.fingerprint for rule in rules if rule.applies_to(db, name)]
            for rules in (self._noted(stored), self._now)
        )
        return None if before == now else (before, now)

    @cached_property
    def _hid(self) -> bool:
        """Stages of the last run that are not those of this one may have left out changes."""
        hiding = json.loads(self.filters).get(_HIDING)  # an older release noted none
        return hiding is not None and hiding != _hiding(self.session.selection)

    @staticmethod
    def _noted(stored: list[list[str]]) -> list[NotedRule]:
        return [NotedRule(*entry) for entry in stored]

    @cached_property
    def _now(self) -> list[NotedRule]:
        return self.session.selection.fields.noted()

    def lacks(self, db: str, name: str) -> bool:
        """Return True if bronze may lack a part of what happened in the collection."""
        return not self.selection.admits(db, name) or self.changed_rules(db, name) is not None

    def is_read_again(self, db: str, name: str) -> bool:
        """Return True if the collection must be read: it was left out, or a rule or a user's stage that kept a part of it out is gone. Where
        updates come as patches any other rule is enough, for they wait until their document is read."""
        if self._hid or not self.selection.admits(db, name):
            return True
        if (rules := self.changed_rules(db, name)) is None:
            return False
        before, now = rules
        return bool(set(before) - set(now)) or self.session.settings.update_kind == "patch"


def note_gaps(session: CaptureSession) -> None:
    """I/O: a gap for each collection of which the last run left something out, or captured other fields; one that stays open as long as a
    user's stages may leave out changes. Before the first event lands. Lists the source's collections where the filters differ."""
    present = session.retry(lambda: operation_time(session.client))
    commit_hiding(session.writer, not session.selection.user_pipeline.passes_all, present)
    if concerned := session.retry(lambda: _discontinued(session)):
        commit_absence(session.writer, concerned, present)


def _discontinued(session: CaptureSession) -> list[Namespace]:
    """Captured collections of which no event tells all that happened meanwhile."""
    earlier = _earlier(session)
    if earlier is None:
        return []
    of_all = bool(set(earlier.selection.skipped_operations) - set(session.selection.skipped_operations))
    captured = captured_collections(session.client, session.selection)
    return [Namespace(where.db, where.name) for where in captured if of_all or earlier.lacks(where.db, where.name)]


def newly_included_collections(session: CaptureSession) -> list[Collection]:
    """I/O: lists the source's collections where the filters differ from those of the last run; nothing where they do not.

    A collection that was left out for a while comes anew; so does one of which a field was left out, and each one where a user's stage may
    have left out changes.
    """
    earlier = _earlier(session)
    if earlier is None or not session.settings.snapshot_policy.first:
        return []
    return [where for where in captured_for_snapshots(session) if earlier.is_read_again(where.db, where.name)]


def _earlier(session: CaptureSession) -> _Earlier | None:
    """What the last run captured; None where this one captures the same."""
    filters = session.writer.filters
    return None if filters is None or filters == filters_of(session.selection) else _Earlier(session, filters)
