"""`strandline init` on a MongoDB of one's own: it tests the connection, lists collections and writes files."""

from __future__ import annotations

import os
import pty
import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from guarded_server import guarded_server
from guarded_server import uri_of as guarded_uri
from typer.testing import CliRunner
from without_java import COMMAND, environment

from strandline.cli import app
from strandline.errors import ConfigurationError, RetriableError
from strandline.model.tables import safe_name
from strandline.settings.configuration import load_settings
from strandline.source.mongod import EmbeddedMongod
from strandline.source.overview import look_at

PASSWORD = "s3cret-canary-4711"
FIND = [{"resource": {"db": "shop", "collection": "orderLines"}, "actions": ["find", "changeStream"]}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMongod]:
    """A server that asks for credentials, with collections whose names are no plain words."""
    with guarded_server(tmp_path_factory.mktemp("key"), PASSWORD) as (running, client):
        for name, count in (("orderLines", 30), ("order-lines.v2", 20), ("Ünï cöde", 1), ("2020", 40)):
            client.shop[name].insert_many([{"_id": number} for number in range(count)])
        client.shop.command("create", "a_view", viewOn="orderLines", pipeline=[])
        client.crm.people.insert_one({})
        client.admin.command("createRole", "find_only", privileges=FIND, roles=[])
        for user, role in (("reader", {"role": "read", "db": "shop"}), ("finder", "find_only")):
            client.admin.command("createUser", user, pwd=PASSWORD, roles=[role])
        client.admin.command("createUser", "nobody", pwd=PASSWORD, roles=[])
        yield running


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory. No variable names a source."""
    monkeypatch.chdir(tmp_path)
    for name in ("STRANDLINE_SOURCE__URI", "MONGODB_URI"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


uri_of = partial(guarded_uri, password=PASSWORD)


def refusal(*arguments: str) -> str:
    refused = CliRunner().invoke(app, ["init", "new", *arguments])
    assert isinstance(refused.exception, ConfigurationError | RetriableError), refused.output
    assert not Path("new").exists()
    return str(refused.exception)


def test_the_project_captures_the_database_and_its_uri_is_in_a_file_of_its_owner(server: EmbeddedMongod) -> None:
    uri = uri_of(server, "root")
    done = CliRunner().invoke(app, ["init", "my shop", "--uri", uri, "--database", "shop"])
    assert done.exit_code == 0, done.output
    assert "2 databases, 5 collections" in done.output
    assert "a_view" not in done.output
    assert PASSWORD not in done.output
    assert done.output.splitlines()[-3:] == [
        "next     cd 'my shop'",
        "         strandline run --once",
        "         strandline sql 'select * from silver.`2020` limit 10'",
    ]
    os.chdir("my shop")
    settings = load_settings("local", Path("conf"))
    assert (settings.source.name, settings.capture.target) == ("shop", "shop")
    file = Path(str(settings.source.uri_file))
    assert (file.read_text().strip(), stat.S_IMODE(file.stat().st_mode)) == (uri, 0o600)
    assert file.name in Path(".gitignore").read_text().split()
    others = [path.read_text() for path in Path().rglob("*") if path.is_file() and path != file]
    assert PASSWORD not in "".join(others)
    checked = CliRunner().invoke(app, ["doctor", "--offline"])
    assert (checked.exit_code, "1 views and tables" in checked.output) == (0, True), checked.output


@pytest.mark.parametrize(
    ("collection", "named"),
    [
        ("orderLines", "orderLines"),
        ("order-lines.v2", "`order-lines.v2`"),
        ("Ünï cöde", safe_name("Ünï cöde")),
        ("2020", "`2020`"),
        ("orders", "orders"),
    ],
)
def test_a_collection_is_named_as_mongodb_has_it(server: EmbeddedMongod, collection: str, named: str) -> None:
    arguments = ["--uri", uri_of(server, "reader"), "--database", "shop", "--collection", collection]
    done = CliRunner().invoke(app, ["init", *arguments])
    assert done.exit_code == 0, done.output
    assert ("note" in done.output) == (collection == "orders"), "it is not there, and may come"
    assert f"'select * from silver.{named} limit 10'" in done.output
    checked = CliRunner().invoke(app, ["doctor", "--offline"])
    assert (checked.exit_code, "1 cases" in checked.output) == (0, True), checked.output


def test_a_uri_in_the_environment_gets_no_file(server: EmbeddedMongod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONGODB_URI", uri_of(server, "reader", database="shop"))
    done = CliRunner().invoke(app, ["init"])
    assert (done.exit_code, Path(".mongodb-uri").exists(), "export" in done.output) == (0, False, False), done.output
    assert load_settings("local", Path("conf")).source.is_configured


def test_an_earlier_projects_files_stay(server: EmbeddedMongod) -> None:
    Path("conf").mkdir()
    Path("conf/local.yml").write_text("lake: {root: mine}\n")
    done = CliRunner().invoke(app, ["init", "--uri", uri_of(server, "reader")])
    assert "kept     conf/local.yml" in done.output
    assert "export STRANDLINE_SOURCE__URI=" in done.output, "no setting names the file of the URI"
    assert (Path("conf/local.yml").read_text(), Path(".mongodb-uri").exists()) == ("lake: {root: mine}\n", False)


@pytest.mark.parametrize(
    ("user", "database", "collections", "denied"),
    [
        ("reader", None, ["2020", "orderLines", "order-lines.v2", "Ünï cöde"], ()),
        ("finder", "shop", ["orderLines"], ()),
        ("finder", None, ["orderLines"], ()),
        ("nobody", None, [], ()),
        ("nobody", "shop", [], ("shop",)),
    ],
)
def test_a_user_sees_what_it_has_rights_to(
    server: EmbeddedMongod, user: str, database: str | None, collections: list[str], denied: tuple[str, ...]
) -> None:
    source = look_at(uri_of(server, user), database=database)
    assert ([each.name for each in source.collections], source.denied) == (collections, denied)


def test_an_unclear_or_refused_source_is_one_line_and_no_file(server: EmbeddedMongod) -> None:
    assert refusal("--uri", uri_of(server, "root")) == ("databases of the source: shop, crm → name one with --database")
    assert "none that the user may list → name one with --database" in refusal("--uri", uri_of(server, "nobody"))
    assert "refused the credentials" in refusal("--uri", uri_of(server, "root").replace(PASSWORD, "wrong"))
    assert "does not answer" in refusal("--uri", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100")


class Person:
    """Somebody at a terminal who answers questions."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True, cwd=folder, env=environment(folder)
        )
        os.close(theirs)
        self.shown = self.unread = ""

    def reads(self, text: str) -> None:
        while text not in self.unread:
            self.unread += os.read(self._ours, 4096).decode()
        self.shown += self.unread
        self.unread = self.unread.partition(text)[2]

    def answers(self, question: str, answer: str) -> None:
        self.reads(question)
        os.write(self._ours, f"{answer}\n".encode())

    def leaves(self) -> int:
        code = self.process.wait(timeout=60)
        os.close(self._ours)
        return code


def test_a_terminal_is_asked_for_the_uri_until_mongodb_answers(server: EmbeddedMongod, folder: Path) -> None:
    person = Person([str(COMMAND), "init", "shop"], folder)
    person.answers("(not shown; empty: later): ", uri_of(server, "root").replace(PASSWORD, "wrong"))
    person.reads("refused the credentials")
    person.answers("(not shown; empty: later): ", uri_of(server, "root"))
    person.answers("MongoDB database to capture [shop]: ", "crm")
    person.answers("Name of the source [crm]: ", "")
    person.answers("One of its collections, for the first gold view [people]: ", "")
    person.answers("catalog:NAME of Unity Catalog [lake]: ", "")
    person.reads("select * from silver.people")
    assert (person.leaves(), PASSWORD in person.shown) == (0, False)
    base = yaml.safe_load((folder / "shop" / "conf" / "base.yml").read_text(encoding="utf-8"))
    assert base == {"source": {"name": "crm"}, "capture": {"scope": "database", "target": "crm"}}
