"""What the documents name is there: tests, files, headings, commands, settings, columns."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from command_line import parsed
from documented_sql import unknown_columns
from documents import DECISIONS, PAGES, ROOT, Page, strandline_commands
from pydantic import BaseModel

from scripts.first_commands import TypedCommand, moving
from scripts.reference import columns_of
from strandline.gold.cases import parse_cases
from strandline.gold.graph import parse
from strandline.gold.statement import DIALECT
from strandline.model.snapshot_policy import SnapshotPolicy
from strandline.model.table_schemas import BRONZE_DDL
from strandline.settings.capture import CaptureSettings
from strandline.settings.configuration import Settings, SourceSettings, load_settings
from strandline.settings.output import MetricsSettings
from strandline.settings.silver import SilverSettings

_NAMED = [
    named
    for page in ("delivery.md", "places.md", "versions.md", "spark-versions.md")
    for named in re.findall(r"`(\w+/test_\w+\.py)(?:::(\w+))?`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
]
_SECTIONS: dict[str, type[BaseModel]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
_SETTING = re.compile(rf"^({'|'.join(_SECTIONS)})\.(\w+)(?:: (.+))?$")
_LINKING = [*(page.file for page in [*PAGES, *DECISIONS]), *sorted(ROOT.glob("notebooks/*.py"))]
_LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]+))?\)")

# Names of the same shape that are no settings: tables, columns, and what other tools call theirs.
_TABLES = {
    "silver.flights",
    "silver.orders",
    "silver.orders_live",
    "silver.shop__orders",
    "gold.fleet_age",
    "gold.sales",
    "gold.late",
    "gold.on_time_performance",
    "gold.delay_by_weather",
}
_COLUMNS = {
    f"source.{name}" for name in re.findall(r"(\w+):", dict(column[:2] for column in columns_of(BRONZE_DDL))["source"])
}
_FOREIGN = (
    {"spark.read", "spark.readStream", "source.json"}
    | {f"{name}.yaml" for name in _SECTIONS}
    | {f"source.{name}" for name in ("connector", "db", "collection", "txnNumber", "wallTime", "rs")}
)
_MISTAKES = ("docs/mistakes.md", "CAPTURE__MAX__BATCH_SIZE"), ("docs/mistakes.md", "LAKE__ROT")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.mark.parametrize(("file", "test"), _NAMED)
def test_every_promise_names_a_test_that_exists(file: str, test: str) -> None:
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert f"def {test}(" in source if test else source


@pytest.mark.parametrize("file", _LINKING, ids=lambda file: file.name)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(file: Path) -> None:
    for target, anchor in _LINK.findall(file.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        linked = file.parent / target if target else file
        assert linked.exists(), target
        if anchor:
            assert anchor in Page(linked.resolve()).anchors(), f"{target}#{anchor}"


def test_decisions_that_are_named_exist_and_are_in_the_index() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    records = {file.name for file in ROOT.glob("docs/decisions/[0-9]*.md")}
    assert set(re.findall(r"\]\((\d[^)]+)\)", index)) == records
    code = [*ROOT.glob("pipelines/**/*.py"), *ROOT.glob("tests/**/*.py")]
    for file in [*code, *(page.file for page in [*PAGES, *DECISIONS])]:
        for number in re.findall(r"\b[Dd]ecision\s+(\d+)\b", file.read_text(encoding="utf-8")):
            assert any(name.startswith(f"{int(number):04}-") for name in records), f"{file.name}: decision {number}"


@pages
def test_every_command_is_understood(page: Page) -> None:
    wrong = [(" ".join(arguments), problem) for arguments in page.commands() if (problem := refusal(arguments))]
    wrong += [
        (" ".join(arguments), problem)
        for arguments in page.mentioned()
        if (problem := refusal(arguments)) and not problem.startswith(("Missing", "NoArgs"))
    ]
    assert wrong == []


def refusal(arguments: list[str]) -> str:
    """What the command's parser says against them; nothing where it takes them."""
    try:
        parsed(arguments)
    except Exception as error:  # noqa: BLE001  # why: the parser has exceptions of its own
        return type(error).__name__ if type(error).__name__.startswith("NoArgs") else str(error)
    return ""


def test_commands_are_found_however_they_are_written() -> None:
    line = """ENV=1 .venv/bin/strandline stop && strandline offsets reset --why "a; b" # then; more"""
    assert list(strandline_commands(line)) == [["stop"], ["offsets", "reset", "--why", "a; b"]]
    assert list(strandline_commands("strandline pause | resume")) == [["pause"]]
    assert list(strandline_commands("ExecStart=/opt/strandline/.venv/bin/strandline run")) == [["run"]]
    assert list(strandline_commands("databricks secrets put-secret strandline mongodb-uri")) == []
    assert sum(len(page.commands()) for page in PAGES) > 20
    assert sum(len(page.mentioned()) for page in PAGES) > 30


@pages
def test_a_page_has_no_sections_of_docstrings(page: Page) -> None:
    assert re.findall(r"\b(?:Args|Returns|Raises|Effects on failure):", page.text) == []


@pages
def test_every_make_target_exists(page: Page) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([a-z-]+)", "\n".join([*page.lines_of_code, *page.inline_code]), re.MULTILINE):
        assert f"\n{target}:" in makefile, target


@pages
def test_every_setting_exists_and_takes_the_value(page: Page) -> None:
    for code in page.inline_code:
        if (found := _SETTING.match(code)) is None or code in _TABLES | _COLUMNS | _FOREIGN:
            continue
        section, key, value = found.groups()
        assert key in {field.alias or name for name, field in _SECTIONS[section].model_fields.items()}, code
        if value is not None:
            _SECTIONS[section].model_validate({key: value})
    for section, key in re.findall(r"\bSTRANDLINE_([A-Z]+)__([A-Z_]+)\b", page.text):
        names = {field.alias or name for name, field in _SECTIONS[section.lower()].model_fields.items()}
        is_mistake = (page.name, f"{section}__{key}") in _MISTAKES
        assert is_mistake or key.lower() in names, f"STRANDLINE_{section}__{key}"


@pages
def test_every_configuration_that_is_shown_loads(page: Page, tmp_path: Path) -> None:
    (tmp_path / "base.yml").touch()
    for block in page.blocks("yaml"):
        if block.startswith("- "):
            problems: list[str] = []
            assert parse_cases("fleet_age.yml", block, problems)
            assert problems == []
        else:
            (tmp_path / "local.yml").write_text(block, encoding="utf-8")
            load_settings("local", tmp_path)


@pages
def test_every_piece_of_gold_that_is_shown_is_one(page: Page) -> None:
    for block in page.blocks("sql"):
        if block.startswith("--"):
            (piece,) = parse({"piece.sql": block}).nodes.values()
            assert unknown_columns(block) == []
            assert piece.header.columns.keys() <= set(sqlglot.parse_one(block, dialect=DIALECT).named_selects)


@pages
def test_every_class_that_is_shown_does_what_the_page_says(page: Page) -> None:
    for block in page.blocks("python"):
        if "class " not in block:
            compile(block, page.name, "exec")  # runs in integration/test_demo.py and integration/test_readers.py
            continue
        namespace: dict[str, Any] = {}
        exec(block, namespace)  # why: it is the page's own
        (entry,) = (
            tomllib.loads(block)["project"]["entry-points"]["strandline.snapshotters"] for block in page.blocks("toml")
        )
        snapshotter = namespace[entry.popitem()[1].split(":")[1]]()
        assert SnapshotPolicy.from_snapshotter(snapshotter).first


@pages
def test_every_query_names_columns_that_exist(page: Page) -> None:
    for query in page.queries():
        assert unknown_columns(query) == [], query


def test_a_column_that_does_not_exist_would_be_seen() -> None:
    assert unknown_columns("select opp, max(source.wall_time) as t from bronze.shop group by all order by t") == ["opp"]
    assert unknown_columns(
        "with a as (select _key as k from silver.orders where total > 1) select k, _kee from a, silver.orders"
    ) == ["_kee"]
    assert unknown_columns("select f.delay.arrival, f.delayed from silver.flights f") == ["delayed"]
    assert unknown_columns("select airline, punctuality from gold.on_time_performance") == ["punctuality"]
    assert unknown_columns("select * from control.nothing") == ["control.nothing"]


def test_every_setting_that_stands_for_one_of_debeziums_exists() -> None:
    table = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `[^|]*` \| `([\w.]+)` \|", table, re.MULTILINE)
    known = set(CaptureSettings.model_fields) | {f"source.{name}" for name in SourceSettings.model_fields}
    known |= {f"silver.{name}" for name in SilverSettings.model_fields}
    known |= {f"metrics.{name}" for name in MetricsSettings.model_fields}
    assert len(named) > 40
    assert set(named) - known == set()


def test_pictures_are_small_and_used() -> None:
    text = "".join(page.text for page in PAGES)
    for picture in (ROOT / "docs" / "pictures").iterdir():
        assert picture.stat().st_size < 100_000, picture.name
        assert f"pictures/{picture.name})" in text, picture.name


def test_the_lines_of_the_moving_terminal_appear_in_the_order_in_which_they_came() -> None:
    commands = [TypedCommand("a <b>", ("first", "second"), 3.0), TypedCommand("c", (), 0.5)]
    picture = moving(commands)
    shown = re.findall(r'<text class="l(\d+) (\w*)"[^>]*>([^<]*)<', picture)
    assert shown == [("0", "typed", "$ a &lt;b&gt;"), ("1", "", "first"), ("2", "", "second"), ("3", "typed", "$ c")]
    times = [float(percent) for percent in re.findall(r"opacity:0\}([\d.]+)%", picture)]
    assert times == sorted(times)
    assert times[1] == times[2], "what a command prints appears when it ends"
