"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import pkgutil
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """A docstring may be as long as it has something to say."""
    first = function.body[0]
    has_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


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


def test_files_stay_readable() -> None:
    sizes = {_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in _MODULES}
    assert {name: lines for name, lines in sizes.items() if lines > _MAX_FILE_LINES} == {}


def test_functions_stay_readable() -> None:
    assert [
        f"{_name(path)}: {node.name}"
        for path in _MODULES
        for node in _nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _lines_of_code(node) > _MAX_FUNCTION_LINES
    ] == []


def test_no_module_has_a_name_without_meaning() -> None:
    assert [
        _name(path) for path in _MODULES if path.stem in _FORBIDDEN_NAMES or path.parent.name in _FORBIDDEN_NAMES
    ] == []


def test_no_module_uses_the_jvm_directly() -> None:
    """Spark Connect and serverless have no `_jvm` and no `sparkContext`."""
    refused = {"_jvm", "_jsc", "_jdf", "_sc", "sparkContext", "rdd"}
    assert [
        f"{_name(path)}, line {node.lineno}: {node.attr}"
        for path in _MODULES
        for node in _nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in refused - _BESIDE_CONNECT.get(_name(path), set())
    ] == []


def test_every_suppression_says_why() -> None:
    paths = {*_MODULES, *(ROOT / "tests").rglob("*.py")} - {Path(__file__)}  # its own pattern is no suppression
    assert [
        f"{_name(path)}, line {number}"
        for path in sorted(paths)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _SUPPRESSION.search(line) and "why:" not in line
    ] == []


def test_only_the_session_module_builds_a_session() -> None:
    builders = [path for path in _MODULES if re.search(r"SparkSession\s*\.\s*builder", path.read_text("utf-8"))]
    assert [_name(path) for path in builders] == ["pipelines/strandline/io/spark/session.py"]


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


_RIDDLE = re.compile(r"(?:I/O: )?(?:What|Whether|Of|How far|Who|By what|With what|The same|Those)\b")


# A name is a noun for a thing or a verb for an action. These say only that something has happened to a thing.
_PARTICIPLES = {"done", "each", "found", "given", "here", "kept", "known", "landed", "opened", "said", "stored"}
_PARTICIPLES |= {"told", "wanted"}
# They are also keys of JSON that users read.
_FIELDS_OF_JSON = {"Finding.found", "SnapshotState.landed", "Worker.found"}


def _bindings(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield each name that *nodes* bind, with its line: variables, parameters, attributes, functions."""
    of_json = {
        id(field.target)
        for model in nodes
        if isinstance(model, ast.ClassDef)
        for field in model.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and f"{model.name}.{field.target.id}" in _FIELDS_OF_JSON
    }
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store) and id(node) not in of_json:
            yield node.id if isinstance(node, ast.Name) else node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.strip("_") != "read":
            yield node.name, node.lineno


def test_a_name_is_a_noun_or_a_verb_and_not_a_participle() -> None:
    refused = _PARTICIPLES | {"read"}  # a function may be called so: there it is a verb
    of_libraries = {("elections.py", "opened")}  # a method that PyMongo's listener names
    assert [
        f"{_name(path)}, line {line}: {name}"
        for path in _MODULES
        for name, line in _bindings(_nodes(path))
        if name.strip("_").lower() in refused and (path.name, name) not in of_libraries
    ] == []


def test_every_name_that_a_test_replaces_exists() -> None:
    """Tests that run seldom, too. A replaced name that nobody uses any more makes such a test fail, or test nothing."""
    tests = (ROOT / "tests").rglob("*.py")
    calls = (node for path in tests for node in _nodes(path) if isinstance(node, ast.Call) and node.args)
    setters = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "setattr")
    replaced = {call.args[0].value for call in setters if isinstance(call.args[0], ast.Constant)}
    assert len(replaced) > 20
    for name in replaced:
        pkgutil.resolve_name(name)


def test_docstrings_begin_with_a_noun_phrase_or_an_imperative() -> None:
    assert [
        f"{_name(path)}, line {node.lineno}: {node.value.value.splitlines()[0]}"
        for path in _MODULES
        for node in _nodes(path)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and _RIDDLE.match(node.value.value)
    ] == []


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
