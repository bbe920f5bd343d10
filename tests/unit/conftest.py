"""No setting comes from outside, and a configuration folder that a test may fill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("STRANDLINE_") or name == "MONGODB_URI":
            monkeypatch.delenv(name)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A folder with an empty base and an empty target called ``here``."""
    (tmp_path / "base.yml").write_text("")
    (tmp_path / "here.yml").write_text("")
    return tmp_path
