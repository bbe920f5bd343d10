"""Image, compose file and Kubernetes manifests: real linters, and nothing that the program would refuse.

No container engine runs here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import parsed
from packaging.requirements import Requirement

from strandline.settings.configuration import Settings, load_settings
from strandline.settings.keys import unknown_variables

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
_BIN = Path(sys.executable).parent
_NEWEST = "1.33"
MANIFESTS: dict[str, list[dict[str, Any]]] = {
    file.stem: list(yaml.safe_load_all(file.read_text(encoding="utf-8"))) for file in (DEPLOY / "kubernetes").glob("*")
}
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yml").read_text(encoding="utf-8"))


def pods() -> dict[str, dict[str, Any]]:
    """Specifications of pods, by component."""
    found = {}
    for name, documents in MANIFESTS.items():
        for document in documents:
            if document["kind"] == "Deployment":
                found[name] = document["spec"]["template"]["spec"]
            if document["kind"] == "CronJob":
                found[name] = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return found


def linted(*command: str | Path) -> None:
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def instructions() -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [" ".join(line.split()) for line in text.splitlines() if line and not line.startswith("#")]


def test_hadolint_accepts_the_image() -> None:
    linted(_BIN / "hadolint", DEPLOY / "Dockerfile")


def test_kubernetes_accepts_the_manifests() -> None:
    files = [
        file for file in (DEPLOY / "kubernetes").glob("*") if file.stem != "servicemonitor"
    ]  # no part of Kubernetes
    linted(_BIN / "kubernetes-validate", "-k", _NEWEST, "--strict", *files)


def test_the_image_copies_only_files_that_exist_and_that_it_may_see() -> None:
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    for line in instructions():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in allowed, source


@pytest.mark.parametrize("extra", ["spark", "quality", "ui", "otel", "openlineage"])
def test_the_image_has_the_packages_of_an_extra(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / "runtime.txt").read_text("utf-8"), re.MULTILINE)
    packages = {Requirement(line).name for line in project["optional-dependencies"][extra]}
    assert packages - {project["name"]} <= set(locked), "an extra may name another one of this package"


def test_the_image_runs_without_root_and_has_no_secret() -> None:
    lines = instructions()
    assert "USER 10001" in lines
    assert lines.index("USER 10001") > max(number for number, line in enumerate(lines) if line.startswith("RUN"))
    assert "URI" not in " ".join(lines)
    (variables,) = [line.removeprefix("ENV ") for line in lines if line.startswith("ENV ")]
    assert unknown_variables([each.partition("=")[0] for each in variables.split()], Settings) == []
    assert "STRANDLINE_METRICS__PORT=9400" in variables
    assert any(line.startswith("HEALTHCHECK") and "http://127.0.0.1:9400/livez" in line for line in lines)
    (command,) = [json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")]
    assert parsed(command)[0] == ["run"]


@pytest.mark.parametrize("component", ["capture", "silver", "gold", "maintain"])
def test_a_pod_runs_a_command_that_exists_with_settings_that_exist(component: str) -> None:
    pod = pods()[component]
    (container,) = pod["containers"]
    assert parsed(container["args"])[0][0] == component
    assert unknown_variables([each["name"] for each in container["env"]], Settings) == []
    assert pod["enableServiceLinks"] is False, "STRANDLINE_CAPTURE_SERVICE_HOST would be refused as an unknown setting"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"/work/conf", "/tmp"}


def test_the_variables_of_a_service_would_be_refused() -> None:
    """The reason of `enableServiceLinks: false`."""
    assert unknown_variables(["STRANDLINE_CAPTURE_SERVICE_HOST"], Settings)


def test_one_capture_runs_and_layers_never_overlap() -> None:
    (deployment,) = [each for each in MANIFESTS["capture"] if each["kind"] == "Deployment"]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    for name in ("silver", "gold", "maintain"):
        (job,) = MANIFESTS[name]
        assert job["spec"]["concurrencyPolicy"] == "Forbid"
        assert job["spec"]["jobTemplate"]["spec"]["backoffLimit"] == 0


def test_prometheus_selects_the_service_and_port_of_the_metrics() -> None:
    (monitor,) = MANIFESTS["servicemonitor"]
    (service,) = [each for each in MANIFESTS["capture"] if each["kind"] == "Service"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == [
        each["name"] for each in service["spec"]["ports"]
    ]
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text(encoding="utf-8"))
    assert scraped["scrape_configs"][0]["static_configs"] == [{"targets": ["strandline:9400"]}]


def test_the_settings_of_the_config_map_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (settings,) = MANIFESTS["conf"]
    for name, text in settings["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for each in pods()["gold"]["containers"][0]["env"]:
        monkeypatch.setenv(each["name"], each["value"])
    loaded = load_settings("local", tmp_path)
    assert (loaded.lake.root, loaded.lake.s3_region) == ("s3://bucket/lake", "eu-central-1")


def test_compose_names_files_and_settings_that_exist() -> None:
    services = COMPOSE["services"]
    assert unknown_variables(services["strandline"]["environment"], Settings) == []
    build = services["strandline"]["build"]
    assert (DEPLOY / "compose" / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).exists()
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / "compose" / source).is_file(), source
        assert ":" in service["image"] or "build" in service, "an image without a version changes under its user"
