"""Random years of a collection: changes, compactions, erasures, moved offsets and crashes. No Spark.

Each document is a history of its own; many share one lake, because a MERGE of forty keys costs no more than one of
three. At any moment silver and a rebuild of bronze equal the source, without the documents that were erased and that
the source has not changed since. Of those bronze has no row.
Any failure replays with the seed that it prints: ``pytest tests/property --hypothesis-seed=…``.
"""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import pyarrow as pa
import pytest
from crashing import Countdown
from hypothesis import HealthCheck, Phase, given, settings
from lakehouse import compact, documents_in_source, settings_for
from pymongo import MongoClient
from pymongo.collection import Collection
from seeds import SEEDS
from spark_refused import WITHOUT_SPARK, refuse_spark

from strandline.bronze.erasure import ErasureRule
from strandline.control.erasures import Erasures, Request
from strandline.errors import ConfigurationError
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.erase.from_bronze import erase_from_bronze
from strandline.jobs.erase.hide import store_progress
from strandline.jobs.erase.places import Scope
from strandline.jobs.lake_context import DeltaRsContext, open_silver_without_spark
from strandline.jobs.maintenance import bronze_compaction
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset
from strandline.jobs.offsets.show_offset import offset_history
from strandline.jobs.reconcile.continuous import ContinuousProof, ProofStep
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.merge_rule import MergeRule
from strandline.model.namespaces import Namespace
from strandline.model.position import position_before, snapshot_position
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.silver.progress import BronzeLog
from strandline.source.client import operation_time

pytestmark = WITHOUT_SPARK
_A, _BRONZE = TableName("silver", "a"), bronze_table("test")
_DOCUMENTS = 40
# One example is a whole pipeline run: shrinking would take hours, and a slow machine is no failure.
_few = settings(deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)


@dataclass(frozen=True)
class WithoutSpark(DeltaRsContext):
    """A pipeline whose silver needs no Spark."""

    def with_spark(self) -> NoReturn:
        refuse_spark()


def oldest_unread(tables: DeltaRsTables, bronze: TableName, after: int, through: int) -> str | None:
    """As that of a purge, from the statistics of the files that were added."""
    log = LogFolder(tables.folder(bronze))
    actions = [action for version in range(after + 1, through + 1) for action in log.actions(version) or ()]
    added = [json.loads(one["add"]["stats"]) for one in actions if "add" in one and one["add"]["dataChange"]]
    oldest = min(filter(None, (one["minValues"].get("position") for one in added)), default=None)
    return None if oldest is None else position_before(oldest, 0)


class Years:
    """The life of a collection, and what the lake should have of it."""

    def __init__(self, ctx: WithoutSpark, collection: Collection[dict[str, Any]], chance: random.Random) -> None:
        self.ctx, self.collection, self.chance = ctx, collection, chance
        self.name = Namespace(collection.database.name, collection.name)
        self.commits, self.time = Countdown(), 0
        self.unchanged_since_erasure: set[str] = set()

    def live(self, operations: int) -> None:
        for _ in range(operations):
            self.change(f"person-{self.chance.randrange(_DOCUMENTS):03}")

    def change(self, person: str) -> None:
        self.time += 1
        this, value = {"_id": person}, self.chance.choice([self.time, [self.time, {"x": None}]])
        kind = self.chance.randrange(5)
        if kind == 0:
            changed = self.collection.delete_one(this).deleted_count
        elif kind < 3 or person in self.unchanged_since_erasure:  # an update alone would wait for a whole document
            changed = self.collection.replace_one(this, {"n": self.time, "v": value}, upsert=True).acknowledged
        else:
            changed = self.collection.update_one(this, {"$set": {"p": self.time}}, upsert=True).acknowledged
        if changed:
            self.unchanged_since_erasure.discard(person)

    def crash_and_repeat(self, job: Callable[[], object]) -> None:
        self.commits.until_it_ends(job, self.chance, commits=6)

    def capture(self) -> None:
        self.crash_and_repeat(lambda: run_capture(self.ctx.for_capture(), once=True))

    def merge(self) -> None:
        self.crash_and_repeat(lambda: run_silver(self.ctx))

    def compact(self) -> None:
        self.merge()  # a compaction waits for silver
        self.crash_and_repeat(lambda: compact(cast("JobContext", self.ctx)))

    def move_back(self) -> None:
        """Capture old events again."""
        earlier = self.chance.choice(offset_history(self.ctx, 20)).resume_token
        set_desired_state(self.ctx, "stopped", by="ops", why=None)
        with suppress(ConfigurationError):  # before the horizon
            alter_offset(self.ctx, str(earlier), by="ops", why=None)
        set_desired_state(self.ctx, "running", by="ops", why=None)

    def erase(self) -> None:
        """Erase some documents, which the source may still have, and whose deletion may not be captured yet."""
        self.collection.replace_one({"_id": "bystander"}, {"n": self.time}, upsert=True)
        run_capture(self.ctx.for_capture(), once=True)
        persons = {f"person-{number:03}" for number in self.chance.sample(range(_DOCUMENTS), 5)}
        for person in persons:
            if self.chance.random() < 0.7:
                self.collection.delete_one({"_id": person})
        if self.chance.random() < 0.5:
            self.collection.replace_one({"_id": "bystander"}, {"n": -self.time}, upsert=True)
            run_capture(self.ctx.for_capture(), once=True)
        at = snapshot_position(*operation_time(self.collection.database.client))
        scope = Scope(cast("JobContext", self.ctx), self.name, frozenset(map(json.dumps, persons)))
        request = Request(uuid.uuid4().hex, "test", self.name, scope.names, at, datetime.now(UTC), "ops", None)
        self.crash_and_repeat(lambda: self._hide(scope, request))
        self.unchanged_since_erasure |= persons

    def _hide(self, scope: Scope, request: Request) -> None:
        """As `hide`, for the tables of this lake."""
        Erasures(self.ctx.tables).add(request, scope.keys)
        run_silver(self.ctx)
        erase_from_bronze(scope, ErasureRule(scope.keys, scope.names))
        through = BronzeLog.of(self.ctx.tables, scope.bronze).newest()
        run_silver(self.ctx)
        store_progress(scope, through)
        table = MergeableTable.open(self.ctx.tables.folder(_A), "_key")
        assert table is not None
        rows, rule = pa.table({"_key": sorted(scope.keys)}), MergeRule(("_key",)).delete(when="true")
        assert table.merge(rows, rule, table.files) is not None

    def check(self) -> None:
        expected = documents_in_source(self.collection.database, "a")
        erased = [expected.pop(json.dumps(one)) for one in self.unchanged_since_erasure if json.dumps(one) in expected]
        rows = self.ctx.tables.folder(_A).table().to_pyarrow_table(columns=["_key", "_deleted", "_document"])
        live = {row["_key"]: row["_document"] for row in rows.to_pylist() if not row["_deleted"]}
        assert live == expected
        rebuilt = run_rebuild(self.ctx, "silver.a", dry_run=True)
        assert (rebuilt.missing, rebuilt.extra, rebuilt.different) == (0, 0, 0)
        if self.unchanged_since_erasure:
            keys = sorted(map(json.dumps, self.unchanged_since_erasure))
            assert self.ctx.tables.query(Query(_BRONZE).select("position").where(("key", "in", keys))) == []
        tokens = str(self.ctx.tables.query(Query(_BRONZE).select("resume_token", "position")))
        assert not [one for one in self.unchanged_since_erasure if one.encode().hex().upper() in tokens]
        steps, proof = list[ProofStep](), ContinuousProof(self.ctx, 10**6, repairs=False, rest=timedelta(0))
        self.crash_and_repeat(lambda: steps.append(proof.step(threading.Event())))
        (step,) = steps
        assert (step.documents, step.differences) == (len(expected) + len(erased), len(erased))


# promise 2
def years_converge(mongo_uri: str, mongo: MongoClient[dict[str, Any]], root: Path, seed: int) -> None:
    chance = random.Random(seed)
    database = mongo[f"y_{uuid.uuid4().hex[:10]}"]
    how = {
        "snapshot_chunk_size": chance.choice([10, 1000]),
        "max_batch_size": chance.choice([7, 50, 5000]),
        "mode": chance.choice(["change_streams", "change_streams_update_full"]),
    }
    opened = open_silver_without_spark(settings_for(mongo_uri, database.name, root, **how))
    assert opened is not None
    years = Years(WithoutSpark(opened.settings, opened.tables), database.a, chance)
    try:
        with pytest.MonkeyPatch.context() as patched:
            years.commits.counts_native_commits(patched)
            patched.setattr(bronze_compaction, "oldest_unread", oldest_unread)
            years.live(80)
            for step in range(6):
                years.capture()
                years.merge()
                years.live(30)
                event = (years.erase, years.compact, years.move_back, partial(years.live, 50))
                for act in chance.sample(event, 2) if step else (years.erase,):
                    act()
            # An event that is left out at the end of bronze would be one that the source still has after it.
            years.collection.replace_one({"_id": "bystander"}, {"n": years.time, "last": True}, upsert=True)
            years.capture()
            years.merge()
            years.check()
    finally:
        mongo.drop_database(database.name)


@settings(_few, max_examples=1)
@given(seed=SEEDS)
def test_forty_histories_with_erasures_compactions_and_crashes_converge(
    mongo_uri: str, mongo: MongoClient[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    years_converge(mongo_uri, mongo, tmp_path_factory.mktemp("years"), seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(5))  # so that every process takes its share
@settings(_few, max_examples=10)
@given(seed=SEEDS)
def test_two_thousand_histories_converge(
    mongo_uri: str, mongo: MongoClient[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory, part: int, seed: int
) -> None:
    years_converge(mongo_uri, mongo, tmp_path_factory.mktemp(f"years{part}"), seed)
