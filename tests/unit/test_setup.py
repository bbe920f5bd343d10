"""What set-up says on a machine that cannot run Strandline: one line, and nothing is made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_NEEDED_COMMANDS = ("bash", "dirname", "sed", "head", "grep", "tail", "tr", "mktemp", "rm")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project folder with a ``bin`` that holds only what the script calls, a good Java and a good Python."""
    root, commands = tmp_path / "a clone", tmp_path / "a clone" / "bin"
    commands.mkdir(parents=True)
    (root / "scripts").mkdir()
    (root / "requirements").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", root / "scripts")
    (root / "requirements" / "dev.txt").write_text("nothing==1.0 --hash=sha256:00\n")
    for file in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / file, root)
    shutil.copytree(ROOT / "java", root / "java")
    for name in _NEEDED_COMMANDS:
        (commands / name).symlink_to(shutil.which(name) or name)
    _command(commands, "java", """echo 'openjdk version "17.0.15" 2025-04-15' >&2""")
    (commands / "python3").symlink_to(sys.executable)
    return root


def _command(folder: Path, name: str, script: str) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


def _set_up(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYTHON")}
    return subprocess.run(
        [str(root / "scripts" / "setup.sh")],
        env=outside | {"PATH": str(root / "bin")} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _refusal(root: Path, **environment: str) -> str:
    ended = _set_up(root, **environment)
    assert ended.returncode != 0
    assert not (root / ".venv" / ".strandline-setup").exists()
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    return lines[0]


def test_no_java_is_one_line(checkout: Path) -> None:
    (checkout / "bin" / "java").unlink()
    refusal = _refusal(checkout)
    assert "no Java found" in refusal
    assert "JDK 17" in refusal


def test_a_java_home_without_java_is_named(checkout: Path) -> None:
    assert "JAVA_HOME=/nowhere" in _refusal(checkout, JAVA_HOME="/nowhere")


@pytest.mark.parametrize(
    ("said", "version"), [('openjdk version "11.0.2" 2019', "11"), ('java version "1.8.0_402"', "8"), ("?", "unknown")]
)
def test_an_old_java_is_one_line(checkout: Path, said: str, version: str) -> None:
    _command(checkout / "bin", "java", f"echo '{said}' >&2")
    refusal = _refusal(checkout)
    assert version in refusal.split(";")[0]
    assert "needs a JDK 17" in refusal


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_newer_than_required_is_accepted(checkout: Path, version: str) -> None:
    _command(checkout / "bin", "java", f"echo 'openjdk version \"{version}\" 2025' >&2")
    (checkout / "bin" / "python3").unlink()
    assert "no Python" in _refusal(checkout)


def test_no_python_is_one_line(checkout: Path) -> None:
    _command(checkout / "bin", "python3", "[[ $1 == -V ]] && echo Python 3.9.1 && exit 0; exit 1")
    refusal = _refusal(checkout)
    assert "no Python from 3.11 to 3.13 found (python3 is Python 3.9.1)" in refusal
    assert "PYTHON=" in refusal


def test_a_named_python_that_will_not_do_is_not_replaced_by_another(checkout: Path) -> None:
    _command(checkout / "bin", "python3.10", "exit 1")
    assert "PYTHON=python3.10 is not a Python from 3.11 to 3.13" in _refusal(checkout, PYTHON="python3.10")


@pytest.mark.slow
def test_no_network_is_one_line(checkout: Path) -> None:
    """Without a retry pip only says that it found no version; the second call takes up the half-made environment."""
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    for retries in ("0", "1"):
        assert "no network" in _refusal(checkout, **unreachable, PIP_RETRIES=retries)
