"""Generate docs/pictures: the first commands of a new user, the terminal of one demo, and the notebooks' charts."""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from rich.console import Console

from scripts.first_commands import first_commands, moving
from strandline.jobs.demo import run_demo
from strandline.settings.configuration import Settings

ROOT = Path(__file__).parent.parent
NOTEBOOKS = tuple(sorted((ROOT / "notebooks").glob("*.py")))
PICTURES = ROOT / "docs" / "pictures"

# Picture names of each notebook's charts, in order. Further charts are not used in the documentation.
CHARTS = {
    "explore_bronze": ("operations",),
    "explore_gold": ("on-time", "weather", "fleet"),
}

_FORGET = "%reset -f"  # the next notebook must not see variables of an earlier one
_TERMINAL_WIDTH = 100
_SIGNATURE, _PIXELS = b"\x89PNG\r\n\x1a\n", b"IDAT"


def lake_environment(lake: Path) -> dict[str, str]:
    """Return the environment variables that point the command and the notebooks to the demo's lake."""
    return {"STRANDLINE_CONF": str(lake / "conf")}


def executed(notebooks: Sequence[Path], environment: Mapping[str, str], last_cell: str = "") -> dict[str, NotebookNode]:
    """Run notebooks one after the other in one kernel, with one Spark session. Return the executed notebooks by name.

    I/O: starts a kernel in the notebooks' folder; writes nothing. Errors of a cell are raised.

    Args:
        notebooks: Databricks-source files of one folder.
        environment: Variables added to the environment of the process.
        last_cell: Code that runs at the end of each notebook.
    """
    parts = [[*jupytext.read(file).cells, new_code_cell(last_cell), new_code_cell(_FORGET)] for file in notebooks]
    whole = new_notebook(cells=[cell for part in parts for cell in part])
    place = {"metadata": {"path": str(notebooks[0].parent)}}
    NotebookClient(whole, timeout=300, kernel_name="python3", resources=place).execute(
        env={**os.environ, **environment}
    )
    found, start = {}, 0
    for file, part in zip(notebooks, parts, strict=True):
        found[file.stem] = new_notebook(cells=whole.cells[start : start + len(part) - 1])
        start += len(part)
    return found


def outputs(notebook: NotebookNode, kind: str) -> list[Any]:
    """Return the outputs of the notebook's cells with one MIME type, in order."""
    return [
        output["data"][kind]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if kind in output.get("data", {})
    ]


def drawn_charts(notebook: NotebookNode) -> list[bytes]:
    """Return the notebook's charts as PNG files."""
    return [base64.b64decode(picture) for picture in outputs(notebook, "image/png")]


def packed(png: bytes) -> bytes:
    """Return the same PNG with maximum compression, which the renderer does not use. Pure."""
    chunks, at = [], len(_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += 12 + length
    pixels = zlib.decompress(b"".join(content for kind, content in chunks if kind == _PIXELS))
    kept = [chunk for chunk in chunks if chunk[0] != _PIXELS]
    kept.insert(-1, (_PIXELS, zlib.compress(pixels, 9)))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in kept
    )


class _Picture(Console):
    """Recording terminal: long lines are wrapped, and paths are relative to the checkout."""

    def __init__(self) -> None:
        super().__init__(record=True, width=_TERMINAL_WIDTH, file=io.StringIO(), color_system="truecolor")

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:  # noqa: ARG002  # why: that is folded
        here = f"{Path.cwd()}/"
        super().print(*(shown.replace(here, "") if isinstance(shown, str) else shown for shown in objects), **options)


def terminal(lake: Path, rows: int | None) -> str:
    """Run the demo. Return its terminal as SVG, without fonts from the network."""
    console = _Picture()
    run_demo(Settings(), lake=lake, rows=rows, console=console)
    return re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="strandline demo"), flags=re.DOTALL)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--lake",
        type=Path,
        default=Path("lake/demo"),
        help="Folder of the demo's lake. An existing demo lake in it is replaced.",
    )
    options.add_argument("--rows", type=int, help="Number of rows, as in `strandline demo --rows`.")
    options.add_argument("--charts", action="store_true", help="Only generate the charts, from the existing lake.")
    options.add_argument("--first", action="store_true", help="Only generate the picture of the first commands.")
    given = options.parse_args()
    pictures = {} if given.charts else {"first.svg": moving(first_commands()).encode()}
    if not (given.charts or given.first):
        pictures["demo.svg"] = terminal(given.lake, given.rows).encode()
    drawing = [] if given.first else [file for file in NOTEBOOKS if file.stem in CHARTS]
    for stem, notebook in executed(drawing, lake_environment(given.lake.resolve())).items() if drawing else ():
        pictures |= {
            f"{name}.png": packed(chart) for name, chart in zip(CHARTS[stem], drawn_charts(notebook), strict=False)
        }
    PICTURES.mkdir(exist_ok=True)
    for name, content in pictures.items():
        (PICTURES / name).write_bytes(content)


if __name__ == "__main__":
    main()
