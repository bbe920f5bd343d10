"""Generate docs/places.md from tests/places.yml: each place of a lake, its configuration, its promise and its tests."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parent.parent
_HEAD: Final = """# Where the lake is

A lake is in a folder, in an object store or in a catalog. What is promised is the same everywhere
([what is promised](delivery.md)), except what this page and [the page about catalogs](catalogs.md) say. Each place of
this page has tests. Other places, and other combinations of a store, a catalog and a cluster, have none: for example
other object stores, Unity Catalog, Kubernetes, and S3 with a cluster. They may work. Run `strandline doctor` there
first, and with a cluster `strandline doctor --workers`.

`engine` decides who writes. With `auto`, the default, delta-rs writes bronze, without Java, where the second column
says delta-rs, and Spark elsewhere. Spark writes silver and gold. Where delta-rs writes bronze, it also writes small
changes of them ([who writes](architecture.md#who-writes)). (`make docs` generates this page.)

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
    items = [f"- Promise: {place['promise']}", f"- Two writers: {place['fence']}", f"- Tests: {tests}"]
    wrapped = "".join(f"{_wrapped(item)}\n" for item in items)
    return f"\n## {place['place']}\n\n```yaml\n{shown}```\n{environment}\n{wrapped}"


def _wrapped(item: str) -> str:
    return fill(item, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
