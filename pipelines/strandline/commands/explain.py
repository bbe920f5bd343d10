"""``strandline explain``: the pages of the documentation, in the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from strandline.commands.terminal import out
from strandline.errors import ConfigurationError

_PACKAGE: Final = Path(__file__).parents[1]
_CHECKOUT: Final = _PACKAGE.parents[1]
_OUTSIDE_DOCS: Final = {"settings": "conf/README.md", "quality": "conf/quality/README.md"}
"""Pages of a checkout that are not in its folder `docs`."""
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([a-z-]+)\.md(?:#[^)]*)?\)")
"""Link to another page."""


def pages() -> dict[str, Path]:
    """Return the file of each page by its topic, sorted. A wheel has them in its package, a checkout in `docs`."""
    packaged = _PACKAGE / "pages"
    if packaged.is_dir():
        return {file.stem: file for file in sorted(packaged.glob("*.md"))}
    files = {file.stem: file for file in (_CHECKOUT / "docs").glob("*.md")}
    return dict(sorted((files | {topic: _CHECKOUT / file for topic, file in _OUTSIDE_DOCS.items()}).items()))


def explain(
    topic: Annotated[str | None, typer.Argument(help="Name of a page, such as capture. Without it: a list.")] = None,
) -> None:
    """Show a page of the documentation: settings, tables, commands, and what to do at night."""
    from rich.markdown import Markdown

    from strandline.settings.keys import nearest

    files = pages()
    if topic is None:
        for name, file in files.items():
            title = file.read_text("utf-8").partition("\n")[0].removeprefix("# ")
            out.print(f"{name:<16} {title}", markup=False, highlight=False, soft_wrap=True)
        return
    if topic not in files:
        raise ConfigurationError(
            f"there is no page {topic!r}{nearest(topic, list(files))}", next_step="strandline explain lists them"
        )
    text = _LINK.sub(r"\1 (`strandline explain \2`)", files[topic].read_text("utf-8"))
    if out.is_terminal:
        out.print(Markdown(text))
    else:
        typer.echo(text)
