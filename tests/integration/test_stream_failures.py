"""The change stream under failpoints of the server: every event once and in order, or one clear error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import bson
import pytest
from pymongo import MongoClient
from stream_reading import QUICK, Db, dropping, failing, needs_failpoints, reading

from strandline.bronze.event import parse_event
from strandline.bronze.offsets import Committed
from strandline.errors import ConfigurationError, ResumePointLost, RetriableError, StrandlineError
from strandline.io.telemetry.live_state import CaptureState
from strandline.jobs.capture.history_loss import HistoryLossHandler
from strandline.jobs.capture.oversize_events import OversizeEvents
from strandline.jobs.capture_session import CaptureSession
from strandline.settings.capture import CaptureSettings
from strandline.source.change_stream import StreamReader
from strandline.source.client import ConnectionOptions, close_client, open_client
from strandline.source.mongod import EmbeddedMongod
from strandline.source.oplog import Oplog
from strandline.source.resume import ResumePoint
from strandline.source.retry_policy import RetryPolicy
from strandline.source.stages import Images, Selection
from strandline.source.stream_opening import StreamLimits, token_at

pytestmark = needs_failpoints

# 13388 needs details that a failpoint cannot give.
_LABELLED = (6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13435, 13436)
_UNLABELLED = (43, 50, 134, 136, 175, 211, 216, 237, 246, 317, 11601)


# scenario: F01, F03, F05, F09, G09
@pytest.mark.check
def test_after_each_retriable_cursor_error_every_event_is_read_once(
    mongo_uri: str, mongo: MongoClient[Any], database: Db
) -> None:
    with reading(mongo_uri, database) as stream:
        expected: list[int] = []
        for number, code in enumerate((*_LABELLED, *_UNLABELLED, None)):
            how = {"closeConnection": True} if code is None else {"errorCode": code}
            with failing(mongo, "getMore", 2, **how):
                database.a.insert_many([{"_id": 2 * number}, {"_id": 2 * number + 1}])
                expected += [2 * number, 2 * number + 1]
                assert stream.until(len(expected)) == expected, code


def test_a_killed_operation_is_asked_for_again(mongo_uri: str, mongo: MongoClient[Any], database: Db) -> None:
    ours = [{"$currentOp": {}}, {"$match": {"op": "getmore", "ns": {"$regex": f"^{database.name}[.]"}}}]
    with reading(mongo_uri, database) as stream:
        for number in range(5):
            next(stream.batches)
            killed = next(operation for _ in range(1000) for operation in mongo.admin.aggregate(ours))
            mongo.admin.command("killOp", op=killed["opid"])
            database.a.insert_one({"_id": number})
            assert stream.until(number + 1) == list(range(number + 1))


# scenario: F06, F08, F12
@pytest.mark.parametrize("how", [{"errorCode": 216}, {"errorCode": 91}, {"closeConnection": True}])
def test_a_failure_at_the_first_aggregate_passes(
    mongo_uri: str, mongo: MongoClient[Any], database: Db, how: dict[str, Any]
) -> None:
    with reading(mongo_uri, database) as stream, failing(mongo, "aggregate", 3, **how):
        database.a.insert_one({"_id": 1})
        assert stream.until(1) == [1]


# scenario: F03, F07, P04, G05
@pytest.mark.parametrize(
    ("command", "code", "kind"),
    [
        ("getMore", 286, ResumePointLost),
        ("aggregate", 260, ResumePointLost),
        ("getMore", 13, ConfigurationError),
        ("getMore", 2, ConfigurationError),
    ],
)
def test_terminal_errors_are_not_retried(
    mongo_uri: str, mongo: MongoClient[Any], database: Db, command: str, code: int, kind: type[StrandlineError]
) -> None:
    with reading(mongo_uri, database) as stream, failing(mongo, command, "alwaysOn", errorCode=code):
        started = time.monotonic()
        with pytest.raises(kind, match=str(code)) as ended:
            stream.until(1)
        assert time.monotonic() - started < 5
        assert ended.value.next_step


def test_retries_are_bounded_and_progress_resets_their_count(
    mongo_uri: str, mongo: MongoClient[Any], database: Db
) -> None:
    with reading(
        mongo_uri, database, retry_policy=RetryPolicy(max_retries=2, initial_delay_ms=5, max_delay_ms=20)
    ) as stream:
        for number in range(3):
            with failing(mongo, "getMore", 2, errorCode=237):  # two failures in a row are allowed, and then again two
                database.a.insert_one({"_id": 2 * number})
                stream.until(2 * number + 1)
            # The event may have come before the two failures: only an event after them resets their count.
            database.a.insert_one({"_id": 2 * number + 1})
            stream.until(2 * number + 2)
        with failing(mongo, "getMore", "alwaysOn", errorCode=237), pytest.raises(RetriableError, match="237"):
            stream.until(7)


# scenario: F08, G04
def test_connections_that_are_lost_again_and_again_use_the_attempts_up(mongo_uri: str, database: Db) -> None:
    """A proxy drops large answers. Without its documents the event would pass: its size is not the cause."""
    retry_policy = RetryPolicy(connect_max_attempts=6, initial_delay_ms=5, max_delay_ms=20)
    with dropping(mongo_uri, answers_above=500_000) as uri, reading(uri, database, retry_policy=retry_policy) as stream:
        database.a.insert_one({"_id": 1, "heavy": "x" * 1_000_000})
        with pytest.raises(RetriableError, match="AutoReconnect"):
            stream.until_silent(seconds=20)


# scenario: F08
@pytest.mark.parametrize("failures", [8, 12])
def test_a_quiet_stream_goes_on_after_lost_connections(
    mongo_uri: str, mongo: MongoClient[Any], database: Db, failures: int
) -> None:
    """*failures* counts commands: the driver itself retries some of them."""
    with reading(mongo_uri, database) as stream, failing(mongo, "getMore aggregate", failures, closeConnection=True):
        for _ in range(5):
            stream.wait_at_most(seconds=15)
            assert next(stream.batches).events == ()
        database.a.insert_one({"_id": 1})
        assert stream.until(1) == [1]


# scenario: J02, J06, J10
@pytest.mark.check
def test_an_event_the_server_cannot_send_is_passed_and_no_other_is_lost(mongo_uri: str, database: Db) -> None:
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    heavy = "x" * (9 * 1024 * 1024)
    with reading(
        mongo_uri, database, StreamLimits(retry_limit=1), images=Images("updateLookup", "whenAvailable")
    ) as stream:
        database.a.insert_one({"_id": 0})
        database.a.insert_one({"_id": 1, "heavy": heavy})
        database.a.update_one({"_id": 1}, {"$set": {"heavy": heavy[:-1]}})
        database.a.insert_one({"_id": 2})
        database.a.replace_one({"_id": 1}, {"_id": 1, "heavy": heavy})
        database.a.insert_one({"_id": 3, "largest": "x" * (16 * 1024 * 1024 - 40)})
        database.a.insert_one({"_id": 4})
        assert stream.until(7) == [0, 1, 1, 2, 1, 3, 4]
        marked = [number for number, event in enumerate(stream.events) if "_leftOut" in event]
        assert [
            (stream.events[number]["operationType"], stream.events[number].get("fullDocument")) for number in marked
        ] == [
            ("update", None),
            ("replace", None),
        ]
        asides = [aside for batch in stream.landed for aside in batch.oversize_events]
        assert [(aside.refused_by_server, aside.attempts) for aside in asides] == [(True, 3), (True, 3)]


def test_without_a_retry_limit_an_event_that_cannot_be_sent_is_read_until_it_can_be(
    mongo_uri: str, database: Db
) -> None:
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    with reading(
        mongo_uri, database, StreamLimits(retry_limit=-1), images=Images("updateLookup", "whenAvailable")
    ) as stream:
        database.a.insert_one({"_id": 1, "heavy": "x" * (9 * 1024 * 1024)})
        database.a.update_one({"_id": 1}, {"$set": {"n": 1}})
        stream.until(1)
        time.sleep(2)  # the reader asks for the event again and again
        database.a.update_one({"_id": 1}, {"$unset": {"heavy": 1}})  # the lookup finds a small document from now on
        assert stream.until(3) == [1, 1, 1]
        assert [aside for batch in stream.landed for aside in batch.oversize_events] == []


# scenario: J09
def test_an_id_whose_token_is_too_large_beside_its_event_is_passed(mongo_uri: str, database: Db) -> None:
    with reading(mongo_uri, database) as stream:
        for number in range(5):  # one that happens to come beside a later token, a small one, is sent as it is
            database.a.insert_one({"_id": f"{number}" + "k" * (3 * 1024 * 1024)})
            assert [key[0] for key in stream.until(number + 1)] == [str(before) for before in range(number + 1)]
            refused = [aside.refused_by_server for batch in stream.landed for aside in batch.oversize_events]
            if refused:
                break
        database.a.insert_one({"_id": "last"})
        assert stream.until(number + 2)[-1] == "last"
        assert refused == [True]


# scenario: R01, R04
def test_batches_stay_below_their_limit_and_a_full_queue_loses_no_event(mongo_uri: str, database: Db) -> None:
    with reading(mongo_uri, database, StreamLimits(max_batch_size=7)) as stream:
        database.a.insert_many([{"_id": number} for number in range(100)])
        stream.until(1)
        time.sleep(1)  # the writer is busy: one batch is ready, and the source keeps the others
        assert stream.until(100) == list(range(100))
        assert max(len(batch.events) for batch in stream.landed) == 7


# scenario: R01
def test_while_a_batch_is_being_written_the_next_one_is_read_and_no_other(
    mongo_uri: str, mongo: MongoClient[Any], database: Db
) -> None:
    def read() -> int:
        idle = mongo.admin.aggregate([{"$currentOp": {"idleCursors": True}}, {"$match": {"cursor.tailable": True}}])
        return sum(
            operation["cursor"]["nDocsReturned"]
            for operation in idle
            if operation["ns"].startswith(f"{database.name}.")
        )

    with reading(mongo_uri, database, StreamLimits(max_batch_size=7)) as stream:
        next(stream.batches)  # the server does not count what comes with the opening
        database.a.insert_many([{"_id": number} for number in range(100)])
        stream.until(1)
        time.sleep(1)  # the writer is busy
        assert read() == len(stream.events) + 7
        stream.until(2 * len(stream.events))
        time.sleep(1)
        assert read() == len(stream.events) + 7


# scenario: B05
def test_a_stream_from_a_time_begins_with_the_event_of_that_time(mongo_uri: str, database: Db) -> None:
    with reading(mongo_uri, database) as stream:
        database.a.insert_many([{"_id": number} for number in range(3)])
        stream.until(3)
        at = stream.events[1]["clusterTime"]
        again = StreamReader(
            stream.client, stream.selection, ResumePoint(cluster_time=(at.time, at.inc)), expanded_events=False
        )
        with closing(again.batches()) as batches:
            first = next(batch for batch in batches if batch.events)
        assert bson.decode(first.events[0])["documentKey"] == {"_id": 1}


# scenario: E11
@pytest.mark.parametrize("read", [0, 1, 3])
def test_a_reader_that_is_closed_leaves_no_cursor_behind(
    mongo_uri: str, mongo: MongoClient[Any], database: Db, read: int
) -> None:
    """Close the reader while it waits for an event, between two events, or while it reads large events."""

    def cursors() -> int:
        idle = mongo.admin.aggregate([{"$currentOp": {"idleCursors": True}}, {"$match": {"cursor.tailable": True}}])
        return sum(1 for operation in idle if operation["ns"].startswith(f"{database.name}."))

    with reading(mongo_uri, database, StreamLimits(max_batch_size=1)) as stream:
        for number in range(2 * read):
            database.a.insert_one({"_id": number, "heavy": "x" * 3_000_000})
        assert stream.until(read) == list(range(read))
        next(stream.batches)
        assert any(cursors() == 1 for _ in range(100)), "one that is just being asked may not be listed"
        started = time.monotonic()
        stream.batches.close()
        assert time.monotonic() - started < 5
        assert cursors() == 0


# scenario: R07
@pytest.mark.parametrize("goes_away", [EmbeddedMongod.kill, EmbeddedMongod.pause])
def test_a_reader_whose_source_is_away_asks_whether_to_go_on_and_ends_within_seconds(
    goes_away: Callable[[EmbeddedMongod], None],
) -> None:
    answers: list[bool] = []

    def goes_on() -> bool:
        answers.append(len(answers) < 2)
        return answers[-1]

    with EmbeddedMongod() as server:
        client, selection = open_client(ConnectionOptions(server.uri), raw=True), Selection("database", "t")
        start = ResumePoint(token=token_at(client, selection, expanded_events=False))
        batches = StreamReader(client, selection, start, expanded_events=False).batches(goes_on)
        for _ in range(6):
            next(batches)
        assert answers == [], "a source that is there answers, however quiet it is"
        goes_away(server)
        started = time.monotonic()
        assert [batch.events for batch in batches if batch.events] == []
        close_client(client)
        assert time.monotonic() - started < 10
    assert answers == [True, True, False]


# scenario: F03
def test_commands_beside_the_stream_wait_for_an_election(mongo_uri: str, mongo: MongoClient[Any], database: Db) -> None:
    nothing: Any = None
    database.a.insert_one({"_id": 1})
    with reading(mongo_uri, database) as found:
        database.a.update_one({"_id": 1}, {"$set": {"n": 1}})
        found.until(1)
        (event,) = (event for batch in found.landed for event in batch.events)
        token, settings = found.landed[-1].resume_token, CaptureSettings(cursor_oversize_handling_mode="skip")
        options, stop = ConnectionOptions(mongo_uri), threading.Event()
        oplog, last = Oplog(found.client, found.selection, expanded_events=False), Committed(1, token, None)
        session = CaptureSession(
            state=CaptureState(),
            writer=nothing,
            options=options,
            client=found.client,
            oplog=oplog,
            deployment=nothing,
            selection=found.selection,
            settings=settings,
            gate=nothing,
            notifications=nothing,
            report=nothing,
            retry_policy=QUICK,
            stop=stop,
        )
        database.a.delete_one({"_id": 1})
        with failing(mongo, "aggregate", times=5, errorCode=11602):
            assert HistoryLossHandler(session).check_token(last, token) == last
        with failing(mongo, "listCollections find", times=5, errorCode=11602):
            OversizeEvents(session)._append_document(parse_event(event))  # the document is gone: nothing to append
