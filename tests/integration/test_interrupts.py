"""Ctrl-C at many moments of every command: exit code 130, one line, and no stack trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.main import get_command

from strandline.cli import app
from strandline.interrupts import EXIT_CODE

_SOURCE = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=20000"
_ARGUMENTS = {
    "init": ["project"],
    "sql": ["select 1"],
    "export": ["dbt-sources"],
    "rebuild": ["silver.a"],
    "snapshot": ["list"],
    "offsets": ["show"],
    "quality": ["run"],
    "dead-letters": ["list"],
    "schema": ["show"],
    "delete": ["--yes"],
}
_COMMANDS = sorted(get_command(app).list_commands(None))  # type: ignore[attr-defined, arg-type]  # why: a group of commands
# Before this, Python starts, which takes some 20 ms.
_STARTS = """import strandline.interrupts, sys
print("begun", file=sys.stderr, flush=True)
from strandline.cli import main
main()"""


def _started(folder: Path, command: str) -> subprocess.Popen[str]:
    """Start *command* in a project without a lake, whose source does not answer. Its first line says that it began."""
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "local.yml").write_text("capture: {scope: database, target: shop}\nlake: {root: lake}\n")
    program = folder / "strandline"
    program.write_text(_STARTS)
    process = subprocess.Popen(
        [sys.executable, program, command, *_ARGUMENTS.get(command, [])],
        cwd=folder,
        env=os.environ | {"STRANDLINE_SOURCE__URI": _SOURCE},
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "begun\n"
    return process


def _interrupted(process: subprocess.Popen[str], after: float, number: int = signal.SIGINT) -> tuple[int, str, float]:
    """Send a signal. Return the exit code, the lines of the command, and the seconds until it ended."""
    time.sleep(after)
    began = time.monotonic()
    process.send_signal(number)
    try:
        _, lines = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, lines, time.monotonic() - began


@pytest.mark.parametrize("after", [0.0, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("command", ["version", "status", "capture", "offsets"])
def test_ctrl_c_ends_a_command_at_once_with_130_and_one_line(tmp_path: Path, command: str, after: float) -> None:
    code, lines, seconds = _interrupted(_started(tmp_path, command), after)
    assert "Traceback" not in lines
    if "interrupted" not in lines:  # the command had done its work; Python's own end is cut by the signal itself
        assert code in (0, 2, 75, -signal.SIGINT)
        return
    assert code == EXIT_CODE
    assert lines.count("strandline: interrupted: what is committed stays") == 1
    assert seconds < 20


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        ("capture", signal.SIGTERM, 0),
        ("capture", signal.SIGINT, EXIT_CODE),
        pytest.param("run", signal.SIGTERM, 0, marks=pytest.mark.long),
    ],
)
def test_a_signal_while_mongodb_is_not_reached_ends_the_command_as_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, number: int, code: int
) -> None:
    monkeypatch.setattr(f"{__name__}._SOURCE", _SOURCE.replace("20000", "200"))
    process = _started(tmp_path, command)
    assert process.stderr is not None
    while "attempt 2 follows" not in (line := process.stderr.readline()):
        assert line, "the command has ended"
    ended, lines, _ = _interrupted(process, 0.0, number)
    assert ended == code, lines
    assert "Traceback" not in lines
    assert "→" not in lines, "no error"


@pytest.mark.long
@pytest.mark.parametrize("after", [0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("command", _COMMANDS)
def test_ctrl_c_at_any_moment_of_any_command_shows_no_stack_trace(tmp_path: Path, command: str, after: float) -> None:
    code, lines, _ = _interrupted(_started(tmp_path, command), after)
    assert "Traceback" not in lines
    assert "KeyboardInterrupt" not in lines
    assert code == EXIT_CODE or "interrupted" not in lines
