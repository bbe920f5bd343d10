"""Credentials in files: replaced while capture runs, and what is wrong with them in one line."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from guarded_server import guarded_server
from lakehouse import settings_for
from pymongo import MongoClient

from strandline.errors import ConfigurationError, StrandlineError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.jobs.source_connection import connection_options
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table
from strandline.settings.configuration import Settings, SourceSettings
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.connection_errors import opening_error
from strandline.source.credentials import ConnectionMonitor, Credentials, CredentialsReplaced
from strandline.source.deployment import inspect_deployment
from strandline.source.errors import CredentialsRefused
from strandline.source.mongod import EmbeddedMongod, configured_uri

pytestmark = pytest.mark.skipif(
    configured_uri() is not None, reason="needs a server with users and certificates of its own, the embedded one"
)

Client = MongoClient[dict[str, Any]]
OLD, NEW = "old:p@ss/wörd", "new%20p@ss"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[EmbeddedMongod, Client]]:
    """A server with users, and a client of its administrator."""
    with guarded_server(tmp_path, "root", data_dir=tmp_path / "data") as guarded:
        yield guarded


def native(root: Path, database: str, **source: str) -> DeltaRsContext:
    plain = settings_for("mongodb://unused/", database, root)
    named = SourceSettings(name="test", server_selection_timeout_ms=1500, **source)  # type: ignore[arg-type]  # why: pydantic converts the URI
    capture = plain.capture.model_copy(
        update={"connect_backoff_initial_delay_ms": 200, "errors_retry_delay_max_ms": 500}
    )
    ctx = open_capture_without_spark(plain.model_copy(update={"source": named, "capture": capture}))
    assert ctx is not None
    return ctx


def replace(file: Path, content: str) -> None:
    """As secret stores do: a new file takes the old one's place."""
    new = file.with_suffix(".new")
    new.write_text(content, encoding="utf-8")
    new.replace(file)


@contextmanager
def capturing(ctx: DeltaRsContext) -> Iterator[Callable[[int], None]]:
    """A running capture. Yields a function that waits until bronze holds so many inserts, each once."""
    stop, failures = threading.Event(), []

    def run() -> None:
        try:
            run_capture(ctx, stop=stop)
        except StrandlineError as error:
            failures.append(error)

    def wait(count: int) -> None:
        deadline, query = time.monotonic() + 180, Query(bronze_table("test")).select("key").where(("op", "=", "c"))
        while time.monotonic() < deadline and not failures:
            found = [row["key"] for row in ctx.tables.query(query)]
            if len(found) >= count:
                assert sorted(map(int, found)) == list(range(1, count + 1))
                return
            time.sleep(0.1)
        raise AssertionError(failures or f"no {count} inserts")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield wait
    finally:
        stop.set()
        thread.join(60)
    assert failures == []


@pytest.mark.parametrize("kind", ["password", pytest.param("user", marks=pytest.mark.long)])
def test_a_replaced_password_is_used_by_the_next_connection(
    guarded: tuple[EmbeddedMongod, Client], tmp_path: Path, kind: str
) -> None:
    """MongoDB has the new password first, the connections break, and the file follows."""
    server, administrator = guarded
    roles = [{"role": "read", "db": "shop"}]
    administrator.admin.command("createUser", "app", pwd=OLD, roles=roles)
    administrator.shop.a.insert_one({"_id": 0})
    file = tmp_path / "secret"
    if kind == "password":
        file.write_text(f"{OLD}\n", encoding="utf-8")
        uri = server.uri.replace("mongodb://", "mongodb://app@") + "&authSource=admin"
        ctx = native(tmp_path / "lake", "shop", uri=uri, password_file=str(file))
    else:
        uri = server.uri.replace("mongodb://", "mongodb://{}@") + "&authSource=admin"
        file.write_text(uri.format("app:old%3Ap%40ss%2Fw%C3%B6rd"), encoding="utf-8")
        ctx = native(tmp_path / "lake", "shop", uri_file=str(file))
    assert run_capture(ctx, once=True).documents == 1
    with capturing(ctx) as wait:
        administrator.shop.a.insert_one({"_id": 1})
        wait(1)
        if kind == "password":
            administrator.admin.command("updateUser", "app", pwd=NEW)
        else:
            administrator.admin.command("createUser", "app2", pwd=NEW, roles=roles)
            administrator.admin.command("dropUser", "app")
        server.kill()
        server.restart()
        time.sleep(3)
        replace(file, f"{NEW}\n" if kind == "password" else uri.format("app2:new%2520p%40ss"))
        administrator.shop.a.insert_one({"_id": 2})
        wait(2)
    assert run_capture(ctx, once=True).events == 0


def test_replaced_certificates_are_used_by_the_next_connection(tmp_path: Path) -> None:
    """Another authority issues all certificates anew. The files of the client keep their names."""
    authorities = [Authority(tmp_path, name) for name in ("first", "second")]
    for authority in authorities:
        folder = tmp_path / authority.file.stem
        folder.mkdir()
        for name in ("server", "strandline"):
            shutil.move(authority.issue(name), folder)
        shutil.copy(authority.file, folder / "authority.pem")
    used = shutil.copytree(tmp_path / "first", tmp_path / "used")
    files = ["--tlsCertificateKeyFile", str(used / "server.pem"), "--tlsCAFile", str(used / "authority.pem")]
    arguments = ["--tlsMode", "preferTLS", "--tlsAllowConnectionsWithoutCertificates", *files]
    with EmbeddedMongod(data_dir=tmp_path / "data", extra_args=arguments) as server, Client(server.uri) as plain:
        roles = [{"role": "read", "db": "shop"}]
        plain["$external"].command("createUser", "CN=strandline,O=of strandline", roles=roles)
        plain.shop.a.insert_one({"_id": 0})
        options = f"tlsCAFile={used}/authority.pem&tlsCertificateKeyFile={used}/strandline.pem"
        ctx = native(tmp_path / "lake", "shop", uri=f"{server.uri}&tls=true&authMechanism=MONGODB-X509&{options}")
        assert run_capture(ctx, once=True).documents == 1
        with capturing(ctx) as wait:
            plain.shop.a.insert_one({"_id": 1})
            wait(1)
            server.kill()
            for name in ("server.pem", "authority.pem"):
                shutil.copy(tmp_path / "second" / name, used / name)
            server.restart()
            time.sleep(3)
            Path(shutil.copy(tmp_path / "second" / "strandline.pem", tmp_path / "new")).replace(used / "strandline.pem")
            plain.shop.a.insert_one({"_id": 2})
            wait(2)


def test_a_wrong_password_at_the_start_is_one_line(guarded: tuple[EmbeddedMongod, Client], tmp_path: Path) -> None:
    server, _ = guarded
    (tmp_path / "secret").write_text(OLD, encoding="utf-8")
    uri = server.uri.replace("mongodb://", "mongodb://app@") + "&authSource=admin"
    ctx = native(tmp_path / "lake", "shop", uri=uri, password_file=str(tmp_path / "secret"))
    began = time.monotonic()
    with pytest.raises(CredentialsRefused, match="wrong, expired or replaced") as refused:
        run_capture(ctx, once=True)
    assert time.monotonic() - began < 20, "nobody waits for credentials that never worked"
    assert OLD not in str(refused.value)
    assert not ctx.tables.exists(bronze_table("test"))


def test_an_expired_certificate_is_one_line(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    expired = authority.issue("strandline", expired=True)
    files = ["--tlsCertificateKeyFile", str(authority.issue("server")), "--tlsCAFile", str(authority.file)]
    with EmbeddedMongod(
        extra_args=["--tlsMode", "preferTLS", "--tlsAllowConnectionsWithoutCertificates", *files]
    ) as server:
        options = f"tls=true&authMechanism=MONGODB-X509&tlsCAFile={authority.file}&tlsCertificateKeyFile={expired}"
        ctx = native(tmp_path / "lake", "shop", uri=f"{server.uri}&{options}")
        with pytest.raises(CredentialsRefused, match="the client's certificate expired at 20") as refused:
            run_capture(ctx, once=True)
        assert "\n" not in str(refused.value)
        assert not ctx.tables.exists(bronze_table("test"))


@pytest.mark.parametrize(
    ("mechanism", "extra"), [("MONGODB-AWS&authSource=$external", "aws"), ("GSSAPI&authSource=$external", "kerberos")]
)
def test_a_mechanism_without_its_package_names_the_extra(mongo_uri: str, mechanism: str, extra: str) -> None:
    uri = mongo_uri.replace("mongodb://", "mongodb://user:secret@") + f"&authMechanism={mechanism}"
    options = ConnectionOptions(uri, server_selection_timeout_ms=3000)
    with pytest.raises(ConfigurationError, match=rf"\[{extra}\]") as refused, open_client(options) as client:
        inspect_deployment(client)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ({"uri": "mongodb://u@h/", "password_file": "missing"}, "source.password_file cannot be read: missing"),
        ({"uri_file": "missing"}, "source.uri_file cannot be read: missing"),
        ({"uri_file": "empty"}, "source.uri_file is empty"),
        ({"uri": "mongodb://h/", "password_file": "secret"}, "the MongoDB URI names no user"),
        ({"uri": "mongodb://u:p@h/", "password_file": "secret"}, "the MongoDB URI holds a password, too"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: dict[str, str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "secret").write_text("x")
    with pytest.raises(ConfigurationError, match=line) as refused:
        connection_options(Settings(source=source))  # type: ignore[arg-type]  # why: pydantic builds the section
    assert refused.value.next_step


def test_a_monitor_waits_only_for_credentials_that_once_worked(tmp_path: Path) -> None:
    file, stop = tmp_path / "uri", threading.Event()
    file.write_text("mongodb://u:a@h/")
    refused = CredentialsRefused("refused")
    monitor = ConnectionMonitor(Credentials(uri_file=str(file)), wait_seconds=2)
    assert not monitor.may_go_on(refused, stop)
    monitor.connected = True
    assert not monitor.may_go_on(ConfigurationError("another"), stop)
    began = time.monotonic()
    assert not monitor.may_go_on(refused, stop)
    assert time.monotonic() - began >= 2
    file.unlink()
    monitor.before_retry()  # in the middle of a replacement
    file.write_text("mongodb://u:b@h/")
    assert monitor.may_go_on(refused, stop)
    with pytest.raises(CredentialsReplaced):
        monitor.before_retry()


def test_a_monitor_waits_for_a_certificate_that_is_missing_here_and_not_for_one_that_a_worker_lacks(
    tmp_path: Path,
) -> None:
    file, stop = tmp_path / "ca.pem", threading.Event()
    file.write_text("a")
    uri = f"mongodb://h/?tlsCAFile={file}"
    missing, credentials = (
        opening_error(uri, FileNotFoundError(2, "No such file or directory", str(file))),
        Credentials(uri=uri),
    )
    began = time.monotonic()
    assert not ConnectionMonitor(credentials, wait_seconds=60, connected=True).may_go_on(missing, stop)
    assert time.monotonic() - began < 30
    file.unlink()
    monitor = ConnectionMonitor(credentials, wait_seconds=60, connected=True)
    coming = threading.Timer(1, lambda: file.write_text("b"))
    coming.start()
    assert monitor.may_go_on(missing, stop)
    coming.join()
    assert not Credentials(uri_file=str(tmp_path / "gone")).has_tls_files  # and no error in the middle of a replacement
