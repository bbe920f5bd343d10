"""The entry point as a wheel task of Databricks calls it: from the package's metadata, in an IPython process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

# A task's process: the parameters are sys.argv, and the page of a run shows what the cell raised.
_TASK = """
import json, sys, threading
from importlib.metadata import entry_points
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
cell = "import sys; sys.argv = ['strandline', *parameters]; entry.load()()"
(entry,) = entry_points(group="console_scripts", name="strandline")
tasks = json.loads(sys.argv[1])
told = {}
def run(place):
    for parameters in tasks:
        shell.push({"entry": entry, "parameters": parameters})
        ran = shell.run_cell(cell, silent=True)
        error = ran.error_before_exec or ran.error_in_exec
        raised = None if error is None else [type(error).__name__, str(error), error.__cause__ is None]
        told.setdefault(place, []).append(raised)
run("main")
thread = threading.Thread(target=run, args=["thread"])
thread.start()
thread.join()
print(json.dumps(told))
"""
_TASKS = {
    "success": ["version"],
    "a refusal": ["--conf", "/nowhere", "silver"],
    "a wrong option": ["--targte", "dev", "silver"],
    "a wrong setting": ["--set", "lake.catalgo=main", "silver"],
    "help": ["--help"],
    "one signal handler": ["--conf", "/nowhere", "capture"],
}


@pytest.fixture(scope="module")
def all_told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Outcome of each task, in the main thread and in another one: class and text of its error, or nothing."""
    folder = tmp_path_factory.mktemp("task")
    env = {name: value for name, value in os.environ.items() if not name.startswith("STRANDLINE_")}
    env |= {"DATABRICKS_RUNTIME_VERSION": "18", "IPYTHONDIR": str(folder), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", _TASK, json.dumps(list(_TASKS.values()))]
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    return {place: dict(zip(_TASKS, raised, strict=True)) for place, raised in found.items()}


@pytest.fixture(params=["main", "thread"])
def told(request: pytest.FixtureRequest, all_told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return all_told[request.param]


def test_a_successful_command_returns_without_an_exception(told: dict[str, Any]) -> None:
    assert told["success"] is None
    assert told["help"] is None


@pytest.mark.parametrize(
    ("task", "start"),
    [
        ("a refusal", "no folder /nowhere"),
        ("a wrong option", "No such option: --targte"),
        ("a wrong setting", "--set lake.catalgo: unknown key lake.catalgo (did you mean catalog?)"),
        ("one signal handler", "no folder /nowhere"),
    ],
)
def test_the_page_of_a_run_shows_the_refusal_and_its_next_step(told: dict[str, Any], task: str, start: str) -> None:
    kind, text, has_no_cause = told[task]
    assert kind == "ConfigurationError"
    assert text.startswith(start)
    assert " → " in text
    assert "\n" not in text
    assert has_no_cause
