"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_MODULES = sorted((ROOT / "pipelines").rglob("*.py"))
_MAX_FILE_LINES, _MAX_FUNCTION_LINES = 400, 40
_FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "core", "stuff"}
# They ask first whether the session is one of Spark Connect; tests/integration/test_connect.py goes the other way.
_BESIDE_CONNECT = {
    "pipelines/strandline/bronze/stream_rows.py": {"sparkContext"},
    "pipelines/strandline/io/tables/log_store_check.py": {"sparkContext", "_jvm"},
    "pipelines/strandline/io/spark/worker_code.py": {"sparkContext"},
}
_REGISTRY_HOSTS = (  # in parts: the test reads itself, too
    ("pypi", "org"),
    ("pypi", "python", "org"),
    ("files", "pythonhosted", "org"),
    ("repo1", "maven", "org"),
    ("repo", "maven", "apache", "org"),
    ("repos", "spark-packages", "org"),
    ("registry", "npmjs", "org"),
    ("conda", "anaconda", "org"),
)
_ARTIFACT_STORES = re.compile(
    "|".join(["arti" + "factory", "nexus" + r"\.", "index" + r"-url[ =]+\S*/", r"--find" + r"-links[ =]+\S*/"])
)
_SUPPRESSION = re.compile(r"#\s*(?:type:\s*ignore|noqa|pragma:\s*no cover)")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _committed_text() -> list[tuple[str, str]]:
    """Every tracked file that is text. A source distribution without git has none to check."""
    if not (ROOT / ".git").exists():
        return []
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    texts = []
    for name in filter(None, listed):
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b"\0"
        if b"\0" not in content:
            texts.append((name, content.decode("utf-8", "replace")))
    return texts


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_files_stay_readable(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= _MAX_FILE_LINES


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_functions_stay_readable(path: Path) -> None:
    """Lines of code: a docstring may be as long as it has something to say."""
    for function in _functions(path):
        first = function.body[0]
        has_docstring = (
            isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        )
        docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
        assert (function.end_lineno or 0) - function.lineno + 1 - docstring <= _MAX_FUNCTION_LINES, function.name


def test_no_module_has_a_name_without_meaning() -> None:
    assert [
        _name(path) for path in _MODULES if path.stem in _FORBIDDEN_NAMES or path.parent.name in _FORBIDDEN_NAMES
    ] == []


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_no_module_uses_the_jvm_directly(path: Path) -> None:
    """Spark Connect and serverless have no `_jvm` and no `sparkContext`."""
    names = {
        node.attr for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Attribute)
    }
    assert names & {"_jvm", "_jsc", "_jdf", "_sc", "sparkContext", "rdd"} <= _BESIDE_CONNECT.get(_name(path), set())


@pytest.mark.parametrize("path", [*_MODULES, *sorted((ROOT / "tests").rglob("*.py"))], ids=_name)
def test_every_suppression_says_why(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    if path == Path(__file__):
        return  # its own pattern is no suppression
    assert [
        f"line {number}" for number, line in enumerate(lines, 1) if _SUPPRESSION.search(line) and "why:" not in line
    ] == []


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_only_the_session_module_builds_a_session(path: Path) -> None:
    if _name(path) != "pipelines/strandline/io/spark/session.py":
        assert not re.search(r"SparkSession\s*\.\s*builder", path.read_text(encoding="utf-8"))


def test_no_committed_file_names_a_package_registry() -> None:
    """Where packages come from is the machine's configuration, not the project's."""
    hosts = [".".join(parts) for parts in _REGISTRY_HOSTS]
    found = [
        name for name, text in _committed_text() if any(host in text for host in hosts) or _ARTIFACT_STORES.search(text)
    ]
    assert found == []


def test_every_locked_package_has_a_hash() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        entries = re.split(r"\n(?=[a-z0-9])", lock.read_text(encoding="utf-8"))[1:]
        assert entries, lock.name
        assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
        assert "\n-e " not in lock.read_text(encoding="utf-8")


def test_test_modules_have_unique_names() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))


def test_modules_that_tests_share_are_in_tests_support() -> None:
    assert [path.name for path in (ROOT / "tests").glob("*.py")] == ["conftest.py"]


def test_test_names_say_input_and_outcome() -> None:
    names = re.findall(r"def (test_\w+)", "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")))
    assert [name for name in names if re.match(r"test_(what|who|whoever|whatever|nothing|nobody|where)_", name)] == []


# Names of the preview versions. The glossary in docs/architecture.md has their replacements.
_OLD_NAMES = """
    Means Patience Beside Head Arrivals newcomers SignalDesk SourceLook CaughtUp on_each SetAside SetAsides HEAVY
    Narrowing Intake Filling Landed Taken Contended News Ledger Survey survey halves Half Completed Driving Layouts
    patiently unseen_arrivals light_event merge_by_halves halves_of survey_of safe_floor having_met keep_for bring_up
"""
_RIDDLE = re.compile(r"(?:I/O: )?(?:What|Whether|Of|How far|Who|By what|With what|The same|Those)\b")


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_no_name_of_the_preview_versions_is_left(path: Path) -> None:
    names = {
        value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for field in ("name", "id", "attr", "arg")
        if isinstance(value := getattr(node, field, None), str)
    }
    assert names & set(_OLD_NAMES.split()) == set()


# A name is a noun for a thing or a verb for an action. These say only that something has happened to a thing.
_PARTICIPLES = {"done", "each", "found", "given", "here", "kept", "known", "landed", "opened", "said", "stored"}
_PARTICIPLES |= {"told", "wanted"}
# They are also keys of JSON that users read.
_FIELDS_OF_JSON = {"Finding.found", "SnapshotState.landed", "Worker.found"}


def _bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each name that *tree* binds, with its line: variables, parameters, attributes, functions."""
    of_json = {
        id(field.target)
        for model in ast.walk(tree)
        if isinstance(model, ast.ClassDef)
        for field in model.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and f"{model.name}.{field.target.id}" in _FIELDS_OF_JSON
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store) and id(node) not in of_json:
            yield node.id if isinstance(node, ast.Name) else node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.strip("_") != "read":
            yield node.name, node.lineno


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_a_name_is_a_noun_or_a_verb_and_not_a_participle(path: Path) -> None:
    bindings = _bindings(ast.parse(path.read_text(encoding="utf-8")))
    refused = _PARTICIPLES | {"read"}  # a function may be called so: there it is a verb
    refused -= {"opened"} if path.name == "elections.py" else set()  # a method that PyMongo's listener names
    assert [f"line {line}: {name}" for name, line in bindings if name.strip("_").lower() in refused] == []


@pytest.mark.parametrize("path", _MODULES, ids=_name)
def test_docstrings_begin_with_a_noun_phrase_or_an_imperative(path: Path) -> None:
    texts = (
        node.value.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    assert [text.splitlines()[0] for text in texts if _RIDDLE.match(text)] == []


def test_the_folders_of_io_import_downwards_only_also_for_types() -> None:
    """The contract on imports skips those for types alone."""
    floors = ["telemetry", "delta_log", "spark", "tables"]
    rooms = ROOT / "pipelines" / "strandline" / "io"
    assert sorted(room.name for room in rooms.iterdir() if (room / "__init__.py").exists()) == sorted(floors)
    upward = [
        f"{_name(path)} imports {above}"
        for floor in floors
        for path in (rooms / floor).glob("*.py")
        for above in floors[floors.index(floor) + 1 :]
        if f"from strandline.io.{above}" in path.read_text(encoding="utf-8")
    ]
    assert upward == []
