"""The web page and the site of the documentation in a real Chromium: no error in the console, no finding of axe,
keyboard, three widths, light and dark, and no request to another host.

Not in `make test`: Chromium is a program of the machine, which no Python package brings. UI_PICTURES=docs/pictures
keeps the screenshots of the documentation.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from documents import ROOT
from lakehouse import settings_for
from playwright.sync_api import Browser, Page, Response, sync_playwright
from pymongo import MongoClient
from ui_lake import add_tables, watched, write_gold

from strandline.control.sources import set_state
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import open_capture_without_spark
from strandline.settings.configuration import Settings
from strandline.settings.output import GoldSettings
from strandline.settings.ui import UiSettings
from strandline.web.pages import PAGES
from strandline.web.server import Access, application

Client = MongoClient[dict[str, Any]]
WIDE = {"width": 1440, "height": 900}
SCREENS = {"phone": {"width": 390, "height": 844}, "tablet": {"width": 768, "height": 1024}, "desk": WIDE}
_PICTURES = {
    ("/", "desk", "light"): "ui-now.png",
    ("/", "phone", "dark"): "ui-phone.png",
    ("/gold", "desk", "light"): "ui-gold.png",
    ("/silver", "tablet", "light"): "ui-silver.png",
}
REPOSITORY = "https://example.org/us/strandline"
_LARGEST = 100_000
_MOST_SCREENS = 4
"""Maximum height of a page, in screens."""


@pytest.fixture(scope="module")
def settings(mongo_uri: str, mongo: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("ui")
    shop = mongo["ui_browser"]
    shop["orders"].insert_many([{"_id": number} for number in range(20)])
    found = settings_for(mongo_uri, shop.name, folder / "lake", engine="native", snapshot_max_threads=1).model_copy(
        update={
            "gold": GoldSettings(sql_dir=write_gold(folder / "gold")),
            "ui": UiSettings(interval_ms=1000, preview_rows=20),
        }
    )
    ctx = open_capture_without_spark(found)
    assert ctx is not None
    run_capture(ctx, once=True)
    shop["orders"].update_many({}, {"$set": {"a": 1}})
    run_capture(ctx, once=True)
    add_tables(DeltaRsTables(found.lake_location))
    yield found
    mongo.drop_database(shop.name)


@contextmanager
def served(settings: Settings) -> Iterator[tuple[str, Callable[[], None]]]:
    """Address of a real server, and the function that ends it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        app = application(watched(settings), Access.of("127.0.0.1", port, api=False, known_token=None), [])
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()

        def end() -> None:
            server.should_exit = True
            thread.join(30)

        try:
            yield f"http://127.0.0.1:{port}", end
        finally:
            end()


@pytest.fixture(scope="module")
def address(settings: Settings) -> Iterator[str]:
    with served(settings) as (at, _):
        yield at


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert program is not None, "no Chromium on the PATH: scripts/places.sh installs Debian's"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def opened(chromium: Browser, address: str, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """A page, and what went wrong in it: errors in the console, and requests to another host or without success."""
    context = chromium.new_context(viewport=options.pop("viewport", WIDE), bypass_csp=False, **options)
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("response", lambda got: wrong.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    page.on("request", lambda asked: None if asked.url.startswith(address) else wrong.append(asked.url))
    yield page, wrong
    context.close()


def go(page: Page, url: str) -> None:
    """Open *url* and wait until the lake has been read for it."""
    page.goto(url)
    await_true(page, "!document.body.innerText.includes('Reading the lake')")


def await_true(page: Page, expression: str) -> None:
    """Wait until *expression* holds. `wait_for_function` would need the `eval` that the policy forbids."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(100)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_no_page_has_an_error_a_finding_of_axe_or_a_scroll_sideways(
    chromium: Browser, address: str, screen: str, scheme: str
) -> None:
    with opened(chromium, address, viewport=SCREENS[screen], color_scheme=scheme) as (page, wrong):
        for path in (*(each.path for each in PAGES), "/table/silver.orders"):
            go(page, address + path)
            page.wait_for_timeout(1_500)  # a refresh, too
            axe = Axe().run(page)
            assert axe.violations_count == 0, f"{path}: {axe.generate_report()}"
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
            assert page.evaluate("document.documentElement.scrollHeight") < _MOST_SCREENS * SCREENS[screen]["height"]
            if (name := _PICTURES.get((path, screen, scheme))) and (kept := os.environ.get("UI_PICTURES")):
                page.screenshot(path=Path(kept) / name)
        assert wrong == []


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Address of the site of the documentation, which is built now."""
    for command in (["-m", "scripts.site"], ["-m", "mkdocs", "build", "--strict", "--quiet"]):
        environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PROJECT_URL": REPOSITORY}
        subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=True)
    with files_served(ROOT / "site") as address:
        yield address


@contextmanager
def files_served(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SilentHandler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_the_site_is_whole_without_a_network(chromium: Browser, site: str, screen: str, scheme: str) -> None:
    with opened(chromium, site, viewport=SCREENS[screen], color_scheme=scheme) as (page, wrong):
        for name in ("architecture", "start", "databricks", "index"):
            page.goto(f"{site}/{name}.html")
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
            broken = "[...document.images].filter(one => !one.complete || !one.naturalWidth).map(one => one.src)"
            assert page.evaluate(broken) == []
        palettes = {"light": "default", "dark": "slate"}
        assert page.evaluate("document.body.dataset.mdColorScheme") == palettes.pop(scheme)
        page.locator("label[for^=__palette]:visible").click()
        assert page.evaluate("document.body.dataset.mdColorScheme") in palettes.values()
        assert page.locator(f'a[href="{REPOSITORY}"]').count()
        assert wrong == []


def test_the_site_finds_a_word(chromium: Browser, site: str) -> None:
    with opened(chromium, site) as (page, wrong):
        page.goto(f"{site}/index.html")
        page.fill("input[name=query]", "tombstone")
        page.locator(".md-search-result__item").first.wait_for()
        assert wrong == []


def test_the_site_of_two_releases_leads_to_the_newest_and_lists_both(chromium: Browser, tmp_path: Path) -> None:
    """The repository is a copy, which has the branch gh-pages of the releases."""
    for name in ("docs", "conf", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for file in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml"):
        shutil.copy(file, tmp_path)
    roles = ("GIT_AUTHOR", "GIT_COMMITTER")
    named = os.environ | {f"{role}_{what}": "test@example.org" for role in roles for what in ("NAME", "EMAIL")}
    for command in (["init", "-q"], ["add", "mkdocs.yml"], ["commit", "-qm", "release"]):
        subprocess.run(["git", *command], cwd=tmp_path, env=named, check=True)
    for version in ("1.0.0", "1.1.0"):
        subprocess.run([sys.executable, "-m", "scripts.site", version], cwd=tmp_path, env=named, check=True)
    subprocess.run(["git", "worktree", "add", "-q", "published", "gh-pages"], cwd=tmp_path, check=True)
    with files_served(tmp_path / "published") as address, opened(chromium, address) as (page, wrong):
        page.goto(f"{address}/")
        page.wait_for_url(f"{address}/latest/")
        page.locator(".md-version__link").first.wait_for(state="attached")
        assert page.locator(".md-version__link").all_text_contents() == ["1.1.0", "1.0.0"]
        page.goto(f"{address}/1.0.0/start.html")
        assert page.locator(".md-version__current").text_content() == "1.0.0"
        assert wrong == []


def test_no_page_is_larger_than_100_kb(chromium: Browser, address: str) -> None:
    for each in PAGES:
        with opened(chromium, address) as (page, _):
            answers: dict[str, Response] = {}
            page.on("response", lambda got, answers=answers: answers.setdefault(got.url, got))
            go(page, f"{address}{each.path}?refresh=off")
            page.wait_for_load_state("networkidle")
            sizes = {url: len(got.body()) for url, got in answers.items()}
            assert len(sizes) >= 4
            assert sum(sizes.values()) < _LARGEST, sizes


def test_a_page_refreshes_in_place_and_keeps_the_focus(chromium: Browser, address: str, settings: Settings) -> None:
    with opened(chromium, address) as (page, wrong):
        go(page, f"{address}/silver")
        page.fill("#q", "ord")
        page.focus("#q")
        page.evaluate("window.sameDocument = true")
        page.evaluate("window.before = document.querySelector('.foot').innerText")
        await_true(page, "document.querySelector('.foot').innerText !== window.before")
        assert page.evaluate("document.activeElement.id") == "q"
        assert page.input_value("#q") == "ord"
        go(page, address)
        page.evaluate("window.sameDocument = true")
        set_state(DeltaRsTables(settings.lake_location), "test", "paused", by="ana", why="noon")
        await_true(page, "document.body.innerText.includes('set by ana')")
        assert page.evaluate("window.sameDocument") is True
        set_state(DeltaRsTables(settings.lake_location), "test", "running", by="ana", why=None)
        assert wrong == []


def test_the_keyboard_reaches_everything(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as (page, wrong):
        go(page, f"{address}/?refresh=off")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.innerText") == "Skip to content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.goto(f"{address}/gold?refresh=off")
        names = []
        for _ in range(len(PAGES) + 1):
            page.keyboard.press("Tab")
            names.append(page.evaluate("document.activeElement.innerText"))
        assert names[1:] == [each.title for each in PAGES]
        page.keyboard.press("Enter")
        page.wait_for_url(f"{address}/maintenance")
        assert wrong == []


def test_a_server_that_ends_leaves_the_page_as_it_was(chromium: Browser, settings: Settings) -> None:
    with served(settings) as (at, end), opened(chromium, at) as (page, _):
        go(page, f"{at}/maintenance")
        end()
        time.sleep(3)
        assert "silver.orders" in page.inner_text("main")
