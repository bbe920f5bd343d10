"""Random histories of names: dropped, recreated, renamed onto each other, moved, filled by ``$out``; snapshots run.

Silver ends with the final content of each name, and a rebuild gives the same rows, also of compacted bronze. An archive
has the content of its collection at the drop. Late and repeated rows change nothing, although tombstones are purged.

Histories without a common name may share one bronze table: one run over all of them costs less than a run over each.
Any failure replays with the seed that it prints: ``pytest tests/property --hypothesis-seed=…``.
"""

from __future__ import annotations

import itertools
import json
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from lakehouse import all_in_silver, bronze, compact, purge, settings_for, with_silver
from pyspark.sql import SparkSession
from seeds import SEEDS

from strandline.bronze.bronze_properties import PROPERTIES
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import BRONZE_DDL, bronze_table
from strandline.model.tables import TableName
from strandline.model.tenants import bare_key, tenant_of

_TENANTS = "tenants"
# One example is a whole pipeline run: shrinking would take hours, and a slow machine is no failure.
_few = settings(deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)


class Names:
    """A simulated source: names, their collections, and the bronze rows of its history.

    Args:
        histories: Names of each history. A name is renamed only to another name of its history.
    """

    def __init__(self, chance: random.Random, *histories: Sequence[str]) -> None:
        self._chance, self._tick = chance, 0
        self._version = chance.choice(["7.0", "8.0", "8.3"])
        self._others = {
            name: [other for other in history if other != name] for history in histories for name in history
        }
        self.collections: dict[str, tuple[str, dict[int, dict[str, Any]]]] = {}
        self.streamed: list[dict[str, Any]] = []
        self.reads: list[tuple[int, list[dict[str, Any]]]] = []
        """READs of a whole collection or of a chunk, and the number of events streamed before the READs were taken."""
        self.archives: dict[str, dict[str, Any]] = {}
        """Documents of each dropped collection, by the name of its archive."""
        self._snapshots, self._chunks = 0, list[tuple[int, str, str]]()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            name = self._chance.choice(list(self._others))
            match self._chance.randrange(13):
                case 0 | 1 if name in self.collections:
                    self._named("drop", name, self._dropped(name))
                case 2 | 3 if name in self.collections:
                    self._rename(name, self._chance.choice(self._others[name]))
                case 4:
                    temporary = f"tmp.agg_out.{self._tick}"
                    for key in range(self._chance.randrange(1, 4)):
                        self._write(temporary, key)
                    self._rename(temporary, name)
                case 5 if name in self.collections:
                    self._move(name)
                case 6 if name in self.collections:
                    self._read(name)
                case 7:
                    self._snapshot()
                case _:
                    self._write(name, self._chance.randrange(5))

    def _write(self, name: str, key: int) -> None:
        uuid_, documents = self.collections.setdefault(name, (self._new_uuid(), {}))
        if key in documents and self._chance.random() < 0.3:
            del documents[key]
            self._land(name, uuid_, "d", "delete", key, {"operationType": "delete"})
            return
        op = "u" if key in documents else "c"
        if key in documents and self._chance.random() < 0.3:  # E4: an update without its document
            documents[key] = {**documents[key], "p": self._tick}
            description = {"updatedFields": {"p": self._tick}, "removedFields": [], "truncatedArrays": []}
            event = {"operationType": "update", "updateDescription": description}
            self._land(name, uuid_, "u", "update", key, event)
            return
        documents[key] = {"_id": key, "v": self._tick}
        self._land(
            name,
            uuid_,
            op,
            "replace" if op == "u" else "insert",
            key,
            {"operationType": "replace", "fullDocument": documents[key]},
        )

    def _rename(self, name: str, to: str) -> None:
        target = {"dropTarget": bson.Binary(bytes.fromhex(self._dropped(to)), 4)} if to in self.collections else {}
        self._named("rename", name, self.collections[name][0], to={"db": "db", "coll": to}, operationDescription=target)
        self.collections[to] = self.collections.pop(name)

    def _dropped(self, name: str) -> str:
        uuid_, documents = self.collections.pop(name)
        if documents:
            self.archives[f"{name}_dropped_{uuid_[:8]}"] = {str(key): document for key, document in documents.items()}
        return uuid_

    def _move(self, name: str) -> None:
        """Give a collection another UUID, as ``movePrimary`` does: up to 7.0, in 8.0, or since 8.3 without an event."""
        old, documents = self.collections[name]
        self.collections[name] = (new := self._new_uuid(), documents)
        if self._version < "8.3":
            self._named("create", name, new)
        if self._version == "7.0":
            self._named("drop", name, old)

    def _new_uuid(self) -> str:
        return uuid.UUID(int=self._chance.getrandbits(128)).hex

    def _named(self, kind: str, name: str, uuid_: str, **more: Any) -> None:
        event = {
            "operationType": kind,
            "ns": {"db": "db", "coll": name},
            "collectionUUID": bson.Binary(bytes.fromhex(uuid_), 4),
            **more,
        }
        self._land(name, uuid_, "ddl", kind, None, event)

    def _read(self, name: str, chunk: range | None = None) -> None:
        (uuid_, documents), position = self.collections[name], f"{self._tick:08x}{1:08x}:~"
        rows = [
            _bronze_row(name, uuid_, "r", "read", key, document, position)
            | ({} if chunk is None else {"snapshot_id": str(self._snapshots)})
            for key, document in documents.items()
            if chunk is None or key in chunk
        ]
        self.reads.append((len(self.streamed), rows))

    def _snapshot(self) -> None:
        """Plan a snapshot, two chunks of each collection; or read the next chunk of the snapshot that runs."""
        if not self._chunks:
            planned = [(low, name, uuid_) for name, (uuid_, _) in self.collections.items() for low in (0, 3)]
            chunks = [{"db": "db", "collection": name, "sweeps": True} for _, name, _ in planned]
            self._chunks, self._snapshots = planned, self._snapshots + bool(planned)
            if planned:
                self._control("plan", -1, {"complete": True, "at": [self._tick, 1], "chunks": chunks})
            self._planned = len(planned)
            return
        number, (low, name, uuid_) = self._planned - len(self._chunks), self._chunks.pop(0)
        by_uuid = [each for each, (own, _) in self.collections.items() if own == uuid_]  # as `find_incarnation`
        current = by_uuid[0] if by_uuid else name
        if current not in self.collections:
            self._control("discarded", number, {"selected": None}, name)
        else:
            self._read(current, range(low, low + 3))
            self._control("chunk", number, {}, current)
        if not self._chunks:
            self._control("completed", -1, {})

    def _control(self, kind: str, chunk: int, content: dict[str, Any], name: str = "") -> None:
        row = {"position": f"{self._tick:08x}{1:08x}:~", "op": "snapshot", "operation_type": kind, "db": "db"}
        more = {"collection": name, "after": json.dumps(content), "snapshot_id": str(self._snapshots), "chunk": chunk}
        self.reads.append((len(self.streamed), [row | more]))

    def _land(self, name: str, uuid_: str, op: str, kind: str, key: int | None, event: dict[str, Any]) -> None:
        self._tick += 1
        self.streamed.append(
            _bronze_row(name, uuid_, op, kind, key, event, f"{self._tick:08x}{1:08x}:82{self._tick:04x}")
        )


def _bronze_row(
    name: str, uuid_: str, op: str, kind: str, key: int | None, content: Mapping[str, Any], position: str
) -> dict[str, Any]:
    document = content if op == "r" else content.get("fullDocument")
    return {
        "position": position,
        "op": op,
        "operation_type": kind,
        "db": "db",
        "collection": name,
        "collection_uuid": uuid_,
        "key": None if key is None else str(key),
        "document_size": None if document is None else len(bson.encode(document)),
        "envelope": bson.encode(content),
    }


class Commit(NamedTuple):
    rows: list[dict[str, Any]]
    is_news: bool
    """False: every row has landed before, or was read before a row that has landed."""


def messy_commits(names: Names, chance: random.Random, commits: int, *, lap: int) -> list[Commit]:
    """Return the stream in its order, cut into commits.

    Each commit repeats fewer than *lap* events of the one before. At random places, and before the last commit, the
    offset is moved back and the stream is captured again. READs come at any place after the moment at which they were
    taken, and those of one snapshot in their order.
    """
    cuts = sorted(chance.sample(range(1, len(names.streamed)), commits - 1))
    bounds: list[tuple[int, int]] = []
    for number, (start, end) in enumerate(itertools.pairwise([0, *cuts, len(names.streamed)])):
        if start and (number == commits - 1 or chance.random() < 0.2):
            back = chance.randrange(start)
            bounds.append((back, start := chance.randint(back + 1, start)))
        bounds.append((max(0, start - chance.randrange(lap)), end))
    landed = []
    for batch, (start, end) in enumerate(bounds, 1):
        rows = [row | {"batch": batch} for row in names.streamed[start:end]]
        last_event, _, token = rows[-1]["position"].partition(":")
        rows[-1] |= {"resume_token": json.dumps({"_data": token}), "last_event": last_event}
        landed.append(Commit(rows, all(end > earlier for _, earlier in bounds[: batch - 1])))
    reached = dict[str | None, int]()
    for taken, reads in names.reads:
        snapshot = reads[0].get("snapshot_id") if reads else None
        first = next(number for number, (_, end) in enumerate(bounds) if taken <= end)
        if snapshot is not None:
            first = max(first, reached.get(snapshot, 0))
        at = reached[snapshot] = chance.randrange(first, len(landed))
        landed[at].rows.extend(reads)
    return landed


@pytest.mark.long
def test_a_chunk_that_lands_after_the_drop_of_a_name_that_nobody_knew_brings_nothing_to_life(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = Names(random.Random(1), "ab")
    names._write("a", 1)  # why: a history of four steps
    names._read("a")
    names._named("drop", "a", names.collections.pop("a")[0])
    names._write("b", 1)
    written, dropped, other = names.streamed
    ctx, land = bronze_of(spark, tmp_path)
    land(
        [dropped | {"batch": 1}, other | {"batch": 1, "resume_token": '{"_data": "82"}'}]
    )  # as under no_data: nobody saw the insert
    run_silver(ctx)
    land(names.reads[0][1])
    run_silver(ctx)
    found = found_in_silver(ctx, "ab")
    assert found["a"] == {}
    assert list(found["b"]) == ["1"]
    assert written["op"] == "c"


def bronze_of(spark: SparkSession, root: Path) -> tuple[JobContext, Callable[[list[dict[str, Any]]], None]]:
    """Return an empty bronze table, and a function that appends rows to it."""
    config = settings_for("mongodb://nowhere", "db", root)
    ctx = JobContext(config, spark, Tables(spark, config.lake_location))
    schema, table = schema_of(BRONZE_DDL), bronze_table("test")
    ctx.tables.create(table, schema, properties=PROPERTIES)

    def land(rows: list[dict[str, Any]]) -> None:
        filled = [tuple(row.get(column) for column in schema.names) for row in rows]
        ctx.tables.append(table, spark.createDataFrame(filled, schema).coalesce(1))

    return ctx, land


# promise 2; scenario: D06, H03, H04, H05, H07
def names_converge(
    spark: SparkSession,
    root: Path,
    seed: int,
    histories: Sequence[Sequence[str]],
    runs: int,
    *,
    are_tenants: bool = False,
) -> None:
    """Args: are_tenants: All names are one silver table."""
    chance = random.Random(seed)
    names, all_names = Names(chance, *histories), list(itertools.chain(*histories))
    names.live(120 * len(histories))
    ctx, land = bronze_of(spark, root)
    if archives := chance.random() < 0.5 and not are_tenants:
        ctx = with_silver(ctx, on_drop="archive")
    if are_tenants:
        ctx = with_silver(ctx, tables={_TENANTS: {"from": r"db\.(?P<name>.*)"}})
    commits = messy_commits(names, chance, runs, lap=10 * len(histories))
    living: dict[str, dict[str, Any]] = {}
    for commit, following in zip(commits, [*commits[1:], None], strict=True):
        land(commit.rows)
        run_silver(ctx)
        if following is None or not (
            commit.is_news and following.is_news
        ):  # looked at before what should change nothing, and after it
            before, living = living, found_in_silver(ctx, all_names)
            assert commit.is_news or living == before, seed
        for _ in range(chance.randrange(3)):
            purge(ctx)
    for name in all_names:
        _, documents = names.collections.get(name, ("", {}))
        assert living[name] == {str(key): document for key, document in documents.items()}, (name, seed)
    if archives:
        assert found_in_silver(ctx, names.archives) == names.archives, seed
    there = set(ctx.tables.names("silver"))
    tables = [name for name in (_TENANTS, *all_names) if TableName("silver", name) in there]
    if compacted := chance.random() < 0.7:
        before, removed = bronze(ctx).count(), compact(ctx, below=chance.choice(names.streamed)["position"]).rows
        assert bronze(ctx).count() == before - removed, seed
    for table in tables if compacted else chance.sample(tables, min(2, len(tables))):
        rebuilt = run_rebuild(ctx, table, dry_run=True)
        assert (rebuilt.missing, rebuilt.extra, rebuilt.different) == (0, 0, 0), (table, seed)


def found_in_silver(ctx: JobContext, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    there, names = set(ctx.tables.names("silver")), list(names)
    if TableName("silver", _TENANTS) in there:
        living = dict[str, dict[str, Any]]({name: {} for name in names})
        for key, document in all_in_silver(ctx, _TENANTS)[_TENANTS].items():
            living[tenant_of(key).collection][bare_key(key)] = bson.decode(document)
        return living
    found = all_in_silver(ctx, *(name for name in names if TableName("silver", name) in there))
    return {name: {key: bson.decode(raw) for key, raw in found.get(name, {}).items()} for name in names}


@settings(_few, max_examples=1)
@given(seed=SEEDS)
@pytest.mark.long
@pytest.mark.parametrize("are_tenants", [False, True], ids=["tables", "tenants"])
def test_drops_renames_and_moves_at_any_moment_converge(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, are_tenants: bool, seed: int
) -> None:
    names_converge(spark, tmp_path_factory.mktemp("names"), seed, ["ab"], runs=2, are_tenants=are_tenants)


@pytest.mark.long
@pytest.mark.parametrize("part", range(5))  # so that every process takes its share
@settings(_few, max_examples=1)
@given(seed=SEEDS)
def test_drops_renames_and_moves_at_any_moment_converge_at_length(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, part: int, seed: int
) -> None:
    histories = [[f"{name}{number}" for name in "abc"] for number in range(5)]
    names_converge(spark, tmp_path_factory.mktemp(f"names{part}"), seed, histories, runs=8, are_tenants=part == 4)
