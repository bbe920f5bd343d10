"""Generate docs/versions.md from tests/versions.yml: what `make test-mongo` saw on each version of MongoDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parent.parent
_HEAD: Final = """# MongoDB versions

MongoDB 4.4 is the oldest version that Strandline reads. An older server is refused at the start. The table shows what
the tests saw on four servers on {date} (`make test-mongo`; `make docs` generates this page). MongoDB 7.0 to 9.0 are
not refused; [they were read, not run](#read-not-run).

- **yes**: It works.
- **differs**: It works, in the way that the note below the table says.
- **refused**: The command ends at its start, with exit code 2 and the line in the note. Nothing is written. `…` stands
  for the version.

"""
_TAIL: Final = """
## Upgrades and downgrades

- Upgrade MongoDB in place below a lake: 4.4, 5.0, 6.0. Position, resume token and tables stay. No snapshot is needed
  (`versions/test_upgrades_in_place.py`).
- A running capture goes on. After an upgrade to 6.0 restart it: then events have the UUID of their collection. After a
  downgrade it opens its stream again with the options that the older server knows.
- After a downgrade below what the settings need, the next start is refused with one line. Nothing is written.
- A snapshot from MongoDB 4.4 marks its rows: `_inexact_because` is `capped` ([columns](columns.md#is-a-row-exact)). A
  snapshot from 5.0 or newer has no such mark.

## Read, not run

No server of these versions could be run here. On 2026-11-28 their sources, tests, release notes and trackers were read.
Tests hold the events and replies as literals.

- **7.0**: `movePrimary` shows the creation of the new UUID and the drop of the old one: the rows stay. The server
  adjusts its tickets: a snapshot slows down only while operations wait, where the server tells. Not proven: in which
  order a real `movePrimary` shows its events.
- **8.0 and 8.2**: `movePrimary` shows the creation alone. `reshardCollection` also comes after moveCollection,
  unshardCollection and rewriteCollection: the collection is read again. A capped collection is read at one moment. A
  read sends a time limit of 24 days, because `defaultMaxTimeMS` would end it. From 8.0.20 on an overloaded server
  refuses commands: they are retried, and a snapshot slows down. Not proven: whether `defaultMaxTimeMS` ends a change
  stream, and whether Atlas limits requests by default.
- **8.3**: `movePrimary` shows no event. `ingressRequestRateLimiterApplicationExemptions: strandline` exempts Strandline
  from the limit of requests.
- **9.0**: An upgrade renames the buckets of a time series to its name: no table is made. A token from before the start
  of a stream (a mongos of 9.0.0 to 9.0.2) is never committed. Not proven: whether that rename is shown at all.

Conditions that no code changes:

- A resume token of 7.0 and newer has another format. So has that of a stream that splits events
  (`cursor_oversize_handling_mode: split`; run on 6.0.27). Events that are read again after such a change have other
  positions: bronze and a history would have them twice. So `strandline offsets alter` moves no offset back over the
  change. It names the earliest time that it accepts.
- If a document is inserted on two shards with the same `_id`, a lookup may return the other one (SERVER-137213).
- Atlas Flex has no change streams, and DocumentDB and Cosmos DB lack features that capture uses. Before capture writes
  anything, it opens a change stream and resumes it, with the features that the settings need: post-batch resume token,
  `startAfter`, `showExpandedEvents` (6.0 and newer), `$changeStreamSplitLargeEvent` (mode `split`). A source that lacks
  one is refused, and the error names it. `strandline doctor` says the same. Amazon DocumentDB 5.0 has no
  `startAfter` (estuary/connectors#4592). Not proven: what the other services answer.

## Not tested

- MongoDB 7.0 to 9.0. `make test-against URI=…` runs tests on a server of yours. They create and drop databases there
  (`t_…`): do not use a production server. `MONGODB_MOVES=yes make test-against URI=…` also moves collections between
  the shards of a disposable cluster. The table at the end can be pasted into an issue.
- Real sharded clusters. Two simulations were tested. One is a replica set that answers `hello` as a mongos does
  (`integration/test_sharded.py`): shard keys, the identity of the cluster, the refusals. The other merges the events of
  two replica sets (`integration/test_shards.py`): clocks that differ, a restart between two shards, a document that
  moves, one `_id` on two shards, chunks in any order. Not tested: a real mongos, the balancer, a shard that is added,
  removed or away, an upgrade of a cluster.
- Atlas, DocumentDB, Cosmos DB, and MongoDB Enterprise.
"""
_WORDS: Final = {"works": "yes", "otherwise": "differs", "refused": "refused"}


def versions() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "tests" / "versions.yml").read_text(encoding="utf-8"))
    return found


def versions_page() -> str:
    """Return the text of docs/versions.md."""
    seen = versions()
    features: dict[str, dict[str, str]] = seen["features"]
    servers = list(next(iter(features.values())))
    notes: list[str] = []
    lines = [f"| what | {' | '.join(servers)} |", "|---" * (len(servers) + 1) + "|"]
    for feature, outcomes in features.items():
        cells = [_cell(outcomes[server], notes) for server in servers]
        lines.append(f"| {feature} | {' | '.join(cells)} |")
    listed = "".join(f"{number}. {note}\n" for number, note in enumerate(notes, 1))
    return _HEAD.format(date=seen["date"]) + "\n".join(lines) + f"\n\n## Notes\n\n{listed}" + _TAIL


def _cell(outcome: str, notes: list[str]) -> str:
    """Return the word for an outcome, and the number of its note. *notes* gets the note, if it is new."""
    word, _, text = outcome.partition(": ")
    if text and text not in notes:
        notes.append(text)
    return _WORDS[word] + (f" (note {notes.index(text) + 1})" if text else "")
