"""Which commands start a JVM that uses its first compiler only."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from strandline.cli import app
from strandline.errors import ConfigurationError
from strandline.io.spark.session import FIRST_LOAD, SHORT_LIVED
from strandline.jobs.lake_opener import LakeOpener
from strandline.settings.configuration import Settings


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """Commands that run until Ctrl-C replace the handlers of this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("command", "is_brief"),
    [
        ("capture --once", True),
        ("run --once", True),
        ("silver", True),
        ("status", True),
        ("capture", False),
        ("run", False),
        ("status --watch", False),
        ("maintain", False),
    ],
)
def test_a_command_that_ends_with_what_is_new_compiles_less(
    command: str, is_brief: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def open_context(_: Settings, *, java_options: str = "") -> Any:
        seen.append(java_options)
        raise ConfigurationError("no Spark in this test", next_step="none")

    monkeypatch.setattr("strandline.jobs.context.open_context", open_context)
    monkeypatch.setenv("STRANDLINE_LAKE__ROOT", str(tmp_path))
    monkeypatch.setenv("STRANDLINE_SOURCE__URI", "mongodb://127.0.0.1:1/")
    monkeypatch.setenv("STRANDLINE_CAPTURE__TARGET", "shop")
    monkeypatch.setenv("STRANDLINE_SPARK__MASTER", "spark://nowhere:7077")  # a local lake would be opened without Spark
    CliRunner().invoke(app, command.split())
    assert seen == [SHORT_LIVED if is_brief else ""]


@pytest.mark.parametrize(
    ("table", "conf", "options"),
    [
        ("bronze/mongo", {}, FIRST_LOAD),
        ("silver/orders", {}, SHORT_LIVED),
        ("bronze/mongo", {"spark.driver.memory": "1g"}, SHORT_LIVED),
    ],
)
def test_the_first_load_of_silver_compiles_more(
    table: str, conf: dict[str, str], options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("strandline.jobs.context.open_context", lambda _, *, java_options: seen.append(java_options))
    (tmp_path / table / "_delta_log").mkdir(parents=True)
    (tmp_path / table / "_delta_log" / f"{0:020}.json").touch()
    settings = Settings.model_validate(
        {"lake": {"root": str(tmp_path)}, "source": {"uri": "mongodb://nowhere"}, "spark": {"conf": conf}}
    )
    LakeOpener(settings, briefly=True).with_spark()
    assert seen == [options]
