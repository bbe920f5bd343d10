"""The wheel on Databricks: its ranges admit the packages that each runtime brings."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from strandline.io.spark.spark_versions import SUPPORTED, minor_of

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNTIMES: list[dict[str, Any]] = yaml.safe_load((ROOT / "tests" / "databricks_runtimes.yml").read_text("utf-8"))
BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text(encoding="utf-8"))
QUALITY = PROJECT["optional-dependencies"]["quality"]
"""The silver job installs it beside the wheel."""
DIRECT = {(requirement := Requirement(line)).name.lower(): requirement for line in [*PROJECT["dependencies"], *QUALITY]}

each_runtime = pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: str(runtime["runtime"]))


@each_runtime
def test_the_spark_and_the_python_of_the_runtime_are_supported(runtime: dict[str, Any]) -> None:
    assert minor_of(runtime["spark"]) in SUPPORTED
    assert runtime["python"] in SpecifierSet(PROJECT["requires-python"])


def refused(wanted: Iterable[Requirement], found: dict[str, str]) -> set[str]:
    """Packages of the runtime that *wanted* does not admit."""
    named = ((requirement.name.lower().replace("_", "-"), requirement) for requirement in wanted)
    return {name for name, requirement in named if name in found and found[name] not in requirement.specifier}


@each_runtime
@pytest.mark.parametrize("extra", ["aws", "openlineage", "otel", "readers"])
def test_an_extra_installs_over_no_package_of_the_runtime_but_the_known_ones(
    runtime: dict[str, Any], extra: str
) -> None:
    """The extra's own packages fit the runtime. Each package in `replaced_by_extras` is one that their dependencies
    need in another version; the head of the file says how the list was made."""
    wanted = [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
    assert refused(wanted, runtime["packages"]) == set()
    needed = [Requirement(line) for one in wanted for line in requires(one.name) or []]
    assert set(runtime["replaced_by_extras"].get(extra, [])) <= refused(needed, runtime["packages"])


@each_runtime
def test_the_wheel_installs_over_no_package_of_the_runtime_but_the_known_ones(runtime: dict[str, Any]) -> None:
    indirect = [Requirement(line) for name in DIRECT for line in requires(name) or []]
    by_wheel = refused(DIRECT.values(), runtime["packages"])
    assert by_wheel <= set(runtime["replaced"])
    needed = refused((one for one in indirect if one.marker is None), runtime["packages"])
    assert set(runtime["replaced"]) <= by_wheel | needed


def test_the_bundle_names_a_runtime_and_an_environment_that_are_listed() -> None:
    names = [str(runtime["runtime"]) for runtime in RUNTIMES]
    default = {name: variable.get("default") for name, variable in BUNDLE["variables"].items()}
    assert f"{default['spark_version'].split('.')[0]} LTS" in names
    assert f"serverless {default['environment_version']}" in names
