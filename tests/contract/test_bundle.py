"""The bundles use only what the wheel, the command and the settings have. No workspace is needed to check that.

Checked are the repository's bundle and those that `strandline init` writes, in every target.
"""

from __future__ import annotations

import os
import re
import tomllib
import uuid
from collections import Counter
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import sqlglot
import yaml
from command_line import parsed
from databricks.bundles.alerts import Alert
from databricks.bundles.dashboards import Dashboard
from databricks.bundles.jobs import Job
from databricks.bundles.schemas import Schema
from databricks.bundles.secret_scopes import SecretScope
from databricks.bundles.volumes import Volume
from databricks_bundle import REFERENCE, Bundle, files_below, merged, texts
from documented_sql import unknown_columns
from documents import Page

from scripts.bundle import bundle_files
from strandline.project.scaffold import Project, files_of
from strandline.settings.configuration import Settings, load_settings
from strandline.settings.overrides import overrides_of

ROOT = Path(__file__).parents[2]
OWN = files_below(ROOT, "databricks.yml", "resources/*", "conf/*.yml")
LAYOUTS = {
    "repository": OWN,
    "serverless": files_of(
        Project(catalog="main", host="https://adb-1.2.azuredatabricks.net", cloud="azure", warehouse="Team")
    ),
    "classic": files_of(
        Project(
            name="crm_2",
            database="crm",
            collection="people",
            catalog="data-1",
            compute="classic",
            host="https://x.gcp.databricks.com",
            cloud="gcp",
            warehouse="SQL: 1 # all",
        )
    ),
}
TARGETS = ("dev", "staging", "prod")
SERVICE = {"service_principal": "0a1b2c3d-0000-0000-0000-000000000000"}
BUNDLES = {
    (layout, target): Bundle(files, target, values=SERVICE if target != "dev" else {})
    for layout, files in LAYOUTS.items()
    for target in TARGETS
}
MODELS: dict[str, Any] = {
    "jobs": Job,
    "schemas": Schema,
    "volumes": Volume,
    "secret_scopes": SecretScope,
    "alerts": Alert,
    "dashboards": Dashboard,
}
SUFFIXES = {kind: kind.removesuffix("s") for kind in MODELS} | {"schemas": "schemas"}
LAKE_TASKS = [("silver", "silver"), ("silver", "gold"), ("maintain", "maintain"), ("rebuild", "rebuild")]
TASKS = [("capture", "capture"), *LAKE_TASKS]
# why yml: a block of yaml holds settings (`unit/test_docs.py`)
PAGE_PARTS = [yaml.safe_load(block) for block in Page(ROOT / "docs" / "databricks.md").blocks("yml")]

every_bundle = pytest.mark.parametrize("bundle", BUNDLES.values(), ids=["-".join(key) for key in BUNDLES])
every_layout = pytest.mark.parametrize("files", LAYOUTS.values(), ids=LAYOUTS)


def task_of(bundle: Bundle, job: str, task: str) -> dict[str, Any]:
    (found,) = [each for each in bundle.jobs[job]["tasks"] if each["task_key"] == task]
    return found


def test_the_repository_has_the_bundle_of_the_template() -> None:
    expected = bundle_files()
    assert {name: OWN.get(name) for name in expected} == expected, "python -m scripts.bundle writes it"
    assert {name for name in OWN if not name.startswith("conf/")} <= set(expected)


@every_layout
def test_each_resource_file_holds_one_kind_and_is_named_after_it(files: dict[str, str]) -> None:
    assert yaml.safe_load(files["databricks.yml"])["include"] == ["resources/*.yml"]
    for name, content in Bundle(files, "dev").resource_files.items():
        assert set(content) == {"resources"}
        ((kind, named),) = content["resources"].items()
        assert name.endswith(f".{SUFFIXES[kind]}.yml")
        assert kind == "schemas" or list(named) == [Path(name).name.partition(".")[0]]


@every_bundle
def test_no_two_resources_share_a_key(bundle: Bundle) -> None:
    """The CLI refuses a key that two kinds of resources share."""
    counted = Counter(key for named in bundle.raw.values() for key in named)
    assert {key for key, number in counted.items() if number > 1} == set()
    assert set(bundle.raw) == set(MODELS)


@every_bundle
def test_databricks_accepts_every_resource(bundle: Bundle) -> None:
    for resources in (bundle.raw, bundle.resources):
        for kind, named in resources.items():
            for resource in named.values():
                MODELS[kind].from_dict(resource)


@pytest.mark.parametrize("kind", MODELS)
def test_databricks_refuses_a_field_it_does_not_know(kind: str) -> None:
    resource = next(iter(BUNDLES["repository", "dev"].raw[kind].values()))
    with pytest.raises(ValueError, match="retrys"):
        MODELS[kind].from_dict({**resource, "retrys": 3})


@every_layout
def test_a_bundle_has_an_identity_a_host_and_a_machine_of_its_cloud(files: dict[str, str]) -> None:
    root = yaml.safe_load(files["databricks.yml"])
    assert str(uuid.UUID(root["bundle"]["uuid"])) == root["bundle"]["uuid"]
    hosts = {root["targets"][target].get("workspace", {}).get("host") for target in TARGETS}
    machine = root["variables"]["node_type"]["default"]
    assert (hosts, machine) in (
        ({None}, "i3.xlarge"),
        ({"https://adb-1.2.azuredatabricks.net"}, "Standard_DS3_v2"),
        ({"https://x.gcp.databricks.com"}, "n1-standard-4"),
    )


def test_a_bundle_without_a_warehouse_has_neither_alert_nor_dashboard() -> None:
    files, others = files_of(Project(catalog="main")), files_of(Project(catalog="main"))
    assert set(LAYOUTS["serverless"]) - set(files) == {
        "resources/capture_late.alert.yml",
        "resources/operations.dashboard.yml",
    }
    for target in TARGETS:
        bundle = Bundle(files, target, values=SERVICE if target != "dev" else {})
        assert set(bundle.raw) == set(MODELS) - {"alerts", "dashboards"}
        assert bundle.resources
    test_every_variable_is_described_and_used(files)
    assert files["databricks.yml"] != others["databricks.yml"], "each bundle has an identity of its own"


def test_a_workflow_checks_the_project_and_the_wheel_and_restarts_capture() -> None:
    jobs = yaml.safe_load(LAYOUTS["serverless"][".github/workflows/databricks.yml"])["jobs"]
    steps = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    fetched = steps["validate"][:2]
    assert "databricks fs cp" in fetched[0]
    assert "sha256sum --check" in fetched[1]
    assert steps["validate"][2:] == [
        'pip install "$(echo dist/*.whl)[spark]"',
        "strandline doctor --offline",
        "strandline gold test",
        "databricks bundle validate --strict -t staging",
    ]
    for target in ("staging", "prod"):
        restart = f"databricks bundle run capture -t {target} --restart --no-wait"
        assert steps[target] == [*fetched, f"databricks bundle deploy -t {target}", restart]


@every_bundle
def test_every_reference_names_a_resource_that_exists(bundle: Bundle) -> None:
    assert [text for text in texts(bundle.resources) if REFERENCE.search(text)] == []
    bundle.resolved(bundle.chosen)


@every_layout
def test_every_variable_is_described_and_used(files: dict[str, str]) -> None:
    root = yaml.safe_load(files["databricks.yml"])
    used = {found for text in texts([yaml.safe_load(files[name]) for name in files if name.endswith(".yml")])
            for found in REFERENCE.findall(text)}  # fmt: skip
    assert {f"var.{name}" for name in root["variables"]} <= used
    for name, variable in root["variables"].items():
        assert variable["description"].endswith("."), name
        assert {"default", "lookup"} & set(variable), name
    for target in TARGETS:
        assert set(root["targets"][target].get("variables", {})) <= set(root["variables"])


def test_dev_has_schemas_and_a_scope_of_each_developer() -> None:
    dev = BUNDLES["repository", "dev"]
    assert (dev.chosen["mode"], dev.chosen["default"]) == ("development", True)
    for name in [dev.resources["schemas"]["bronze_schema"]["name"], dev.resources["secret_scopes"]["mongodb"]["name"]]:
        assert "alice_b" in name
    assert dev.resources["alerts"]["capture_late"]["schedule"]["pause_status"] == "PAUSED"


@pytest.mark.parametrize("target", ["staging", "prod"])
def test_staging_and_prod_run_as_a_service_principal(target: str) -> None:
    bundle = BUNDLES["repository", target]
    assert bundle.chosen["mode"] == "production"
    assert bundle.resolved(bundle.chosen["run_as"]) == {"service_principal_name": SERVICE["service_principal"]}
    assert bundle.root["variables"]["service_principal"]["default"] == "", "the CLI refuses an empty identity"
    root = bundle.resolved(bundle.chosen["workspace"]["root_path"])
    assert root.startswith(f"/Workspace/Users/{SERVICE['service_principal']}/"), (
        "everybody may write to Shared, the conf that prod reads included"
    )
    principals = [{"group_name": "admins"}, {"service_principal_name": SERVICE["service_principal"]}]
    assert bundle.resolved(bundle.chosen["permissions"]) == [{"level": "CAN_MANAGE", **each} for each in principals]
    own = [resource for named in bundle.resources.values() for resource in named.values() if "permissions" in resource]
    assert own == [], "the CLI warns of a principal that the bundle and a resource name"


def test_targets_in_one_workspace_share_nothing() -> None:
    named = [
        {resource.get("name") or resource.get("display_name") for kind in ("schemas", "secret_scopes") for resource in
         BUNDLES["repository", target].resources[kind].values()}
        for target in TARGETS
    ]  # fmt: skip
    assert len(set.union(*named)) == sum(map(len, named))


def test_a_destroyed_bundle_does_not_take_prods_tables() -> None:
    def kept(target: str) -> set[bool]:
        schemas = BUNDLES["repository", target].resources["schemas"].values()
        return {schema.get("lifecycle", {}).get("prevent_destroy", False) for schema in schemas}

    assert [kept(target) for target in TARGETS] == [{False}, {False}, {True}]


@every_bundle
def test_the_schemas_are_those_that_the_program_uses(bundle: Bundle) -> None:
    assert bundle.root["experimental"]["skip_name_prefix_for_schema"] is True, "the CLI would rename dev's schemas"
    settings = settings_of(bundle, "silver", "silver")
    layers = ("bronze", "silver", "gold", "control")
    found = {key: schema["name"] for key, schema in bundle.resources["schemas"].items()}
    assert found == {f"{layer}_schema": f"{settings.lake.schema_prefix}_{layer}" for layer in layers}
    assert {schema["catalog_name"] for schema in bundle.resources["schemas"].values()} == {settings.lake.catalog}


@every_bundle
def test_the_principal_has_the_rights_that_the_page_on_catalogs_lists(bundle: Bundle) -> None:
    principal = bundle.resolved("${var.principal}")
    assert principal
    for schema in bundle.resources["schemas"].values():
        grants = {each["principal"]: set(each["privileges"]) for each in reversed(schema["grants"])}
        assert grants[principal] >= {"USE_SCHEMA", "CREATE_TABLE", "SELECT", "MODIFY"}
    (grant,) = bundle.resources["volumes"]["quality_docs"]["grants"]
    assert grant == {"principal": principal, "privileges": ["READ_VOLUME", "WRITE_VOLUME"]}


@every_bundle
def test_the_volume_of_the_quality_pages_is_a_resource(bundle: Bundle) -> None:
    volume = bundle.resources["volumes"]["quality_docs"]
    folder = f"/Volumes/{volume['catalog_name']}/{volume['schema_name']}/{volume['name']}"
    assert settings_of(bundle, "silver", "gold").quality.docs_dir == folder


@every_bundle
@pytest.mark.parametrize(("job", "task"), TASKS)
def test_the_command_understands_the_parameters(bundle: Bundle, job: str, task: str) -> None:
    path, options = parsed(bundle.parameters(job, task))
    assert path[0] == task
    assert (options["target"], options["conf"]) == (bundle.target, Path(bundle.folder, "conf"))


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


def settings_of(bundle: Bundle, job: str, task: str, conf: Path = ROOT / "conf") -> Settings:
    """The settings that a task loads: its parameters over its target's file."""
    assignments = parsed(bundle.parameters(job, task))[1]["assignments"]
    return load_settings(bundle.target, conf, overrides_of(assignments, Settings))


@every_bundle
@pytest.mark.parametrize(("job", "task"), TASKS)
def test_a_task_gets_its_settings_by_set(
    bundle: Bundle, job: str, task: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in [name for name in os.environ if name.startswith(("STRANDLINE_", "MONGODB_URI"))]:
        monkeypatch.delenv(variable)
    for variable, value in environment(bundle.jobs[job]):
        monkeypatch.setenv(variable, value)
    for name in ("base", bundle.target):
        (tmp_path / f"{name}.yml").write_text(bundle.files.get(f"conf/{name}.yml", ""), encoding="utf-8")
    settings = settings_of(bundle, job, task, tmp_path)
    assert (settings.lake.root, settings.spark.master) == (None, None)
    assert (settings.lake.catalog, settings.lake.schema_prefix) == (
        bundle.resolved("${var.catalog}"),
        bundle.resolved("${var.schema}"),
    )
    assert (settings.source.uri is not None) == (task == "capture"), "only capture needs the connection string"
    used = bundle.resources["dashboards"]["operations"]["serialized_dashboard"]["datasets"][0]["queryLines"][0]
    assert f"_bronze`.`{settings.source.name}`" in used


def environment(job: dict[str, Any]) -> list[tuple[str, str]]:
    clusters = job.get("job_clusters", [])
    return [pair for each in clusters for pair in each["new_cluster"].get("spark_env_vars", {}).items()]


@every_bundle
def test_the_secret_is_a_reference_in_the_environment_of_capture_alone(bundle: Bundle) -> None:
    secret = f"{{{{secrets/{bundle.resources['secret_scopes']['mongodb']['name']}/mongodb-uri}}}}"
    assert environment(bundle.jobs["capture"]) == [("STRANDLINE_SOURCE__URI", secret)]
    assert [text for text in texts(bundle.resources) if "secrets/" in text] == [secret]


@every_bundle
def test_capture_is_a_classic_single_node(bundle: Bundle) -> None:
    (cluster,) = bundle.jobs["capture"]["job_clusters"]
    assert task_of(bundle, "capture", "capture")["job_cluster_key"] == cluster["job_cluster_key"]
    spec = cluster["new_cluster"]
    # https://docs.databricks.com/dev-tools/bundles/cluster-fields: without all four the CLI warns
    assert spec["num_workers"] == 0
    assert spec["spark_conf"]["spark.databricks.cluster.profile"] == "singleNode"
    assert spec["spark_conf"]["spark.master"].startswith("local")
    assert spec["custom_tags"] == {"ResourceClass": "SingleNode"}
    assert spec["spark_version"] == "18.x-scala2.13", "18 LTS; 18.2 is no supported runtime"


@every_bundle
def test_a_refusal_does_not_start_clusters_for_ever(bundle: Bundle) -> None:
    job = bundle.jobs["capture"]
    assert "continuous" not in job, "a continuous job restarts without a limit, and takes no retry policy"
    assert job["trigger"] == {"periodic": {"interval": 1, "unit": "HOURS"}}
    assert job["queue"] == {"enabled": False}
    assert task_of(bundle, "capture", "capture")["max_retries"] == 1
    for name, task in LAKE_TASKS:
        assert task_of(bundle, name, task)["max_retries"] == 0


@every_bundle
@pytest.mark.parametrize(("job", "task"), LAKE_TASKS)
def test_the_other_tasks_run_where_the_project_says(bundle: Bundle, job: str, task: str) -> None:
    found, kinds = task_of(bundle, job, task), bundle.jobs[job]
    if "environments" in kinds:
        (declared,) = kinds["environments"]
        assert found["environment_key"] == declared["environment_key"]
        assert declared["spec"]["environment_version"] == "5"
        assert "client" not in declared["spec"], "deprecated; the environment version fixes the client"
        assert found["disable_auto_optimization"] is True, "serverless would repeat a refusal"
        assert {"libraries", "job_cluster_key"}.isdisjoint(found)
        assert "job_clusters" not in kinds
    else:
        assert bundle is BUNDLES["classic", bundle.target]
        assert found["job_cluster_key"] == kinds["job_clusters"][0]["job_cluster_key"]
        assert "performance_target" not in kinds


def documented(bundle: Bundle, changes: dict[str, Any], *without: str) -> Bundle:
    """*bundle* with a part of `docs/databricks.md` in its root file, and without keys of `capture` that it replaces."""
    files = dict(bundle.files)
    capture = yaml.safe_load(files["resources/capture.job.yml"])
    for key in without:
        del capture["resources"]["jobs"]["capture"][key]
    files["resources/capture.job.yml"] = yaml.safe_dump(capture)
    files["databricks.yml"] = yaml.safe_dump(merged(bundle.root, changes))
    return Bundle(files, bundle.target, values=bundle.values)


def test_the_page_s_budget_policy_is_one_of_every_serverless_job() -> None:
    budget, _ = PAGE_PARTS
    bundle = documented(BUNDLES["serverless", "prod"], budget)
    for name, job in bundle.jobs.items():
        assert Job.from_dict(job).budget_policy_id == ("<id of the policy>" if "environments" in job else None), name


def test_the_page_s_serverless_capture_is_a_job_that_the_command_understands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, job = PAGE_PARTS
    changes = {"targets": {"prod": {"resources": {"jobs": {"capture": job}}}}}
    bundle = documented(BUNDLES["serverless", "prod"], changes, "trigger", "tasks", "job_clusters")
    assert Job.from_dict(bundle.jobs["capture"]).environments
    assert task_of(bundle, "capture", "capture")["disable_auto_optimization"] is True
    parameters = bundle.parameters("capture", "capture")
    assert (parsed(parameters)[0], parameters[-1]) == (["capture"], "--once"), "serverless compute ends a stream"
    monkeypatch.delenv("STRANDLINE_SOURCE__URI", raising=False)
    (tmp_path / "prod.yml").write_text(bundle.files["conf/prod.yml"], encoding="utf-8")
    settings = settings_of(bundle, "capture", "capture", tmp_path)
    assert settings.capture.snapshot_reader == "driver", "functions on serverless compute cannot reach MongoDB"
    assert settings.source.uri_file is not None


@every_bundle
def test_gold_is_built_after_silver_on_the_same_compute(bundle: Bundle) -> None:
    job = bundle.jobs["silver"]
    assert [task["task_key"] for task in job["tasks"]] == ["silver", "gold"]
    assert task_of(bundle, "silver", "gold")["depends_on"] == [{"task_key": "silver"}]
    assert job["trigger"] == {"periodic": {"interval": 15, "unit": "MINUTES"}}
    assert bundle.jobs["maintain"]["trigger"] == {"periodic": {"interval": 1, "unit": "DAYS"}}
    assert {"trigger", "schedule", "continuous"}.isdisjoint(bundle.jobs["rebuild"])


@every_bundle
def test_somebody_is_told_when_something_is_wrong(bundle: Bundle) -> None:
    notify = bundle.resolved("${var.notify}")
    for name, job in bundle.jobs.items():
        assert job["max_concurrent_runs"] == 1, "one writer a table"
        assert job["email_notifications"]["on_failure"] == [notify]
        assert job["notification_settings"]["no_alert_for_skipped_runs"] is True
        if name != "capture":  # it has no end
            assert job["email_notifications"]["on_duration_warning_threshold_exceeded"] == [notify]
            assert [rule["metric"] for rule in job["health"]["rules"]] == ["RUN_DURATION_SECONDS"]
    alert = bundle.resources["alerts"]["capture_late"]
    assert alert["evaluation"]["notification"]["subscriptions"] == [{"user_email": notify}]


@every_bundle
def test_triggers_are_left_for_the_target_to_pause(bundle: Bundle) -> None:
    assert "pause_status" not in set(texts(bundle.raw["jobs"])), "an explicit one would run dev's job, too"


@pytest.mark.parametrize(("job", "task"), TASKS)
def test_the_entry_point_is_the_console_script(job: str, task: str) -> None:
    bundle = BUNDLES["serverless", "prod"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheel = task_of(bundle, job, task)["python_wheel_task"]
    assert wheel["package_name"] == project["name"]
    script = project["scripts"][wheel["entry_point"]]
    assert callable(EntryPoint(wheel["entry_point"], script, "console_scripts").load())


@every_layout
def test_the_wheel_is_taken_from_dist_and_only_conf_is_synchronized(files: dict[str, str]) -> None:
    root = yaml.safe_load(files["databricks.yml"])
    assert root["sync"] == {"paths": ["conf"]}
    found = [text for name in files if name.startswith("resources/") for text in texts(yaml.safe_load(files[name]))]
    wheels = {text for text in found if text.endswith(".whl")}
    assert {os.path.normpath(f"resources/{wheel}") for wheel in wheels} == {"dist/*.whl"}
    if files is OWN:
        assert root["artifacts"]["strandline"] == {"type": "whl", "path": ".", "build": "uv build --wheel"}
        assert root["presets"]["artifacts_dynamic_version"] is True
    else:
        assert "artifacts" not in root, "a project has no source to build"


@every_bundle
def test_gold_has_great_expectations_in_the_versions_of_the_extra(bundle: Bundle) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = {text for text in texts(bundle.raw["jobs"]) if text.startswith("great-expectations")}
    assert packages == {text for text in project["optional-dependencies"]["quality"] if text in packages}
    assert len(packages) == 1
    job = bundle.jobs["silver"]
    installed = [*texts(job.get("environments", [])), *texts(task_of(bundle, "silver", "gold").get("libraries", []))]
    assert packages <= set(installed)


@every_bundle
def test_queries_read_tables_and_columns_that_exist(bundle: Bundle) -> None:
    dashboard = bundle.resources["dashboards"]["operations"]["serialized_dashboard"]
    queries = {each["name"]: "".join(each["queryLines"]) for each in dashboard["datasets"]}
    alert = bundle.resources["alerts"]["capture_late"]
    prefix = f"`{bundle.resolved('${var.catalog}')}`.`{bundle.resolved('${var.schema}')}_"
    selected = {}
    for name, query in {**queries, "alert": alert["query_text"]}.items():
        assert prefix in query
        by_layer = query.replace(prefix, "").replace("`", "")
        assert unknown_columns(by_layer) == [], name
        selected[name] = sqlglot.parse_one(query, dialect="databricks").named_selects
    assert selected["alert"] == [alert["evaluation"]["source"]["name"]]
    for page in dashboard["pages"]:
        names = [each["widget"]["name"] for each in page["layout"]]
        assert len(names) == len(set(names))
        for each in page["layout"]:
            (query,) = each["widget"]["queries"]
            fields = {found["name"] for found in query["query"]["fields"]}
            assert fields <= set(selected[query["query"]["datasetName"]])
            shown = {text for text in texts(each["widget"]["spec"]["encodings"]) if text in fields}
            assert shown == fields


@pytest.mark.parametrize("file", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda file: file.stem)
def test_notebooks_open_as_notebooks(file: Path) -> None:
    assert file.read_text(encoding="utf-8").splitlines()[0] == "# Databricks notebook source"


@every_layout
def test_no_file_holds_a_secret(files: dict[str, str]) -> None:
    for text in files.values():
        found = re.findall(
            r"mongodb(?:\+srv)?://\S*|dapi[0-9a-f]{16,}|dose[0-9a-f]{16,}|(?i:password|token)\s*:\s*\S+", text
        )
        assert [each for each in found if "user:password@host" not in each and each != "token: write"] == []
