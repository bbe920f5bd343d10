"""What a test writes into a configuration folder, and what that folder is refused for."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.errors import ConfigurationError
from strandline.settings.configuration import load_settings


def write(conf: Path, name: str, text: str) -> None:
    (conf / f"{name}.yml").write_text(text, encoding="utf-8")


def refusal(conf: Path, target: str = "here") -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(target, conf)
    return str(caught.value)
