"""Tests and the catalogue of scenarios name the same scenarios, and promises that are written down."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
_TAG = re.compile(r"^ *# (?=promise|scenario)(.*)$", re.MULTILINE)
_SCENARIO = re.compile(r"\b[A-U][0-9]{2}\b")
_PROMISE = re.compile(r"^promises? ([0-9]+(?:(?:, | and )[0-9]+)*)")


def tags() -> list[tuple[str, str]]:
    """File and text of each comment that names a promise or a scenario."""
    files = [path for folder in ("tests", "bench") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(path.name, text) for path in files for text in _TAG.findall(path.read_text(encoding="utf-8"))]


def catalogue() -> dict[str, dict[str, str]]:
    themes: dict[str, Any] = yaml.safe_load((ROOT / "tests" / "scenarios.yml").read_text(encoding="utf-8"))
    return {name: scenario for theme in themes.values() for name, scenario in theme.items()}


def test_every_scenario_that_a_test_names_is_in_the_catalogue_and_every_one_of_it_is_named() -> None:
    named = {name for _, text in tags() if "scenario" in text for name in _SCENARIO.findall(text)}
    assert named - catalogue().keys() == set(), "add them to tests/scenarios.yml"
    assert catalogue().keys() - named == set(), "no test covers these"


def test_a_scenario_says_what_happens_and_what_must_come_of_it() -> None:
    for name, scenario in catalogue().items():
        assert scenario.keys() <= {"situation", "bronze", "silver"}, name
        assert "situation" in scenario, name


def test_every_promise_that_a_test_names_is_written_down() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    promises = {int(number) for number in re.findall(r"^([1-9])\. \*\*", page, re.MULTILINE)}
    found = (match for _, text in tags() if (match := _PROMISE.match(text)))
    named = {int(number) for match in found for number in re.findall(r"[0-9]+", match[1])}
    assert named
    assert named <= promises
    assert promises == set(range(1, len(promises) + 1))
