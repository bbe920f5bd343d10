"""Versions of one document, computed from the facts about its key. Pure.

A *fact* has a position. It is an event, a READ, or an end: the collection was dropped or renamed away, or a complete
snapshot did not find the document. The versions are a function of the set of facts, and stored versions contain all
facts that made them. So facts may come in any order, in any batches and any number of times: stored facts joined with
new facts give the same versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from strandline.model.gap import Gap
from strandline.model.lives import Lives
from strandline.model.position import BEFORE_ALL
from strandline.silver.decode.document import before_in, document_in, patch_in
from strandline.silver.fold.step import LOOKUP, PATH, Base, fold_next

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
Confirmed = tuple[tuple[str, datetime], ...]


@dataclass(frozen=True)
class Fact:
    """One fact about a document. An update without its document has a *patch*. *before* is the pre-image."""

    position: str
    op: str
    uuid: str | None
    captured_at: datetime | None
    """Time of capture. None: the fact is an end, without an event of its own."""
    document: bytes | None = None
    exact: bool | None = None
    patch: bytes | None = None
    before: bytes | None = None

    @property
    def is_end(self) -> bool:
        return self.captured_at is None

    def rank(self) -> tuple[object, ...]:
        """Return a sort key for facts of the same position: the smallest fact is kept.

        More complete facts come first, then earlier captured ones: an earlier lookup is closer to the document at the
        position.
        """
        return (
            self.document is None,
            not self.exact,
            self.patch is None,
            self.captured_at,
            self.document or self.patch or b"",
        )


def fact_of(
    position: str,
    op: str,
    uuid: str | None,
    captured_at: datetime | None,
    envelope: bytes | None,
    *,
    exact: bool = True,
    gaps: Sequence[Gap] = (),
) -> Fact:
    """Return the fact of a change.

    The patch of an update without its document is folded onto the pre-image, if there is one.

    Args:
        envelope: Event or READ, as BSON. None: the fact is an end.
        exact: True if the document is the one at *position*.
        gaps: Gaps of bronze. In a gap that hides changes, an event's pre-image and patch may not belong together.
    """
    document = document_in(op, envelope) if op != "d" else None
    before = before_in(envelope) if envelope is not None and op in ("u", "d") else None
    if document is not None:
        return Fact(position, op, uuid, captured_at, document, exact, before=before)
    if op != "u" or envelope is None:
        return Fact(position, op, uuid, captured_at, before=before)
    patch, is_blurred = patch_in(envelope), any(gap.may_have_altered(position) for gap in gaps)
    folded = None if before is None or is_blurred else fold_next(Base(position, before), position, patch)
    if folded is None:
        return Fact(position, op, uuid, captured_at, patch=patch, before=before)
    return Fact(position, op, uuid, captured_at, folded.document, folded.inexact is None, before=before)


@dataclass(frozen=True)
class Version:
    """A document from *position* until *until* (None: still in force).

    A version without a document is deleted or unknown.
    """

    position: str
    op: str
    uuid: str | None
    captured_at: datetime | None
    document: bytes | None = None
    exact: bool | None = None
    patch: bytes | None = None
    confirmed: Confirmed = ()
    """READs that found the same document again: position and time of capture, in order of position."""
    until: str | None = None

    @property
    def deleted(self) -> bool:
        return self.op == "d"

    def facts(self) -> Iterator[Fact]:
        """Yield the facts that made this version, and the READs that confirmed it."""
        document, exact = (self.document, self.exact) if self.patch is None else (None, None)
        yield Fact(self.position, self.op, self.uuid, self.captured_at, document, exact, self.patch)
        for position, captured_at in self.confirmed:
            yield Fact(position, "r", self.uuid, captured_at, self.document, exact=True)

    def differs_only_in_window(self, other: Version) -> bool:
        return replace(self, confirmed=other.confirmed, until=other.until) == other


class Change(NamedTuple):
    """One change of a history table: write the whole version, update its window and confirmations, or remove it."""

    action: Literal["write", "window", "remove"]
    version: Version


def changed_versions(
    stored_versions: Iterable[Version],
    new_facts: Sequence[Fact],
    *,
    lives: Lives,
    gaps: Sequence[Gap] = (),
    hard_deletes: bool = False,
) -> list[Change]:
    """Return the changes that new facts make to the versions of one key.

    Args:
        stored_versions: Stored versions, in any order; at least those in force at the oldest of *new_facts* or later.
            All versions if *new_facts* contains a deletion and *hard_deletes* is set.
        new_facts: New facts of the key; at least one.
        lives: Lives of the collection's name.
        gaps: Gaps of bronze. No patch is folded across a gap.
        hard_deletes: True if a deletion removes all older versions.
    """
    before = sorted(stored_versions, key=lambda version: version.position)
    reaches_back = hard_deletes and any(fact.op == "d" for fact in new_facts)
    settled, facts = _split(before, "" if reaches_back else min(fact.position for fact in new_facts))
    now = versions_of([*facts, *new_facts], settled=settled, lives=lives, gaps=gaps, hard_deletes=hard_deletes)
    earlier = {version.position: version for version in before}
    changes = []
    for version in now:
        old = earlier.pop(version.position, None)
        if old is None or not version.differs_only_in_window(old):
            changes.append(Change("write", version))
        elif version != old:
            changes.append(Change("window", version))
    return [*changes, *(Change("remove", version) for version in earlier.values())]


def _split(stored_versions: Sequence[Version], since: str) -> tuple[Version | None, list[Fact]]:
    """Split stored versions into the version in force just before *since* and the facts from *since* on."""
    settled: Version | None = None
    first: bytes | None = None
    facts: list[Fact] = []
    for version in stored_versions:
        if version.op == "b":  # made from the pre-image of the change that ended it, not from a fact of its own
            first = version.document
        elif version.position < since and version is stored_versions[0]:
            own, *confirming = version.facts()
            settled = replace(version, confirmed=tuple(entry for entry in version.confirmed if entry[0] < since))
            facts += [fact for fact in confirming if fact.position >= since]
        else:
            own, *confirming = version.facts()
            facts += [replace(own, before=first), *confirming]
            first = None
    return settled, facts + list(_left_out(stored_versions))


def _left_out(stored_versions: Sequence[Version]) -> Iterator[Fact]:
    """Yield an unknown change where a version ends and no other begins: a constraint of the table refused the next one.

    No later patch may be folded across it.
    """
    beginnings = {version.position for version in stored_versions}
    for version in stored_versions:
        if version.until is not None and version.until not in beginnings:
            yield Fact(version.until, "u", version.uuid, version.captured_at or _LONG_AGO)


def versions_of(
    facts: Iterable[Fact],
    *,
    settled: Version | None = None,
    lives: Lives,
    gaps: Sequence[Gap] = (),
    hard_deletes: bool = False,
) -> list[Version]:
    """Return the versions that *facts* make, in order of position. Each version ends where the next one begins.

    Args:
        facts: Facts of one key, in any order.
        settled: Version in force before all *facts*. None: the key has no earlier version.
        lives, gaps, hard_deletes: See `changed_versions`.
    """
    walk = _Walk(settled, gaps, lives)
    ordered = _in_order(facts, settled, lives)
    for fact in _without_past(ordered, lives) if hard_deletes else ordered:
        walk.take(fact)
    versions = walk.versions
    if hard_deletes:  # a deletion followed by another deletion is removed, too
        over = [version.deleted and following.deleted for version, following in pairwise(versions)]
        versions = [version for version, is_over in zip(versions, [*over, False], strict=False) if not is_over]
    following = [*(version.position for version in versions[1:]), None]
    return [replace(version, until=until) for version, until in zip(versions, following, strict=True)]


def _in_order(facts: Iterable[Fact], settled: Version | None, lives: Lives) -> list[Fact]:
    """Return one fact for each position, and the end of every life of the facts, in order of position."""
    by_position: dict[str, Fact] = {}
    ends: set[str] = set()
    positions = [] if settled is None or settled.captured_at is None else [settled.position]
    for fact in facts:
        if fact.is_end:
            ends.add(fact.position)
            continue
        positions.append(fact.position)
        if (other := by_position.get(fact.position)) is None:
            by_position[fact.position] = fact
        else:
            images = [image for image in (fact.before, other.before) if image is not None]
            by_position[fact.position] = replace(min(fact, other, key=Fact.rank), before=min(images, default=None))
    ends |= {end for position in positions if (end := lives.end_of(position)) is not None}
    ending = [Fact(position, "d", None, None) for position in ends]
    return sorted([*by_position.values(), *ending], key=lambda fact: (fact.position, fact.is_end))


def _without_past(facts: Sequence[Fact], lives: Lives) -> list[Fact]:
    """Drop facts (in order of position) that are older than a deletion or the end of their life."""
    remaining: list[Fact] = []
    later: list[Fact] = []  # deletions at larger positions
    for fact in reversed(facts):
        if not any(not deletion.is_end or lives.are_one(fact.position, deletion.position) for deletion in later):
            remaining.append(replace(fact, before=None) if fact.op == "d" else fact)
        if fact.op == "d":
            later.append(fact)
    return remaining[::-1]


class _Walk:
    """Build versions from facts that are taken in order of position."""

    def __init__(self, settled: Version | None, gaps: Sequence[Gap], lives: Lives) -> None:
        self.versions = [] if settled is None else [settled]
        self._gaps, self._lives = gaps, lives
        self._base = None if settled is None else _base_of(settled)
        """Document of the newest version. None: no patch may be folded onto the newest version."""

    def take(self, fact: Fact) -> None:
        newest = self.versions[-1] if self.versions else None
        if fact.is_end:
            if newest is None or newest.deleted or self._lives.are_one(newest.position, fact.position):
                self.versions.append(Version(fact.position, "d", None if newest is None else newest.uuid, None))
            return
        is_alive = newest is not None and not newest.deleted
        alive = newest if newest and is_alive and self._lives.are_one(newest.position, fact.position) else None
        if fact.before is not None and not self.versions:
            self.versions.append(Version(BEFORE_ALL, "b", fact.uuid, fact.captured_at, fact.before, exact=True))
        base = None if fact.document is None else Base(fact.position, fact.document, None if fact.exact else LOOKUP)
        if base is None and alive is not None and self._base is not None:
            base = fold_next(self._base, fact.position, fact.patch, self._gaps)
        document = None if base is None else base.document
        if (
            fact.op == "r"
            and fact.exact
            and alive is not None
            and alive.uuid == fact.uuid  # else the order of arrival would decide which incarnation a version is of
            and fact.captured_at is not None
            and alive.document == document
        ):
            confirmed = (*alive.confirmed, (fact.position, fact.captured_at))
            self.versions[-1] = replace(alive, confirmed=confirmed)
        else:
            exact = None if base is None else base.inexact is None
            self.versions.append(
                Version(fact.position, fact.op, fact.uuid, fact.captured_at, document, exact, fact.patch)
            )
        self._base = base


def _base_of(version: Version) -> Base | None:
    if version.document is None:
        return None
    if version.confirmed:
        return Base(version.confirmed[-1][0], version.document)
    # A version with both a document and a patch was folded.
    inexact = None if version.exact else LOOKUP if version.patch is None else PATH
    return Base(version.position, version.document, inexact)
