"""The web page on a lake that was written without a JVM. Pages that need a captured source: integration/test_ui.py."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import parsed
from documents import strandline_commands
from s3_server import free_port
from starlette.testclient import TestClient
from ui_lake import HOSTILE, add_tables, many_tables, read, watched, write_gold

from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.telemetry.live_log import LOG, RecentLog
from strandline.io.telemetry.live_state import CaptureState
from strandline.io.telemetry.metrics_server import serve
from strandline.model.tables import Lake
from strandline.settings.configuration import Settings
from strandline.settings.output import MetricsSettings
from strandline.web.pages import PAGES
from strandline.web.server import Access, application

TOKEN = "a-token-of-some-length"
LOCAL = Access.of("127.0.0.1", 8081, api=False, known_token=None)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("ui")
    add_tables(DeltaRsTables(Lake(root=str(folder / "lake"))))
    return Settings(
        source={"name": "test"},  # type: ignore[arg-type]  # why: pydantic builds the section
        lake={"root": str(folder / "lake")},  # type: ignore[arg-type]  # why: as above
        gold={"sql_dir": write_gold(folder / "gold")},  # type: ignore[arg-type]  # why: as above
        quality={"docs_dir": str(folder / "docs")},  # type: ignore[arg-type]  # why: as above
    )


@pytest.fixture(scope="module")
def browser(settings: Settings) -> Iterator[TestClient]:
    with TestClient(application(watched(settings), LOCAL, []), base_url="http://localhost") as client:
        yield client


def page(client: TestClient, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) < 30_000
    return answer.text


def row(text: str, name: str) -> list[str]:
    """The cells of a table's row."""
    found = re.search(rf"<tr>(?:(?!</tr>).)*{re.escape(name)}.*?</tr>", text, re.DOTALL)
    assert found, name
    return re.findall(r"<t[dh][^>]*>\s*(.*?)\s*</t[dh]>", found[0], re.DOTALL)


def test_silver_shows_what_the_log_says_and_what_was_counted(browser: TestClient) -> None:
    cells = row(text := read(browser, "/silver"), "silver.orders")
    assert cells[:7] == ["silver.orders", "3", "2", "1", "1", "0", "0"]
    assert cells[7] == "2026-11-25 08:00:00"
    assert cells[9] == "delta-rs"
    assert "1 tables · written by delta-rs 1 table" in text
    assert cells[-1] == "1", "schema changes"
    assert row(text, "new")[1] == "silver.orders"
    assert "<p>0 tables" in page(browser, "/silver?q=nothing")
    assert 'value="&#34;&gt;x"' in page(browser, "/silver?q=%22%3Ex")


def test_gold_says_what_is_stale_and_why(browser: TestClient) -> None:
    text = read(browser, "/gold")
    assert row(text, "gold.totals")[3] == "–", "nobody has written it"
    assert "first build" in row(text, "gold.totals")[4]
    assert "silver.nowhere not there yet" in row(text, "gold.late")[4]
    assert row(text, "gold.report")[5] == "gold.totals"
    assert text.count("<rect") == 5
    assert text.count('class="edge"') == 3


def test_quality_shows_the_newest_run_of_a_suite_and_held_rows(browser: TestClient) -> None:
    text = read(browser, "/quality")
    assert text.count("expect_column_values_to_not_be_null") == 2, "one expectation, twice in the suite"
    assert "failed" in row(text, "expect_column_values_to_not_be_null")[4]
    assert row(text, "silver.orders_quarantine")[:2] == ["silver.orders", "1"]


def test_a_page_shows_no_key_and_no_markup_of_the_source(browser: TestClient) -> None:
    for path in ("/dead-letters", "/reconcile", "/silver"):
        text = read(browser, path)
        assert HOSTILE not in text
        assert "&lt;script&gt;" in text
        assert "someone@example.com" not in text
    assert "key #" in read(browser, "/dead-letters")


def test_the_page_shows_reconcile_and_maintenance(browser: TestClient) -> None:
    text = read(browser, "/reconcile")
    assert "Open differences</dt><dd>1" in text
    assert "equal up to 2027-01-15 08:00:00 UTC; oldest: shop.&lt;script&gt;" in text
    assert "exact" in text
    text = read(browser, "/maintenance")
    assert "maintain has not run yet" not in text
    assert row(text, "silver.orders")[1] == "1"


def test_a_source_without_rows_is_told_with_the_next_command(browser: TestClient) -> None:
    for path in ("/", "/offsets", "/snapshots"):
        assert "strandline capture --once" in read(browser, path)


def test_the_log_of_the_running_capture_is_shown_as_text(settings: Settings) -> None:
    """The capture's endpoint is a real one, in this process."""
    port = free_port()
    serve(port, "127.0.0.1", {"source": "test"}, CaptureState())
    live = settings.model_copy(update={"metrics": MetricsSettings(port=port)})
    log = logging.getLogger("strandline.test_ui_pages")
    log.setLevel(logging.INFO)
    log.addHandler(LOG)
    try:
        log.info("first %s", HOSTILE)
        log.warning("second line\nforged")
        log.debug("not shown")
        with TestClient(application(watched(live), LOCAL, []), base_url="http://localhost") as client:
            text = read(client, "/log")
            newest, older = text.index("second line\\nforged"), text.index("first &lt;script&gt;")
            assert newest < older
            assert 'class="mark warning">WARNING' in text
            assert HOSTILE not in text
            assert "not shown" not in text
        for number in range(200):
            log.info("%d %s", number, "<" * 500)
        with TestClient(application(watched(live), LOCAL, []), base_url="http://localhost") as client:
            text = read(client, "/log")
            assert "199 &lt;" in text
            assert "150 &lt;" not in text, "a page has less than 30 KB"
    finally:
        log.removeHandler(LOG)


def test_without_a_served_log_the_page_shows_notifications(settings: Settings, browser: TestClient) -> None:
    text = read(browser, "/log")
    assert "<code>metrics.port</code> is set" in text
    assert "<h2>Notifications</h2>" in text
    silent = settings.model_copy(update={"metrics": MetricsSettings(port=free_port())})
    with TestClient(application(watched(silent), LOCAL, []), base_url="http://localhost") as client:
        assert "No capture of this source answers" in read(client, "/log")


def test_the_newest_lines_are_kept_and_long_ones_are_cut() -> None:
    kept = RecentLog(lines=3)
    for number in range(5):
        kept.handle(logging.LogRecord("a", logging.INFO, "f", 1, "%d %s", (number, "x" * 600), None))
    assert [line["text"][:2] for line in kept.newest_first()] == ["4 ", "3 ", "2 "]
    assert {len(line["text"]) for line in kept.newest_first()} == {500}


def test_every_command_that_a_page_shows_is_one(browser: TestClient) -> None:
    shown = 0
    for each in PAGES:
        for command in re.findall(r'<code class="command">(.*?)</code>', page(browser, each.path)):
            (arguments,) = strandline_commands(command.replace("&#39;", "'"))
            parsed(arguments)
            shown += 1
    assert shown > 25


def test_commands_repeat_the_options_of_the_command_line(settings: Settings) -> None:
    with TestClient(application(watched(settings), LOCAL, ["--target", "prod"]), base_url="http://localhost") as client:
        assert "strandline --target prod status --watch" in page(client, "/")


def test_headers_forbid_inline_code_and_other_hosts(browser: TestClient) -> None:
    answer = browser.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*src=)| style=| on\w+=|<style", answer.text)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.text)
    assert browser.get("/", headers={"host": "evil.example"}).status_code == 400
    assert browser.post("/").status_code == 405
    sizes = {
        name: len(browser.get(f"/static/{name}").content) for name in re.findall(r'/static/([\w.-]+)"', answer.text)
    }
    assert len(sizes) == 4
    assert len(answer.content) + sum(sizes.values()) < 100_000, sizes


def test_a_page_refreshes_itself_unless_told_not_to(browser: TestClient) -> None:
    assert 'hx-trigger="every 5s"' in page(browser, "/gold")
    assert "hx-trigger" not in page(browser, "/gold?refresh=off")


def test_elsewhere_than_on_loopback_a_token_is_required(settings: Settings) -> None:
    access = Access.of("0.0.0.0", 8081, api=False, known_token=None)
    assert access.token is not None
    assert access.url == f"http://0.0.0.0:8081/?token={access.token}"
    with TestClient(application(watched(settings), access, []), base_url="http://lake.internal") as client:
        assert client.get("/").status_code == 401
        assert client.get("/?token=wrong").status_code == 401
        assert client.get("/", headers={"Authorization": f"Bearer {access.token}"}).status_code == 200
        answer = client.get(f"/silver?q=a&token={access.token}", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/silver?q=a")
        assert "HttpOnly" in answer.headers["set-cookie"]
        assert access.token not in answer.headers["set-cookie"], "a browser sends it to every port of the machine"
        assert client.get("/").status_code == 200, "by the cookie"
        cookies = dict(client.cookies)
        assert client.get("/connectors").status_code == 401, "no API was asked for"
    other = replace(access, port=8082)
    with TestClient(application(watched(settings), other, []), base_url="http://lake.internal") as client:
        for name, value in cookies.items():
            client.cookies.set(name, value)
            client.cookies.set(name.replace("8081", "8082"), value)
        assert client.get("/").status_code == 401, "the cookie is of another port"
        client.cookies.clear()
        client.cookies.set("strandline_page_8082", str(access.token))
        assert client.get("/").status_code == 401, "the token is no cookie"


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.long)])
def test_many_tables_are_shown_page_by_page(settings: Settings, tmp_path: Path, count: int) -> None:
    tables = DeltaRsTables(Lake(root=str(tmp_path / "lake")))
    add_tables(tables)
    many_tables(tables, count)
    many = settings.model_copy(update={"lake": settings.lake.model_copy(update={"root": str(tmp_path / "lake")})})
    with TestClient(application(watched(many), LOCAL, []), base_url="http://localhost") as client:
        deadline = time.monotonic() + 120
        while f"{count + 1} tables" not in (text := client.get("/silver").text):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert f"page 1 of {-(-(count + 1) // 100)}" in text
        for path in ("/silver", "/silver?page=3", "/silver?q=t_04", "/maintenance", "/"):
            assert len(client.get(path).content) < 100_000
