"""A wheel of a preview beside this one is one line; another project's package `pipelines` is none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.cli import app
from strandline.io.spark.older_wheel import older_wheel

PREVIEW = ("__init__.py", "cli.py", "spark_source.py", "bronze/envelope.py")


def package(folder: Path, files: Sequence[str]) -> None:
    for file in files:
        (folder / "pipelines" / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / "pipelines" / file).write_text("", encoding="utf-8")


def test_an_older_wheel_beside_this_one_is_one_line_that_says_to_uninstall_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, PREVIEW)
    monkeypatch.syspath_prepend(str(tmp_path))
    shown = CliRunner().invoke(app, ["version"])
    told = [line for line in shown.stderr.splitlines() if "older wheel" in line]
    assert len(told) == 1
    assert f"{tmp_path} holds an older wheel of strandline" in told[0]
    assert "python -m pip uninstall strandline, then install this version again" in told[0]
    doctor = CliRunner().invoke(app, ["doctor", "--offline"])
    assert "warning  configuration.package" in doctor.stdout


@pytest.mark.parametrize("files", [[], ["cli.py"], ["__init__.py", "orders.py", "bronze/envelope.py"]], ids=str)
def test_a_package_of_another_project_is_not_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Sequence[str]
) -> None:
    package(tmp_path, files)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert older_wheel() is None
