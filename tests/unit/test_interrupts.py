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
    "reconcile": [],
    "snapshot": ["list"],
    "offsets": ["show"],
    "quality": ["run"],
    "dead-letters": ["list"],
    "schema": ["show"],
    "cuts": [],
    "delete": ["--yes"],
}
_COMMANDS = sorted(get_command(app).list_commands(None))  # type: ignore[attr-defined, arg-type]  # why: a group of commands
_STARTS = "import sys; from strandline.cli import main; print('begun', file=sys.stderr, flush=True); main()"


def _started(folder: Path, command: str) -> subprocess.Popen[str]:
    """Start *command* in a project without a lake, whose source does not answer. Its first line says that it began."""
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "local.yml").write_text("capture: {scope: database, target: shop}\nlake: {root: lake}\n")
    environment = os.environ | {"STRANDLINE_SOURCE__URI": _SOURCE}
    program = folder / "strandline"
    program.write_text(_STARTS)
    process = subprocess.Popen(
        [sys.executable, program, command, *_ARGUMENTS.get(command, [])],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "begun\n"
    return process


def _interrupted(process: subprocess.Popen[str], after: float) -> tuple[int, str, float]:
    """Send Ctrl-C. Return the exit code, what the command told, and the seconds until it ended."""
    time.sleep(after)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, told, time.monotonic() - began


@pytest.mark.parametrize("after", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("command", ["version", "status", "capture", "offsets"])
def test_ctrl_c_ends_a_command_at_once_with_130_and_one_line(tmp_path: Path, command: str, after: float) -> None:
    process = _started(tmp_path, command)
    code, told, seconds = _interrupted(process, after)
    assert "Traceback" not in told
    if "interrupted" not in told:  # the command had done its work; Python's own end is cut by the signal itself
        assert code in (0, 2, 75, -signal.SIGINT)
        return
    assert code == EXIT_CODE
    assert told.count("strandline: interrupted: what is committed stays") == 1
    assert seconds < 20


@pytest.mark.long
@pytest.mark.parametrize("after", [0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("command", _COMMANDS)
def test_ctrl_c_at_any_moment_of_any_command_shows_no_stack_trace(tmp_path: Path, command: str, after: float) -> None:
    code, told, _ = _interrupted(_started(tmp_path, command), after)
    assert "Traceback" not in told
    assert "KeyboardInterrupt" not in told
    assert code == EXIT_CODE or "interrupted" not in told
