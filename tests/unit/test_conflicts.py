"""Write conflicts of a session that does not know Delta's exception classes."""

from __future__ import annotations

import logging
import sys

import pytest
import typer
from delta.exceptions import MetadataChangedException
from pyspark.errors import PySparkException

from strandline import cli
from strandline.io.spark.conflicts import know_remote_conflicts
from strandline.io.spark.races import retrying


class _Conflict(PySparkException):
    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self._condition = condition

    def getCondition(self) -> str:  # noqa: N802  # why: PySpark's name
        return self._condition


def test_without_deltas_classes_for_connect_there_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "delta.connect.exceptions", None)
    with caplog.at_level(logging.WARNING):
        know_remote_conflicts()
    assert "no classes for Spark Connect's write conflicts" in caplog.text


def test_an_uncaught_commit_conflict_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def overtaken(*_: object, **__: object) -> None:
        raise MetadataChangedException("DELTA_METADATA_CHANGED: by a concurrent update\n\tat io.delta…")

    monkeypatch.setattr(typer.Typer, "__call__", overtaken)
    with pytest.raises(SystemExit, match="75"):
        cli.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("strandline: another process changed a table meanwhile: DELTA_METADATA_CHANGED"), line


@pytest.mark.parametrize(
    ("condition", "attempts"),
    [
        ("DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT", 2),
        ("DELTA_CONCURRENT_TRANSACTION", 1),
        ("PARSE_SYNTAX_ERROR", 1),
    ],
)
def test_a_conflict_without_a_class_is_known_by_its_condition(condition: str, attempts: int) -> None:
    called = []

    def commit() -> None:
        called.append(condition)
        if len(called) < 2:
            raise _Conflict(condition)

    if attempts == 1:
        with pytest.raises(_Conflict):
            retrying()(commit)
    else:
        retrying()(commit)
    assert len(called) == attempts
