"""The bundle uses only what the wheel, the command and the settings have. No workspace is needed to check that."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import parsed
from databricks.bundles.jobs import Job

from pipelines.settings.configuration import load_settings

ROOT = Path(__file__).parents[2]
BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text(encoding="utf-8"))
RESOURCE_FILES = sorted(file for pattern in BUNDLE["include"] for file in ROOT.glob(pattern))
RESOURCES: dict[Path, dict[str, Any]] = {
    file: yaml.safe_load(file.read_text(encoding="utf-8")) for file in RESOURCE_FILES
}
JOBS: dict[str, dict[str, Any]] = {
    name: job for content in RESOURCES.values() for name, job in content["resources"].get("jobs", {}).items()
}
TARGETS = sorted(BUNDLE["targets"])
REFERENCE = re.compile(r"\$\{([^}]+)\}")
# What the bundle's own language offers, as far as it is used here.
BUILT_IN = {"bundle.name", "bundle.target", "workspace.file_path", "workspace.current_user.short_name"}


def texts(node: Any) -> Iterator[str]:
    """Every string below *node*, keys included."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from texts(key)
            yield from texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value)
    elif isinstance(node, str):
        yield node


def references() -> set[str]:
    return {found for text in texts([BUNDLE, *RESOURCES.values()]) for found in REFERENCE.findall(text)}


def wheel_tasks() -> list[Any]:
    return [
        pytest.param(job, task, id=f"{name}.{task['task_key']}")
        for name, job in JOBS.items()
        for task in job["tasks"]
        if "python_wheel_task" in task
    ]


def resolved(text: str, target: str) -> str:
    """As the bundle would: its files lie where the conf folder is."""
    return text.replace("${bundle.target}", target).replace("${workspace.file_path}", str(ROOT))


def test_every_include_matches_and_every_resource_is_included() -> None:
    assert all(list(ROOT.glob(pattern)) for pattern in BUNDLE["include"])
    assert sorted((ROOT / "conf" / "resources").iterdir()) == RESOURCE_FILES


def test_one_resource_a_file_named_after_it() -> None:
    assert set(JOBS) == {"capture", "silver", "gold", "maintain"}
    for file, content in RESOURCES.items():
        assert set(content) == {"resources"}
        assert [(kind, list(named)) for kind, named in content["resources"].items()] == [
            ("jobs", [file.name.removesuffix(".job.yml")])
        ]


def test_every_reference_is_declared_and_every_variable_used() -> None:
    declared = {f"var.{name}" for name in BUNDLE["variables"]}
    jobs = {f"resources.jobs.{name}.id" for name in JOBS}
    assert references() <= declared | jobs | BUILT_IN
    assert declared <= references()


@pytest.mark.parametrize("target", TARGETS)
def test_targets_only_set_declared_variables(target: str) -> None:
    assert set(BUNDLE["targets"][target].get("variables", {})) <= set(BUNDLE["variables"])


def test_variables_have_a_default_and_say_what_they_are() -> None:
    assert [
        name
        for name, variable in BUNDLE["variables"].items()
        if "default" not in variable or not variable["description"]
    ] == []


def test_dev_is_a_developers_own_and_prod_runs_as_a_service_principal() -> None:
    dev, prod = BUNDLE["targets"]["dev"], BUNDLE["targets"]["prod"]
    assert (dev["mode"], dev["default"], prod["mode"]) == ("development", True, "production")
    assert dev["variables"]["schema"] == "${workspace.current_user.short_name}"
    assert prod["run_as"] == {"service_principal_name": "${var.service_principal}"}
    assert "Shared" not in prod["workspace"]["root_path"], (
        "everybody may write there, the conf that prod reads included"
    )


@pytest.mark.parametrize("name", sorted(JOBS))
def test_databricks_accepts_the_job(name: str) -> None:
    Job.from_dict(JOBS[name])


def test_databricks_refuses_a_field_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="retrys"):
        Job.from_dict({**JOBS["gold"], "retrys": 3})


@pytest.mark.parametrize("name", sorted(JOBS))
def test_tasks_name_clusters_and_tasks_that_exist(name: str) -> None:
    job = JOBS[name]
    clusters = {cluster["job_cluster_key"] for cluster in job.get("job_clusters", [])}
    keys = {task["task_key"] for task in job["tasks"]}
    assert {task["job_cluster_key"] for task in job["tasks"] if "job_cluster_key" in task} == clusters
    assert {needed["task_key"] for task in job["tasks"] for needed in task.get("depends_on", [])} <= keys
    assert job["max_concurrent_runs"] == 1, "one writer a table"


def test_a_continuous_job_is_one_task_without_a_retry_policy() -> None:
    (task,) = JOBS["capture"]["tasks"]
    assert "continuous" in JOBS["capture"]
    assert {"depends_on", "max_retries", "min_retry_interval_millis"}.isdisjoint(task), (
        "Databricks refuses them in a continuous job"
    )


def test_gold_is_built_after_silver() -> None:
    silver = {task["task_key"]: task for task in JOBS["silver"]["tasks"]}
    assert silver["gold"]["run_job_task"] == {"job_id": "${resources.jobs.gold.id}"}
    assert silver["gold"]["depends_on"] == [{"task_key": "silver"}]
    assert {"trigger", "schedule", "continuous"}.isdisjoint(JOBS["gold"])


def test_upkeep_comes_once_a_day_and_needs_no_source() -> None:
    assert JOBS["maintain"]["trigger"] == {"periodic": {"interval": 1, "unit": "DAYS"}}
    assert "STRANDLINE_SOURCE__URI" not in dict(environment(JOBS["maintain"]))


def test_quality_pages_outlast_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = dict(environment(JOBS["gold"]))["STRANDLINE_QUALITY__DOCS_DIR"]
    assert folder == "/Volumes/${var.catalog}/${var.schema}_control/quality_docs"
    monkeypatch.setenv("STRANDLINE_QUALITY__DOCS_DIR", folder)
    monkeypatch.setenv("STRANDLINE_LAKE__CATALOG", "main")
    assert load_settings("prod", ROOT / "conf").quality.docs_dir == folder


@pytest.mark.parametrize("name", sorted(JOBS))
def test_triggers_are_left_for_the_target_to_pause(name: str) -> None:
    assert "pause_status" not in set(texts(JOBS[name])), "an explicit one would run dev's job, too"


@pytest.mark.parametrize(("job", "task"), wheel_tasks())
def test_the_entry_point_is_the_console_script(job: dict[str, Any], task: dict[str, Any]) -> None:  # noqa: ARG001  # why: one list of cases
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheel = task["python_wheel_task"]
    assert wheel["package_name"] == project["name"]
    script = project["scripts"][wheel["entry_point"]]
    assert callable(EntryPoint(wheel["entry_point"], script, "console_scripts").load())


@pytest.mark.parametrize("file", RESOURCE_FILES, ids=lambda file: file.stem)
def test_the_wheel_is_looked_for_where_the_build_leaves_it(file: Path) -> None:
    for job in RESOURCES[file]["resources"]["jobs"].values():
        for task in job["tasks"]:
            for library in task.get("libraries", []):
                assert Path(os.path.normpath(file.parent / library["whl"])) == ROOT / "dist" / "*.whl"
    assert BUNDLE["artifacts"]["strandline"] == {"type": "whl", "path": ".", "build": "python -m build --wheel"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("job", "task"), wheel_tasks())
def test_the_command_understands_the_parameters(job: dict[str, Any], task: dict[str, Any], target: str) -> None:  # noqa: ARG001  # why: as above
    path, options = parsed([resolved(text, target) for text in task["python_wheel_task"]["parameters"]])
    assert path[0] == task["task_key"]
    assert (options["target"], options["conf"]) == (target, ROOT / "conf")


@pytest.mark.parametrize(
    "arguments",
    [["--targte", "dev", "capture"], ["capture", "--onec"], ["captrue"], ["--log-format", "xml", "gold"]],
    ids=" ".join,
)
def test_a_wrong_parameter_would_be_seen(arguments: list[str]) -> None:
    with pytest.raises(
        Exception, match=r"No such|not one of"
    ) as refused:  # the command's parser has exceptions of its own
        parsed(arguments)
    assert getattr(refused.value, "exit_code", None) == 2


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("job", "task"), wheel_tasks())
def test_settings_of_a_job(
    job: dict[str, Any], task: dict[str, Any], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the cluster: its environment over conf/<target>.yml."""
    (cluster,) = [
        entry["new_cluster"] for entry in job["job_clusters"] if entry["job_cluster_key"] == task["job_cluster_key"]
    ]
    monkeypatch.delenv("MONGODB_URI", raising=False)
    for variable in [name for name in os.environ if name.startswith("STRANDLINE_")]:
        monkeypatch.delenv(variable)
    for variable, value in cluster["spark_env_vars"].items():
        monkeypatch.setenv(variable, value)
    settings = load_settings(target, ROOT / "conf")
    assert (settings.lake.root, settings.lake.catalog, settings.lake.schema_prefix) == (
        None,
        "${var.catalog}",
        "${var.schema}",
    )
    assert settings.spark.master is None
    assert (settings.source.uri is not None) == (task["task_key"] == "capture"), (
        "only capture needs the connection string"
    )


def test_the_secret_is_a_reference_in_the_environment_of_capture_alone() -> None:
    secret = "{{secrets/${var.secret_scope}/mongodb-uri}}"
    found = [
        (name, variable) for name, job in JOBS.items() for variable, value in environment(job) if "secrets/" in value
    ]
    assert found == [("capture", "STRANDLINE_SOURCE__URI")]
    assert dict(environment(JOBS["capture"]))["STRANDLINE_SOURCE__URI"] == secret
    assert [text for text in texts([BUNDLE, *RESOURCES.values()]) if "secrets/" in text] == [secret]


def environment(job: dict[str, Any]) -> list[tuple[str, str]]:
    return [pair for entry in job["job_clusters"] for pair in entry["new_cluster"]["spark_env_vars"].items()]


@pytest.mark.parametrize(
    "file", [ROOT / "databricks.yml", *sorted((ROOT / "conf").rglob("*.yml"))], ids=lambda file: file.name
)
def test_no_file_holds_a_secret(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert (
        re.findall(r"mongodb(?:\+srv)?://\S*|dapi[0-9a-f]{16,}|dose[0-9a-f]{16,}|(?i:password|token)\s*:\s*\S+", text)
        == []
    )
