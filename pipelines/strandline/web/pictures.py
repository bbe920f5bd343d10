"""Coordinates of the pictures: throughput, headroom, positions over time, and the graph of gold. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

_BOX_WIDTH: Final = 200
_BOX_HEIGHT: Final = 44
_COLUMN: Final = 270
_ROW: Final = 60
_MAX_BOXES: Final = 150


@dataclass(frozen=True)
class Bar:
    """One bar of a picture, in units of its view box."""

    x: float
    y: float
    width: float
    height: float
    label: str


def bars(values: Sequence[int], width: int, height: int) -> list[Bar]:
    """Return a bar for each of *values*, oldest first. The largest one has the full height."""
    step, largest = width / max(len(values), 1), max(values, default=0) or 1
    return [
        Bar(
            round(number * step + 1, 2),
            round(height - height * value / largest, 2),
            round(step - 2, 2),
            round(height * value / largest, 2),
            f"{len(values) - number} min ago: {value:,} rows",
        )
        for number, value in enumerate(values)
    ]


@dataclass(frozen=True)
class Headroom:
    """The oplog as a line from its oldest event to now, in units of a view box of width 100."""

    position: float
    """Place of the committed position."""
    warning: float
    """Place before which `capture.headroom_warning_minutes` warns."""
    is_short: bool


def headroom(age: int | None, left: int | None, warning_seconds: int) -> Headroom | None:
    """Return the picture of the oplog. None: the source does not say, or its oplog never dropped anything.

    Args:
        age: Age of the committed position, in seconds.
        left: Time until the oplog drops the position, in seconds.
    """
    if age is None or left is None:
        return None
    whole = max(age + left, 1)
    return Headroom(
        round(100 * left / whole, 2), round(min(100.0, 100 * warning_seconds / whole), 2), left < warning_seconds
    )


@dataclass(frozen=True)
class Mark:
    """One committed position in the timeline."""

    x: float
    kind: str
    label: str


def timeline(ends: Sequence[Mapping[str, Any]], width: int) -> list[Mark]:
    """Return a mark for each of *ends*, which are newest first. Equal kinds at the same place are one mark."""
    if not ends:
        return []
    first: datetime = min(end["at"] for end in ends)
    last: datetime = max(end["at"] for end in ends)
    seconds = (last - first).total_seconds() or 1
    marks: dict[tuple[int, str], Mark] = {}
    for end in ends:
        x = 8 + (width - 16) * (end["at"] - first).total_seconds() / seconds
        label = f"batch {end['batch']}, {end['kind']}, {end['at']:%Y-%m-%d %H:%M:%S} UTC"
        marks.setdefault((round(x), end["kind"]), Mark(round(x, 1), end["kind"], label))
    return list(marks.values())


@dataclass(frozen=True)
class Box:
    """One table in the graph of gold."""

    name: str
    state: str
    """``input``, or the action of the next build."""
    x: int
    y: int


@dataclass(frozen=True)
class GraphPicture:
    """Boxes, and lines between them as (x1, y1, x2, y2)."""

    boxes: tuple[Box, ...]
    lines: tuple[tuple[int, int, int, int], ...]
    width: int
    height: int


def graph_picture(nodes: Sequence[Mapping[str, Any]]) -> GraphPicture | None:
    """Return the picture of gold: inputs on the left, every node to the right of what it reads.

    None: there are too many boxes for a picture.

    Args:
        nodes: Gold nodes in build order, with ``name``, ``action`` and ``inputs``.
    """
    states = {f"gold.{node['name']}": str(node["action"]) for node in nodes}
    depth = dict.fromkeys(sorted({name for node in nodes for name in node["inputs"]} - states.keys()), 0)
    for node in nodes:
        depth[f"gold.{node['name']}"] = 1 + max((depth[name] for name in node["inputs"]), default=-1)
    if len(depth) > _MAX_BOXES:
        return None
    rows: dict[int, int] = {}
    boxes: dict[str, Box] = {}
    for name, column in depth.items():
        boxes[name] = Box(name, states.get(name, "input"), 10 + column * _COLUMN, 10 + rows.get(column, 0) * _ROW)
        rows[column] = rows.get(column, 0) + 1
    lines = tuple(
        (boxes[source].x + _BOX_WIDTH, boxes[source].y + _BOX_HEIGHT // 2, box.x, box.y + _BOX_HEIGHT // 2)
        for node in nodes
        for box in [boxes[f"gold.{node['name']}"]]
        for source in node["inputs"]
    )
    columns = max(depth.values(), default=0) + 1
    return GraphPicture(tuple(boxes.values()), lines, columns * _COLUMN - 50, 10 + max(rows.values(), default=0) * _ROW)
