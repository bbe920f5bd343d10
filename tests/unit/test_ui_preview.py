"""Rows of tables and Data Docs on the web page: off by default, and only with the token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from plain_lake import ORDERS, build_plain_lake
from starlette.testclient import TestClient
from ui_lake import HOSTILE, read, watched

from strandline.settings.configuration import Settings
from strandline.web.server import Access, application

DOCS = "<!doctype html><style>p { color: red; }</style><p>42 is wrong</p>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A lake with one live order and one row of gold, Data Docs, and a table of another program."""
    lake = build_plain_lake(tmp_path / "lake")
    row = {"_key": "3", "_deleted": False, "_id": 3, "total": float("nan"), "customer": {"city": HOSTILE}}
    write_deltalake(
        lake.path(ORDERS), pa.Table.from_pylist([row | {"Größe": "x" * 100}]), mode="append", schema_mode="merge"
    )
    write_deltalake(str(tmp_path / "lake" / "silver" / "others"), pa.table({"secret": ["somebody else's"]}))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.html").write_text(DOCS, encoding="utf-8")
    return tmp_path


@contextmanager
def client(folder: Path, rows: int, *, with_token: bool = True) -> Iterator[TestClient]:
    settings = Settings(
        lake={"root": str(folder / "lake")},  # type: ignore[arg-type]  # why: pydantic builds the section
        quality={"docs_dir": str(folder / "docs")},  # type: ignore[arg-type]  # why: as above
        ui={"preview_rows": rows},  # type: ignore[arg-type]  # why: as above
    )
    access = Access.of("127.0.0.1", 8081, api=False, known_token=None, shows_rows=rows > 0)
    headers = {"Authorization": f"Bearer {access.token}"} if with_token else {}
    with TestClient(application(watched(settings), access, []), base_url="http://localhost", headers=headers) as opened:
        yield opened


def test_by_default_no_row_and_no_data_docs_are_served(folder: Path) -> None:
    with client(folder, 0, with_token=False) as browser:
        assert "silver.orders" in (silver := read(browser, "/silver"))
        assert "/table/" not in silver
        assert "/data-docs" not in read(browser, "/quality")
        assert browser.get("/table/silver.orders").status_code == 404
        assert browser.get("/data-docs/index.html").status_code == 404


def test_a_page_with_rows_needs_the_token_on_the_loopback_interface(folder: Path) -> None:
    with client(folder, 20, with_token=False) as browser:
        for path in ("/", "/table/silver.orders", "/data-docs/index.html"):
            assert browser.get(path).status_code == 401, path


def test_live_rows_are_shown_as_text_without_bookkeeping(folder: Path) -> None:
    with client(folder, 20) as browser:
        assert 'href="/table/silver.orders"' in read(browser, "/silver")
        text = browser.get("/table/silver.orders").text
        for shown in ("first 2 live rows", "_key", "Größe", "XL", "{&#34;city&#34;: &#34;Köln&#34;}", "nan", "xxx..."):
            assert shown in text, shown
        assert "&lt;script&gt;" in text
        for hidden in (HOSTILE, "4.5", "_position", "_document", "x" * 61, "hx-trigger"):
            assert hidden not in text, hidden
        assert "2026-11-25" in browser.get("/table/gold.sales").text


def test_the_setting_limits_the_rows(folder: Path) -> None:
    with client(folder, 1) as browser:
        assert "first 1 live rows" in browser.get("/table/silver.orders").text


def test_only_own_tables_of_silver_and_gold_are_shown(folder: Path) -> None:
    with client(folder, 20) as browser:
        for name in ("silver.others", "silver.nowhere", "control.sources", "x%27%3B%20rm%20-rf", "silver."):
            answer = browser.get(f"/table/{name}")
            assert answer.status_code == 404, name
            assert "no such table" in answer.text
            assert "command" not in answer.text
            assert "somebody" not in answer.text


def test_data_docs_are_linked_and_may_run_no_script(folder: Path) -> None:
    with client(folder, 20) as browser:
        assert 'href="/data-docs/index.html"' in read(browser, "/quality")
        answer = browser.get("/data-docs/")
        assert answer.text == DOCS
        policy = answer.headers["content-security-policy"]
        assert "script" not in policy
        assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
        log = next((folder / "lake" / "silver" / "others" / "_delta_log").glob("*.json")).relative_to(folder)
        assert browser.get(f"/data-docs/%2e%2e/{log}").status_code == 404
        (folder / "docs" / "index.html").unlink()
        (folder / "docs").rmdir()
        assert browser.get("/data-docs/index.html").status_code == 404


def test_a_table_that_cannot_be_read_is_told(folder: Path) -> None:
    with client(folder, 20) as browser:
        for file in (folder / "lake" / "silver" / "orders").rglob("*.parquet"):
            file.unlink()
        answer = browser.get("/table/silver.orders")
        assert "<strong>Not read:</strong>" in answer.text
        assert "no such table" not in answer.text
