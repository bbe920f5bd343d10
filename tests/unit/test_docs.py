"""What the documents name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipelines.settings import CaptureSettings, SourceSettings

ROOT = Path(__file__).parents[2]
_NAMED = re.findall(r"`(\w+/test_\w+\.py)(?:::(\w+))?`", (ROOT / "docs" / "delivery.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("file", "test"), _NAMED)
def test_every_promise_names_a_test_that_exists(file: str, test: str) -> None:
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert f"def {test}(" in source if test else source


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"], ids=lambda page: page.name)
def test_every_link_between_the_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_setting_that_stands_for_one_of_debeziums_exists() -> None:
    table = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `[^|]*` \| `([\w.]+)` \|", table, re.MULTILINE)
    known = set(CaptureSettings.model_fields) | {f"source.{name}" for name in SourceSettings.model_fields}
    assert len(named) > 40
    assert set(named) - known == set()
