"""Every version of one document, from all that is known of its key. Pure; no Spark.

What is known are *facts*, each at a position: events, READs, and the end of a life (its collection was dropped, or a complete snapshot no
longer met the document). The versions are a function of the set of facts, and a table of versions holds all facts that made it. So facts
may come in any order, in any batches and any number of times: what is stored, joined with what is new, gives the same versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Literal, NamedTuple

from pipelines.model.gap import Gap
from pipelines.model.position import BEFORE_ALL
from pipelines.silver.decode.document import before_in, document_in, patch_in
from pipelines.silver.fold.step import LOOKUP, PATH, Base, fold_next
from pipelines.silver.incarnations import Ends

Confirmed = tuple[tuple[str, datetime], ...]


@dataclass(frozen=True)
class Fact:
    """What one change tells of a document. An update without its document tells its *patch*; *before* is its pre-image."""

    position: str
    op: str
    uuid: str | None
    captured_at: datetime | None
    """None: no event of its own, the end of a life."""
    document: bytes | None = None
    exact: bool | None = None
    patch: bytes | None = None
    before: bytes | None = None

    @property
    def is_end(self) -> bool:
        return self.captured_at is None

    def rank(self) -> tuple[object, ...]:
        """Of two that tell of one position the smaller is believed: the one that knows more, then the one that was captured first, because
        a document that was looked up is the nearer to its position the earlier that was."""
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
    """What a change tells. An update without its document, but with its pre-image, is folded onto that.

    Args:
        envelope: None: the end of a life.
        exact: The document is the one at *position*.
        gaps: Of bronze. In one that hides changes an event's pre-image and patch need not belong together.
    """
    document = document_in(op, envelope) if op != "d" else None
    before = before_in(envelope) if envelope is not None and op in ("u", "d") else None
    if document is not None:
        return Fact(position, op, uuid, captured_at, document, exact, before=before)
    if op != "u" or envelope is None:
        return Fact(position, op, uuid, captured_at, before=before)
    patch, is_blurred = patch_in(envelope), any(gap.blurs(position) for gap in gaps)
    folded = None if before is None or is_blurred else fold_next(Base(position, before), position, patch)
    if folded is None:
        return Fact(position, op, uuid, captured_at, patch=patch, before=before)
    return Fact(position, op, uuid, captured_at, folded.document, folded.inexact is None, before=before)


@dataclass(frozen=True)
class Version:
    """A document from *position* until *until* (None: it is in force). Without a document it is deleted, or not known."""

    position: str
    op: str
    uuid: str | None
    captured_at: datetime | None
    document: bytes | None = None
    exact: bool | None = None
    patch: bytes | None = None
    confirmed: Confirmed = ()
    """READs that showed this very document again: position and time of capture, in order."""
    until: str | None = None

    @property
    def deleted(self) -> bool:
        return self.op == "d"

    def facts(self) -> Iterator[Fact]:
        """What made it: what it holds, and all that only confirmed it."""
        document, exact = (self.document, self.exact) if self.patch is None else (None, None)
        yield Fact(self.position, self.op, self.uuid, self.captured_at, document, exact, self.patch)
        for position, captured_at in self.confirmed:
            yield Fact(position, "r", self.uuid, captured_at, self.document, exact=True)

    def is_same_but_for_window(self, other: Version) -> bool:
        return replace(self, confirmed=other.confirmed, until=other.until) == other


class Change(NamedTuple):
    """What is to be done to a table of versions: put the whole version there, move its window and what confirmed it, or remove it."""

    action: Literal["write", "window", "remove"]
    version: Version


def changed_versions(
    held: Iterable[Version], news: Sequence[Fact], *, ends: Ends, gaps: Sequence[Gap] = (), hard_deletes: bool = False
) -> list[Change]:
    """What *news* change among the versions of one key.

    Args:
        held: The versions that the table holds, in any order; at least all whose window reaches the oldest of *news*. All, where a
            deletion is among *news* and hard.
        ends: Where lives of the collection ended.
        gaps: Of bronze. No patch is folded across one.
        hard_deletes: Nothing stays of what was before a deletion.
    """
    before = sorted(held, key=lambda version: version.position)
    reaches_back = hard_deletes and any(fact.op == "d" for fact in news)
    settled, facts = _split(before, "" if reaches_back else min(fact.position for fact in news))
    now = versions_of([*facts, *news], settled=settled, ends=ends, gaps=gaps, hard_deletes=hard_deletes)
    stored = {version.position: version for version in before}
    changes = []
    for version in now:
        old = stored.pop(version.position, None)
        if old is None or not version.is_same_but_for_window(old):
            changes.append(Change("write", version))
        elif version != old:
            changes.append(Change("window", version))
    return [*changes, *(Change("remove", version) for version in stored.values())]


def _split(held: Sequence[Version], since: str) -> tuple[Version | None, list[Fact]]:
    """The version that is in force right before *since*, as it was then, and the facts from there on."""
    settled: Version | None = None
    first: bytes | None = None
    facts: list[Fact] = []
    for version in held:
        if version.op == "b":  # not a fact of its own: it belongs to the change that ended it
            first = version.document
        elif version.position < since and version is held[0]:
            own, *confirming = version.facts()
            settled = replace(version, confirmed=tuple(entry for entry in version.confirmed if entry[0] < since))
            facts += [fact for fact in confirming if fact.position >= since]
        else:
            own, *confirming = version.facts()
            facts += [replace(own, before=first), *confirming]
            first = None
    return settled, facts


def versions_of(
    facts: Iterable[Fact],
    *,
    settled: Version | None = None,
    ends: Ends,
    gaps: Sequence[Gap] = (),
    hard_deletes: bool = False,
) -> list[Version]:
    """The versions that *facts* make, in order. Every one ends where the next begins.

    Args:
        settled: The version in force before all *facts*. None: nothing is known of the key before them.
    """
    walk = _Walk(settled, gaps)
    told = _in_order(facts, settled, ends)
    for fact in _without_past(told) if hard_deletes else told:
        walk.take(fact)
    versions = walk.versions
    if hard_deletes:  # nor does a deletion stay below another one
        over = [version.deleted and following.deleted for version, following in pairwise(versions)]
        versions = [version for version, is_over in zip(versions, [*over, False], strict=False) if not is_over]
    following = [*(version.position for version in versions[1:]), None]
    return [replace(version, until=until) for version, until in zip(versions, following, strict=True)]


def _in_order(facts: Iterable[Fact], settled: Version | None, ends: Ends) -> list[Fact]:
    """One fact for each position, and the end of every life that they belong to."""
    told: dict[str, Fact] = {}
    ended: set[tuple[str, str | None]] = set()
    lives = [] if settled is None or settled.captured_at is None else [(settled.position, settled.uuid)]
    for fact in facts:
        if fact.is_end:
            ended.add((fact.position, fact.uuid))
            continue
        lives.append((fact.position, fact.uuid))
        if (other := told.get(fact.position)) is None:
            told[fact.position] = fact
        else:
            images = [image for image in (fact.before, other.before) if image is not None]
            told[fact.position] = replace(min(fact, other, key=Fact.rank), before=min(images, default=None))
    for position, uuid in lives:
        if (end := ends.above(position, uuid)) is not None:
            ended.add((end, uuid))
    ending = [Fact(position, "d", uuid, None) for position, uuid in ended]
    return sorted([*told.values(), *ending], key=lambda fact: (fact.position, fact.is_end))


def _without_past(facts: Sequence[Fact]) -> list[Fact]:
    """*facts*, in order, without those that a deletion or the end of their life leaves behind."""
    kept: list[Fact] = []
    later: list[Fact] = []  # deletions above
    for fact in reversed(facts):
        if not any(not deletion.is_end or _same_life(fact.uuid, deletion.uuid) for deletion in later):
            kept.append(replace(fact, before=None) if fact.op == "d" else fact)
        if fact.op == "d":
            later.append(fact)
    return kept[::-1]


def _same_life(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


class _Walk:
    """Makes versions of facts that come in order."""

    def __init__(self, settled: Version | None, gaps: Sequence[Gap]) -> None:
        self.versions = [] if settled is None else [settled]
        self._gaps = gaps
        self._base = None if settled is None else _base_of(settled)
        """The newest version, as far as a patch may be folded onto it."""

    def take(self, fact: Fact) -> None:
        newest = self.versions[-1] if self.versions else None
        if fact.is_end:
            if newest is None or newest.deleted or _same_life(newest.uuid, fact.uuid):
                self.versions.append(
                    Version(fact.position, "d", fact.uuid or (None if newest is None else newest.uuid), None)
                )
            return
        alive = newest if newest is not None and not newest.deleted and _same_life(newest.uuid, fact.uuid) else None
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
    inexact = (
        None if version.exact else LOOKUP if version.patch is None else PATH
    )  # a document beside a patch was folded
    return Base(version.position, version.document, inexact)
