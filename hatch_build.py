"""Build of the wheel: the JAR with the log stores for folders and S3 (`java/src`), and the metadata of the repository.

The build has no network and no JARs of Spark. So `java/stubs` declares the few methods of Delta and Hadoop that the log
stores call. A test compares the classes with those that are compiled against the real JARs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # `python hatch_build.py` compiles without the build backend
    BuildHookInterface = MetadataHookInterface = object  # type: ignore[assignment,misc]  # why: only a build needs them

ROOT = Path(__file__).parent
JAR = Path("pipelines", "strandline", "io", "spark", "strandline-log-stores.jar")
_SOURCES = ROOT / "java" / "src"
_STUBS = ROOT / "java" / "stubs"
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # of the ZIP format: the same sources give the same JAR


class BuildHook(BuildHookInterface):  # type: ignore[misc,type-arg]  # why: as above
    """Build the JAR before a wheel or an editable installation, and put the pages of the docs into a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if build_jar(ROOT / JAR):
            build_data["artifacts"].append(JAR.as_posix())
        if version == "standard":  # an editable installation reads the pages where they are
            build_data["force_include"] |= {str(ROOT / page): f"strandline/pages/{name}" for page, name in pages()}


class MetadataHook(MetadataHookInterface):  # type: ignore[misc]  # why: as above
    """Adds the addresses of the repository, and a README with them.

    The release workflow puts them into ``PROJECT_URL`` and ``PROJECT_REF``. A source distribution keeps what it has.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get("PROJECT_URL", "")
        files = f"{repository}/blob/{os.environ.get('PROJECT_REF', 'main')}" if repository else ""
        metadata["urls"] = (
            {
                "Homepage": repository,
                "Documentation": f"{files}/docs/start.md",
                "Changelog": f"{files}/CHANGELOG.md",
                "Source": repository,
                "Issues": f"{repository}/issues",
            }
            if repository
            else {}
        )
        text = readme_of_index((ROOT / "README.md").read_text(encoding="utf-8"), files)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def readme_of_index(text: str, files: str) -> str:
    """Return the README for a package index, which has no files beside it. Pure.

    Args:
        files: Address of the files. Empty: not known, so pictures are left out, and links keep only their text.
    """
    picture, link = r"!\[([^\]]*)\]\((docs/[^)]+)\)", r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)"
    if not files:
        text = re.sub(r"\n\| !\[.*", "", text, flags=re.DOTALL)  # the table of pictures at the end
        return re.sub(link, r"\1", re.sub(rf"{picture}\n?", "", text))
    return re.sub(link, rf"[\1]({files}/\2)", re.sub(picture, rf"![\1]({files}/\2?raw=true)", text))


def pages() -> list[tuple[str, str]]:
    """Return the pages of the documentation and their names in the wheel (`strandline explain`)."""
    files = [(f"docs/{page.name}", page.name) for page in sorted((ROOT / "docs").glob("*.md"))]
    return [*files, ("conf/README.md", "settings.md"), ("conf/quality/README.md", "quality.md")]


def build_jar(jar: Path) -> bool:
    """Compile the JAR. False: there is no compiler, and the JAR is not built."""
    javac = shutil.which("javac")
    if javac is None:
        jar.unlink(missing_ok=True)
        sys.stderr.write("strandline: no javac, so this build has no log stores for Spark -> install a JDK 17\n")
        return False
    with tempfile.TemporaryDirectory() as folder:
        compile_classes(javac, Path(folder), ["-sourcepath", str(_STUBS), "-implicit:none"])
        with zipfile.ZipFile(jar, "w") as archive:
            for file in sorted(Path(folder).rglob("*.class")):
                entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), _FIRST_DATE)
                archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return True


def build_if_changed() -> None:
    """Compile the JAR of a checkout, if it is older than a source."""
    jar = ROOT / JAR
    built = jar.stat().st_mtime if jar.exists() else 0.0
    if any(source.stat().st_mtime > built for source in _SOURCES.rglob("*.java")):
        build_jar(jar)


def compile_classes(javac: str, folder: Path, where: Sequence[str]) -> None:
    """Compile the sources into *folder*.

    Args:
        where: Options of javac that name the classes of Delta and Hadoop.
    """
    options = ["--release", "17", "-encoding", "UTF-8", "-Xlint:all,-rawtypes", "-Werror", "-proc:none"]
    sources = [str(file) for file in sorted(_SOURCES.rglob("*.java"))]
    subprocess.run([javac, *options, *where, "-d", str(folder), *sources], check=True)


if __name__ == "__main__":
    sys.exit(0 if build_jar(ROOT / JAR) else 1)
