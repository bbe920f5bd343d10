"""Generate docs/places.md from tests/places.yml: each place of a lake, its configuration, its promise and its tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parent.parent
_HEAD: Final = """# Where the lake is

A lake is in a folder, in an object store or in a catalog. What is promised is the same everywhere
([what is promised](delivery.md)), except what this page says. A place that is not on this page has no test.
`make docs` generates this page.

| place | bronze is written by | tests passed on |
|---|---|---|
"""


def places() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((ROOT / "tests" / "places.yml").read_text(encoding="utf-8"))
    return found


def places_page() -> str:
    """Return the text of docs/places.md."""
    rows = "".join(f"| [{one['place']}](#{_anchor(one)}) | {one['bronze']} | {one['seen']} |\n" for one in places())
    return _HEAD + rows + "".join(map(_section, places()))


def _anchor(place: dict[str, Any]) -> str:
    return str(place["place"]).lower().replace(" ", "-").replace(",", "").replace("(", "").replace(")", "")


def _section(place: dict[str, Any]) -> str:
    shown = yaml.safe_dump(place["configuration"], sort_keys=False, default_flow_style=False)
    tests = ", ".join(f"`{test}`" for test in place["tests"])
    environment = f"\nEnvironment: {place['environment']}\n" if "environment" in place else ""
    return (
        f"\n## {place['place']}\n\n```yaml\n{shown}```\n{environment}\n"
        f"- Promise: {place['promise']}\n- Two writers: {place['fence']}\n- Tests: {tests}\n"
    )
