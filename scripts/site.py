"""Collects the pages of the documentation site in `.site`, where MkDocs builds it from.

Pages stand where readers of the repository look for them. Links between them are rewritten for the site. A link to a file that is no page
becomes the file's path.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
SITE: Final = ROOT / ".site"
_ELSEWHERE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "conf/README.md": "settings.md",
    "conf/quality/README.md": "quality.md",
}
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)#:]*)(#[^)]*)?\)")


def pages() -> dict[Path, Path]:
    """Each page of the repository to its place on the site."""
    found = {ROOT / name: SITE / target for name, target in _ELSEWHERE.items()}
    return found | {file: SITE / file.relative_to(ROOT / "docs") for file in sorted((ROOT / "docs").rglob("*.md"))}


def rewritten(text: str, file: Path, places: dict[Path, Path]) -> str:
    """The page's text with its links as the site needs them."""

    def link(match: re.Match[str]) -> str:
        image, shown, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target:
            return match[0]
        linked = (file.parent / target).resolve()
        if linked in places:
            return f"{image}[{shown}]({os.path.relpath(places[linked], places[file].parent)}{anchor})"
        if image:
            return f"![{shown}]({os.path.relpath(SITE / linked.relative_to(ROOT / 'docs'), places[file].parent)})"
        return f"{shown} (`{linked.relative_to(ROOT)}`)"

    return _LINK.sub(link, text)


def decisions_index() -> str:
    """The list of decision records, by number and title."""
    files = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    titles = ((file.name, file.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")) for file in files)
    return "# Decisions\n\n" + "".join(f"- [{title}]({name})\n" for name, title in titles)


def main() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    places = pages()
    for file, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(rewritten(file.read_text(encoding="utf-8"), file, places), encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "pictures", SITE / "pictures")
    (SITE / "decisions" / "index.md").write_text(decisions_index(), encoding="utf-8")


if __name__ == "__main__":
    main()
