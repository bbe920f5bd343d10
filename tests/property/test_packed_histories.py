"""Two thousand random histories in many collections of one bronze table: silver equals the source.

A failure replays with the seed that it prints: ``pytest tests/property/test_packed_histories.py -m long
--hypothesis-seed=…``.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from crashing import CrashingTables, until_it_ends
from hypothesis import HealthCheck, Phase, given, settings
from lakehouse import COMPATIBILITY, assert_equal_to_source, bronze, pipeline, purge
from pymongo import DeleteOne, MongoClient, ReplaceOne, UpdateOne
from pymongo.database import Database
from pyspark.sql import SparkSession
from seeds import SEEDS

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.send_signal import send_signal

_COLLECTIONS, _KEYS = (200, 10) if COMPATIBILITY == "portable" else (50, 40)  # Spark merges every native table
_VALUES = (1, 2.5, "text", None, [1, {"a": 2}], {"b": [True]}, 2**40)


class Histories:
    """Histories of *_KEYS* documents in each collection. A seed always gives the same histories."""

    def __init__(self, database: Database[dict[str, Any]], seed: int) -> None:
        self.database, self._chance = database, random.Random(seed)
        self.names = [f"c{number}" for number in range(_COLLECTIONS)]

    def live(self, names: list[str]) -> None:
        """Change each document of *names* about once, sometimes in a transaction.

        Some collections end and begin again.
        """
        for name in self._chance.sample(names, len(names)):
            if self._chance.random() < 0.03:
                self.database.drop_collection(name)
            changes = [self._change() for _ in range(_KEYS)]
            if self._chance.random() < 0.2:
                self.database[name].update_one(
                    {"_id": 0}, {"$inc": {"n": 1}}, upsert=True
                )  # a transaction makes no collection of its own
                with self.database.client.start_session() as session, session.start_transaction():
                    self.database[name].bulk_write(changes, session=session)
            else:
                self.database[name].bulk_write(changes)

    def _change(self) -> Any:
        key = {"_id": self._chance.randrange(_KEYS)}
        match self._chance.randrange(5):
            case 0:
                return DeleteOne(key)
            case 1:
                return ReplaceOne(key, {"v": self._chance.choice(_VALUES)}, upsert=True)
            case 2:
                return UpdateOne(key, {"$unset": {"log": 1}, "$set": {"v": self._chance.choice(_VALUES)}}, upsert=True)
            case _:
                return UpdateOne(key, {"$inc": {"n": 1}, "$push": {"log": self._chance.randrange(9)}}, upsert=True)


# promises 1 and 2; scenario: A01, C07, D06, D09, E01, E03, H03, I06, T08
@pytest.mark.long
@settings(
    deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None, max_examples=1
)
@given(seed=SEEDS)
def test_thousands_of_histories_in_many_collections_converge(
    spark: SparkSession,
    mongo_uri: str,
    mongo: MongoClient[dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    seed: int,
) -> None:
    chance, database = random.Random(seed), mongo[f"packed_{uuid.uuid4().hex[:10]}"]
    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path_factory.mktemp("packed"),
        engine=chance.choice(["spark", "native"]),
        mode=chance.choice(["change_streams", "change_streams_update_full"]),
        max_batch_size=chance.choice([300, 5000]),
    )
    tables = CrashingTables(spark, ctx.tables.lake)
    tables.counts_native_commits(monkeypatch)
    crashing, histories = JobContext(ctx.settings, spark, tables), Histories(database, seed)
    try:
        histories.live(histories.names[: _COLLECTIONS * 3 // 4])  # the others begin later
        beside = threading.Thread(target=histories.live, args=(histories.names,))
        beside.start()
        until_it_ends(lambda ending: run_capture(ending, once=True), crashing, chance)
        beside.join()
        before = show_offset(ctx).resume_token
        until_it_ends(run_silver, crashing, chance, commits=400)

        histories.live(histories.names)
        send_signal(ctx, "execute-snapshot", {"data-collections": [rf"{database.name}\.c\d*[05]"]}, by="ops")
        until_it_ends(lambda ending: run_capture(ending, once=True), crashing, chance)
        until_it_ends(purge, crashing, chance)
        set_desired_state(ctx, "stopped", by="ops", why="a test")
        alter_offset(ctx, before or "", by="ops", why="all of it again")
        set_desired_state(ctx, "running", by="ops", why=None)
        histories.live(histories.names)
        until_it_ends(lambda ending: run_capture(ending, once=True), crashing, chance)
        until_it_ends(run_silver, crashing, chance, commits=400)
        run_capture(ctx, once=True)
        run_silver(ctx)
        there = sorted(database.list_collection_names())
        assert len(there) == _COLLECTIONS
        assert_equal_to_source(ctx, database, *there)
        rows = bronze(ctx).where("collection IS NOT NULL").count()
        record_property(
            "found",
            f"{_COLLECTIONS * _KEYS:,} histories in {len(there)} collections, "
            f"{rows:,} rows of bronze: equal; seed {seed}",
        )
    finally:
        mongo.drop_database(database.name)
