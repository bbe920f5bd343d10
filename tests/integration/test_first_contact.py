"""The first contact with MongoDB: options of the URI, addresses that do not answer, servers that cannot be used."""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from examined import examined
from lakehouse import settings_for
from mongos_stand_in import Answers, mongos_before
from processes import wait_until
from pymongo.database import Database

from strandline.errors import ConfigurationError, RetriableError, StrandlineError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.deployment import inspect_deployment
from strandline.source.errors import NoAnswer
from strandline.source.mongod import EmbeddedMongod, free_ports, mongod_binary

Db = Database[dict[str, Any]]


def native(uri: str, database: str, root: Path, **capture: Any) -> DeltaRsContext:
    ctx = open_capture_without_spark(settings_for(uri, database, root, **{"engine": "native", **capture}))
    assert ctx is not None
    return ctx


def refusal(uri: str, *, seconds: float = 4) -> StrandlineError:
    options = ConnectionOptions(uri, server_selection_timeout_ms=int(seconds * 1000))
    with closing(open_client(options)) as client, pytest.raises(StrandlineError) as caught:
        inspect_deployment(client, uri)
    assert "\n" not in str(caught.value)
    assert caught.value.next_step
    return caught.value


@pytest.mark.parametrize(
    ("options", "unused"),
    [
        ("readConcernLevel=local&timeoutMS=50&tz_aware=false&nosuch=1", 4),
        ("readConcernLevel=snapshot&datetime_conversion=datetime_ms&unicode_decode_error_handler=ignore", 3),
        ("maxPoolSize=1&maxConnecting=1&waitQueueTimeoutMS=2000&maxIdleTimeMS=1&w=0&fsync=true&retryReads=false", 0),
        ("readPreference=nearest&localThresholdMS=0&serverMonitoringMode=poll&heartbeatFrequencyMS=500", 0),
        ("compressors=zlib&zlibCompressionLevel=9&uuidRepresentation=csharpLegacy&appName=x&directConnection=true", 0),
        ("readPreference=secondaryPreferred&readPreferenceTags=dc:ny&maxStalenessSeconds=90", 0),
    ],
)
def test_options_of_the_uri_do_not_change_what_capture_reads(
    mongo_uri: str, database: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture, options: str, unused: int
) -> None:
    database.a.insert_many([{"_id": number} for number in range(50)])
    ctx = native(f"{mongo_uri}&{options}", database.name, tmp_path)
    with caplog.at_level(logging.WARNING, "strandline.capture"):
        assert run_capture(ctx, once=True).documents == 50
    told = [message for message in caplog.messages if "no effect" in message]
    assert (sum(text.count(",") + 1 for text in told), len(told)) == (unused, min(unused, 1))
    database.a.update_one({"_id": 1}, {"$set": {"x": 1}})
    assert run_capture(ctx, once=True).events == 1
    findings = examined(ctx)
    assert findings["source.change_stream"].severity == "ok"
    assert ("configuration.unused" in findings) is bool(unused)


def test_an_option_that_the_driver_refuses_later_is_named(mongo_uri: str) -> None:
    for option in ("maxStalenessSeconds=5&readPreference=secondaryPreferred", "loadBalanced=true"):
        uri = mongo_uri.partition("?")[0] + f"?{option}"
        error = refusal(uri)
        assert isinstance(error, ConfigurationError)
        assert option.partition("=")[0] in error.message


def test_a_wrong_replica_set_name_is_refused_with_the_right_one(mongo_uri: str) -> None:
    for uri in (
        mongo_uri.replace("replicaSet=strandline", "replicaSet=other&directConnection=true"),
        mongo_uri.replace("=strandline", "=other"),
    ):
        error = refusal(uri, seconds=1)
        assert isinstance(error, ConfigurationError)
        assert "belongs to the replica set strandline, and replicaSet=other" in error.message
    with mongos_before(mongo_uri) as mongos:
        error = refusal(f"{mongos}?replicaSet=strandline", seconds=1)
    assert isinstance(error, ConfigurationError)
    assert "a sharded cluster (mongos), and replicaSet=strandline" in error.message


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("readPreference=secondary", "readPreference=secondary: "),
        ("readPreference=nearest&readPreferenceTags=dc:ny", "readPreference=nearest and readPreferenceTags dc:ny: "),
    ],
)
def test_a_read_preference_that_no_member_fits_is_refused(mongo_uri: str, options: str, wanted: str) -> None:
    error = refusal(f"{mongo_uri}&{options}", seconds=1)
    assert isinstance(error, ConfigurationError)
    assert f"no member fits {wanted}" in error.message
    assert "(primary)" in error.message


@contextmanager
def plain_mongod(folder: Path, *arguments: str) -> Iterator[int]:
    (port,) = free_ports(1)
    command = [str(mongod_binary()), "--dbpath", str(folder), "--port", str(port), "--bind_ip", "127.0.0.1"]
    server = subprocess.Popen(
        [*command, "--nounixsocket", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield port
    finally:
        server.kill()
        server.wait()


def test_a_standalone_server_is_told_with_and_without_a_replica_set_in_the_uri(tmp_path: Path) -> None:
    with plain_mongod(tmp_path) as port:
        for options in ("", "?replicaSet=r", "?directConnection=true&replicaSet=r"):
            error = refusal(f"mongodb://127.0.0.1:{port}/{options}", seconds=8)
            assert isinstance(error, ConfigurationError)
            assert "standalone" in error.message


def test_a_replica_set_that_is_not_initiated_yet_may_be_so_later(tmp_path: Path) -> None:
    with plain_mongod(tmp_path, "--replSet", "r") as port:
        for options in ("", "?replicaSet=r", "?directConnection=true"):
            error = refusal(f"mongodb://127.0.0.1:{port}/{options}", seconds=8)
            assert isinstance(error, RetriableError)
            assert "rs.initiate()" in error.next_step


class OtherName(EmbeddedMongod):
    """A set whose own name for its only member does not answer. The member does, under its address."""

    def _initiate(self) -> None:
        with mongos_before(f"mongodb://127.0.0.1:{self.ports[0]}", Answers(mongos=False, refused=())) as uri:
            self.name = uri.removeprefix("mongodb://").partition("/")[0]
            self._direct(0, "replSetInitiate", {"_id": "strandline", "members": [{"_id": 0, "host": self.name}]})
            self._wait_for(lambda: self._is_primary(0), "no primary was elected")


def test_a_member_whose_own_name_does_not_answer(tmp_path: Path) -> None:
    with OtherName() as server:
        for options in ("?replicaSet=strandline", "?replicaSet=strandline&readPreference=secondaryPreferred"):
            error = refusal(f"mongodb://127.0.0.1:{server.ports[0]}/{options}", seconds=1)
            assert isinstance(error, ConfigurationError)
            assert error.message.startswith(f"MongoDB answers at 127.0.0.1:{server.ports[0]}, but the replica set")
            assert f"calls this member {server.name}, which cannot be reached" in error.message
            assert "connection refused" in error.message
            assert "directConnection=true" in error.next_step
        ctx = native(f"mongodb://127.0.0.1:{server.ports[0]}/?directConnection=true", "shop", tmp_path)
        with open_client(ConnectionOptions(ctx.settings.source.uri.get_secret_value())) as client:  # type: ignore[union-attr]  # why: it is set
            client.shop.a.insert_one({"_id": 1})
        assert run_capture(ctx, once=True).documents == 1
        finding = examined(native(server.uri + "&serverSelectionTimeoutMS=1000", "shop", tmp_path))["source.connection"]
        assert (finding.severity, finding.exit_code) == ("error", 2)
        assert server.name in finding.found


@contextmanager
def closing_listener() -> Iterator[int]:
    """A server that closes every connection, as one does that wants TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close_all() -> None:
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=close_all, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_an_address_that_does_not_answer_is_named_with_its_reason() -> None:
    (port,) = free_ports(1)
    with closing_listener() as closed, socket.create_server(("127.0.0.1", 0)) as silent:
        expected = {
            f"127.0.0.1:{port}/": ("connection refused", "check the port"),
            "nosuch.invalid:27017/": ("the name cannot be resolved", "check the host"),
            f"127.0.0.1:{silent.getsockname()[1]}/?connectTimeoutMS=300": ("no answer in time", "firewalls"),
            f"127.0.0.1:{closed}/": ("the connection was closed", "tls=true"),
        }
        for address, (reason, step) in expected.items():
            error = refusal(f"mongodb://user:s3cret@{address}", seconds=1)
            assert isinstance(error, NoAnswer)
            assert f"MongoDB does not answer at {address.partition('/')[0]} ({reason})" in error.message
            assert step in error.next_step
            assert "s3cret" not in str(error)


def test_a_set_without_a_primary_is_told_by_its_members() -> None:
    with EmbeddedMongod(members=3) as server:
        server.kill(1)
        server.kill(2)
        with open_client(ConnectionOptions(f"mongodb://127.0.0.1:{server.ports[0]}/?directConnection=true")) as client:
            wait_until(lambda: not client.admin.command("hello")["isWritablePrimary"], seconds=60)
        error = refusal(server.uri, seconds=3)
    assert isinstance(error, NoAnswer)
    assert "no primary that can be reached" in error.message
    assert f"127.0.0.1:{server.ports[0]} (secondary)" in error.message
    assert f"127.0.0.1:{server.ports[1]} (connection refused)" in error.message


def test_the_first_contact_is_tried_again_by_a_service(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    uri = f"mongodb://127.0.0.1:{port}/?serverSelectionTimeoutMS=300"
    with pytest.raises(NoAnswer, match="connection refused"):
        run_capture(native(uri, "shop", tmp_path), once=True)
    quick = {"connect_backoff_initial_delay_ms": 10, "errors_retry_delay_max_ms": 20}
    with pytest.raises(NoAnswer), retries() as counted:
        run_capture(native(uri, "shop", tmp_path, start_attempts=3, **quick), once=True)
    assert len(counted) == 2
    with pytest.raises(NoAnswer), retries() as counted:
        run_capture(native(uri, "shop", tmp_path, connect_max_attempts=4, **quick))
    assert len(counted) == 3


@contextmanager
def retries() -> Iterator[list[str]]:
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "attempt" in record.getMessage():
                messages.append(record.getMessage())

    handler, logger = Collector(), logging.getLogger("strandline.source")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def test_a_capture_that_began_before_mongodb_captures_and_a_wrong_configuration_ends_it_at_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    uri, stop = f"mongodb://127.0.0.1:{port}/?replicaSet=strandline&serverSelectionTimeoutMS=300", threading.Event()
    landed: list[int] = []

    def report(_: str, count: int) -> None:
        landed.append(count)  # the document by the snapshot, or events of the collection and of the document, or both
        if count:
            stop.set()

    ctx = native(uri, "shop", tmp_path, connect_backoff_initial_delay_ms=100, errors_retry_delay_max_ms=100)
    began = threading.Thread(target=lambda: run_capture(ctx, stop=stop, report=report))
    began.start()
    time.sleep(1)
    with EmbeddedMongod(port=port) as server:
        with open_client(ConnectionOptions(server.uri)) as client:
            client.shop.a.insert_one({"_id": 1})
        began.join(60)
        assert not began.is_alive()
        assert sum(landed) >= 1
        with pytest.raises(ConfigurationError, match="replicaSet=other"), retries() as counted:
            run_capture(native(uri.replace("=strandline", "=other"), "shop", tmp_path / "other"))
        assert not counted
