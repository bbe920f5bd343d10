"""The units of docs/start.md: systemd reads them, and they fit the exit codes."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from strandline.errors import TerminalError

_PAGE = (Path(__file__).parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
_PROGRAM = "/opt/strandline/.venv/bin/strandline"


def units() -> dict[str, str]:
    """Units of the page, by name of their file."""
    service, maintenance, timer = re.findall(r"```ini\n(.*?)```", _PAGE, flags=re.DOTALL)
    return {
        "strandline.service": service,
        "strandline-maintain.service": maintenance,
        "strandline-maintain.timer": timer,
    }


def test_a_terminal_error_is_not_followed_by_a_restart() -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # why: names of systemd have capitals
    unit.read_string(units()["strandline.service"])
    stays_down = {int(code) for code in unit["Service"]["RestartPreventExitStatus"].split()}
    assert stays_down == {kind.exit_code for kind in TerminalError.__subclasses__()}
    assert (unit["Service"]["Type"], unit["Service"]["Restart"]) == ("notify", "on-failure")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("name", ["strandline.service", "strandline-maintain.timer"])
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    for file, text in units().items():
        (tmp_path / file).write_text(text.replace(_PROGRAM, "/bin/true").replace("/opt/strandline", "/tmp"))
    verified = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True, timeout=60, check=False
    )
    said = [line for line in (verified.stdout + verified.stderr).splitlines() if "strandline" in line]
    assert (verified.returncode, said) == (0, []), verified.stderr
