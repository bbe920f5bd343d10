"""Copy the pages of the documentation site to `.site`, from which MkDocs builds it.

Pages are in the repository folders where readers expect them. Links between pages are rewritten for the site. A link to
a file that is not a page becomes the file's path.

With a version as its argument, it also builds the site and commits it to the local branch gh-pages, beside the versions
that are there. The release workflow pushes the branch.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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
    "docs/decisions/README.md": "decisions/index.md",
}
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)#:]*)(#[^)]*)?\)")


def pages() -> dict[Path, Path]:
    """Return the path on the site for each page of the repository."""
    found = {file: SITE / file.relative_to(ROOT / "docs") for file in sorted((ROOT / "docs").rglob("*.md"))}
    return found | {ROOT / name: SITE / target for name, target in _ELSEWHERE.items()}


def rewritten(text: str, file: Path, places: dict[Path, Path]) -> str:
    """Return the text of a page with its links rewritten for the site."""

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


def commit_version(version: str) -> None:
    """Build the site and commit it as *version*, which becomes `latest`. I/O: writes the branch gh-pages."""
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"  # mike starts mkdocs by its name
    environment = os.environ | {"PATH": path, "SITE_VERSIONS": "mike", "NO_MKDOCS_2_WARNING": "1"}
    for arguments in (["deploy", "--update-aliases", version, "latest"], ["set-default", "latest"]):
        subprocess.run([programs / "mike", "--quiet", *arguments], cwd=ROOT, env=environment, check=True)


def main() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    places = pages()
    for file, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(rewritten(file.read_text(encoding="utf-8"), file, places), encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "pictures", SITE / "pictures")
    for version in sys.argv[1:]:
        commit_version(version)


if __name__ == "__main__":
    main()
