"""Makes docs/pictures: the demo's terminal as SVG, and the notebooks' charts as PNG, all from one run of the demo."""

from __future__ import annotations

import argparse
import base64
import io
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from pipelines.jobs.demo import DATABASE, run_demo
from pipelines.settings import Settings

ROOT = Path(__file__).parent.parent
NOTEBOOKS = tuple(sorted((ROOT / "notebooks").glob("*.py")))
PICTURES = ROOT / "docs" / "pictures"

# Which notebook's charts become which pictures, in order.
CHARTS = {
    "explore_bronze": ("operations", "lag"),
    "explore_gold": ("on-time", "weather", "fleet"),
}

_FORGET = "%reset -f"  # the next notebook must not live on what an earlier one named
_TERMINAL_WIDTH = 100


def lake_environment(lake: Path) -> dict[str, str]:
    """What leads the command and the notebooks to the demo's lake."""
    return {"STRANDLINE_LAKE__ROOT": str(lake), "STRANDLINE_SOURCE__NAME": DATABASE}


def executed(notebooks: Sequence[Path], environment: Mapping[str, str], last_cell: str = "") -> dict[str, NotebookNode]:
    """Run notebooks one after the other in one kernel, and so with one Spark session; return them with their outputs, by name.

    I/O: starts a kernel in the notebooks' folder; a cell's error is raised.

    Args:
        notebooks: Databricks-source files of one folder.
        environment: On top of the process's own.
        last_cell: Code that is run at the end of each.
    """
    parts = [[*jupytext.read(file).cells, new_code_cell(last_cell), new_code_cell(_FORGET)] for file in notebooks]
    whole = new_notebook(cells=[cell for part in parts for cell in part])
    place = {"metadata": {"path": str(notebooks[0].parent)}}
    NotebookClient(whole, timeout=300, kernel_name="python3", resources=place).execute(env=dict(environment))
    found, start = {}, 0
    for file, part in zip(notebooks, parts, strict=True):
        found[file.stem] = new_notebook(cells=whole.cells[start : start + len(part) - 1])
        start += len(part)
    return found


def outputs(notebook: NotebookNode, kind: str) -> list[Any]:
    """What its cells show of one MIME type, in order."""
    return [output["data"][kind] for cell in notebook.cells for output in cell.get("outputs", []) if kind in output.get("data", {})]


def drawn_charts(notebook: NotebookNode) -> list[bytes]:
    """Its pictures as PNG files."""
    return [base64.b64decode(picture) for picture in outputs(notebook, "image/png")]


def terminal(lake: Path, rows: int | None) -> str:
    """Run the demo; return its terminal as SVG, which asks for no font from elsewhere."""
    console = Console(record=True, width=_TERMINAL_WIDTH, file=io.StringIO(), force_terminal=False, color_system="truecolor")
    run_demo(Settings(), lake=lake, rows=rows, console=console)
    without_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="strandline demo", code_format=without_fonts)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lake", type=Path, default=Path("lake/demo"), help="an earlier demo's is replaced")
    options.add_argument("--rows", type=int, help="as of the demo")
    given = options.parse_args()
    lake = given.lake.resolve()
    picture = terminal(lake, given.rows)
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir()
    (PICTURES / "demo.svg").write_text(picture, encoding="utf-8")
    for stem, notebook in executed(NOTEBOOKS, lake_environment(lake)).items():
        for name, chart in zip(CHARTS.get(stem, ()), drawn_charts(notebook), strict=False):
            (PICTURES / f"{name}.png").write_bytes(chart)


if __name__ == "__main__":
    main()
