"""Restore: collections as they were at a moment, in a second deployment or in BSON files, byte for byte."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from lakehouse import documents_in_source, land, pipeline, with_silver
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError, ContractError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset
from strandline.jobs.restore.run_restore import RestoreResult, run_restore
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.source.mongod import EmbeddedMongod

Db = Database[dict[str, Any]]
Client = MongoClient[dict[str, Any]]
State = dict[str, dict[str, bytes]]
MOMENTS = 20
NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def other_uri() -> Iterator[str]:
    """A deployment that was never captured."""
    with EmbeddedMongod() as server:
        yield server.uri


@pytest.fixture
def other(other_uri: str, database: Db) -> Iterator[Db]:
    with MongoClient[dict[str, Any]](other_uri) as client:
        yield client[database.name]
        client.drop_database(database.name)


def state_of(database: Db) -> State:
    return {name: documents_in_source(database, name) for name in sorted(database.list_collection_names())}


def operation_time(client: Client) -> str:
    time = client.admin.command("ping")["operationTime"]
    return f"{time.time},{time.inc}"


def files_of(folder: Path, database: str) -> State:
    raw: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
    state: State = {}
    for file in sorted((folder / database).glob("*.bson")):
        with file.open("rb") as content:
            documents = {str(one["_id"]): bytes(one.raw) for one in bson.decode_file_iter(content, raw)}
        assert json.loads(file.with_name(f"{file.stem}.metadata.json").read_text())["collectionName"] == file.stem
        state[file.stem] = documents
    return state


class History:
    """Random changes: writes, transactions, drops and renames."""

    def __init__(self, client: Client, database: Db, seed: int) -> None:
        self._client, self._database, self._random = client, database, random.Random(seed)

    def step(self) -> None:
        kind = self._random.choices(("write", "transaction", "drop", "rename"), (6, 2, 1, 1))[0]
        collection = self._database[self._random.choice(NAMES)]
        if kind == "write":
            self._write(collection, None)
        elif kind == "transaction":
            for name in NAMES:  # 4.4 and newer create it inside, too; not the point here
                self._database[name].update_one({"_id": 0}, {"$inc": {"n": 1}}, upsert=True)
            with self._client.start_session() as session, session.start_transaction():
                for name in NAMES:
                    self._write(self._database[name], session)
        elif kind == "drop":
            collection.drop()
        elif collection.name in self._database.list_collection_names():
            target = self._random.choice([name for name in NAMES if name != collection.name])
            collection.rename(target, dropTarget=True)

    def _write(self, collection: Any, session: Any) -> None:
        for _ in range(4):
            key, number = self._random.randrange(12), self._random.randrange(10**6)
            kind = self._random.choice(("set", "set", "push", "replace", "delete"))
            if kind == "delete":
                collection.delete_one({"_id": key}, session=session)
            elif kind == "replace":
                collection.replace_one({"_id": key}, {"v": number, "t": "é" * (number % 7)}, True, session=session)
            else:
                change = {"$set": {f"s.{number % 5}": number}} if kind == "set" else {"$push": {"l": number}}
                collection.update_one({"_id": key}, change, True, session=session)


def restore(ctx: JobContext, as_of: str, database: Db, to: str | Path, **more: Any) -> RestoreResult:
    return run_restore(ctx, as_of=as_of, collections=[rf"{database.name}\..*"], to=to, **more)


@pytest.mark.parametrize(
    ("origin", "count"), [("bronze", 4), ("history", 3), pytest.param("bronze", MOMENTS, marks=pytest.mark.long)]
)
def test_moments_of_a_random_history_come_back_byte_for_byte(
    spark: SparkSession,
    mongo: Client,
    mongo_uri: str,
    database: Db,
    other: Db,
    other_uri: str,
    tmp_path: Path,
    origin: str,
    count: int,
) -> None:
    """Nested updates of a server before 6.1 have two readings: the likely one is right here (reason ``path``)."""
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake", mode="change_streams")
    ctx = with_silver(ctx, history="scd2") if origin == "history" else ctx
    history, moments = History(mongo, database, seed=7), dict[str, State]()
    history.step()
    run_capture(ctx, once=True)
    for number in range(count):
        for _ in range(3):
            history.step()
        moments[operation_time(mongo)] = state_of(database)
        if number % 7 == 0:
            run_capture(ctx, once=True)
    history.step()
    land(ctx) if origin == "history" else run_capture(ctx, once=True)
    for number, (moment, state) in enumerate(moments.items()):
        folder = tmp_path / str(number)
        result = restore(ctx, moment, database, folder if number % 2 else other_uri, allow_inexact=True)
        assert (files_of(folder, database.name) if number % 2 else state_of(other)) == state, moment
        assert {one.origin for one in result.collections} == {origin}
        assert {one.reason for one in result.inexact} <= {"path", "lookup or path"}
        assert sum(one.documents for one in result.collections) == sum(map(len, state.values()))
        other.client.drop_database(other.name)


def refused(ctx: JobContext, as_of: str, database: Db, to: str | Path, **more: Any) -> str:
    with pytest.raises(ConfigurationError) as refusal:
        restore(ctx, as_of, database, to, **more)
    return str(refusal.value)


def test_bad_arguments_and_full_targets_are_refused_and_nothing_is_written(
    spark: SparkSession, mongo: Client, mongo_uri: str, database: Db, other: Db, other_uri: str, tmp_path: Path
) -> None:
    ctx, folder = (
        pipeline(spark, mongo_uri, database.name, tmp_path / "lake", mode="change_streams"),
        tmp_path / "files",
    )
    before = operation_time(mongo)
    database.orders.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    database.late.insert_one({"_id": 1})
    now = operation_time(mongo)
    assert "bronze does not hold the source up to --as-of" in refused(ctx, now, database, folder)
    assert "bronze does not hold" in refused(ctx, "2999-01-01", database, folder)
    run_capture(ctx, once=True)
    assert "is no time and no cut" in refused(ctx, "yesterday", database, folder)
    assert "there is no cut 7 of this source" in refused(ctx, "7", database, folder)
    assert f"bronze does not hold {database.name}.orders whole" in refused(ctx, before, database, folder)
    with pytest.raises(ConfigurationError, match="there was no collection of that name"):
        run_restore(ctx, as_of=now, collections=["other"], to=folder)
    assert "holds what BSON cannot" in refused(ctx, now, database, folder, keys=["{"])
    assert "1 of the documents of --key did not exist" in refused(ctx, now, database, folder, keys=["1", "2"])
    with pytest.raises(ConfigurationError, match="is no regular expression"):
        run_restore(ctx, as_of=now, collections=["("], to=folder)
    assert "the target is the captured source" in refused(ctx, now, database, mongo_uri)
    assert "late is not" in refused(ctx, now, database, mongo_uri, into_source=["late"])
    other.orders.insert_one({"_id": 5})
    assert f"the target is not empty: {database.name}.orders" in refused(ctx, now, database, other_uri)
    assert ([*state_of(other)], folder.exists()) == (["orders"], False)
    with pytest.raises(ContractError, match="the target holds 2 documents"):  # a document of someone else
        restore(ctx, now, database, other_uri, resume=True)
    folder.mkdir()
    (folder / "own.txt").touch()
    assert "the target is not empty: own.txt" in refused(ctx, now, database, folder)
    database.orders.drop()
    database.late.drop()
    result = restore(ctx, now, database, mongo_uri, into_source=[database.name])
    assert [(one.documents, one.is_definition_whole) for one in result.collections] == [(1, True), (1, False)]
    assert state_of(database).keys() == {"orders", "late"}


def test_a_moment_after_lost_events_is_refused_until_a_snapshot_has_read_the_collection(
    spark: SparkSession, mongo: Client, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake", mode="change_streams")
    database.orders.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    database.orders.insert_one({"_id": 2})
    whole = operation_time(mongo)
    run_capture(ctx, once=True)
    database.orders.delete_one({"_id": 2})
    set_desired_state(ctx, "stopped", by="test", why=None)
    alter_offset(ctx.for_capture(), "now", by="test", why=None)
    set_desired_state(ctx, "running", by="test", why=None)
    database.orders.update_one({"_id": 1}, {"$set": {"n": 1}})
    run_capture(ctx, once=True)
    lost = operation_time(mongo)
    run_capture(ctx, once=True)
    assert "changes of any collection are missing" in refused(ctx, lost, database, tmp_path / "no")
    result = restore(ctx, lost, database, tmp_path / "inexact", allow_inexact=True)
    assert [(one.key, one.is_written) for one in result.inexact] == [("1", True), ("2", True)]
    restore(ctx, whole, database, tmp_path / "whole")
    assert files_of(tmp_path / "whole", database.name)["orders"].keys() == {"1", "2"}
    send_signal(
        ctx, "execute-snapshot", {"type": "incremental", "data-collections": [rf"{database.name}\.orders"]}, by="t"
    )
    run_capture(ctx, once=True)
    database.orders.insert_one({"_id": 3})
    healed, state = operation_time(mongo), state_of(database)
    run_capture(ctx, once=True)
    restore(ctx, healed, database, tmp_path / "healed")
    assert files_of(tmp_path / "healed", database.name) == state


def test_indexes_options_and_masks_are_restored_and_an_interrupted_restore_is_resumed(
    spark: SparkSession, mongo: Client, mongo_uri: str, database: Db, other: Db, other_uri: str, tmp_path: Path
) -> None:
    masks = {"field_mask_list": [f"{database.name}.orders.card"]}
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake", mode="change_streams", **masks)
    run_capture(ctx, once=True)
    validator = {"n": {"$gte": 0}}
    database.create_collection("orders", validator=validator)
    database.orders.create_index("n", unique=True, name="by_n")
    database.orders.create_index("gone")
    database.orders.insert_many([{"_id": number, "n": number, "card": "4711"} for number in range(5)])
    database.orders.insert_one({"_id": 5, "n": -1, "card": "4712"}, bypass_document_validation=True)
    database.orders.drop_index("gone_1")
    moment = operation_time(mongo)
    database.orders.drop()
    run_capture(ctx, once=True)
    (result,) = restore(ctx, moment, database, tmp_path / "files").collections
    assert (result.documents, result.indexes, result.is_definition_whole) == (6, 1, True)
    metadata = json.loads((tmp_path / "files" / database.name / "orders.metadata.json").read_text())
    assert [index["name"] for index in metadata["indexes"]] == ["_id_", "by_n"]
    files = files_of(tmp_path / "files", database.name)["orders"]
    assert b"471" not in b"".join(files.values())

    other.orders.insert_one(bson.decode(files["3"]))  # an interrupted restore has written one document
    assert "the target is not empty" in refused(ctx, moment, database, other_uri)
    assert restore(ctx, moment, database, other_uri, resume=True).collections == (result,)
    assert state_of(other)["orders"] == files
    assert other.orders.index_information()["by_n"]["unique"]
    other.client.drop_database(other.name)
    restore(ctx, moment, database, other_uri, keys=["3"])
    assert other.orders.options()["validator"] == validator
    assert state_of(other)["orders"] == {"3": files["3"]}
