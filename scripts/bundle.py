"""Write the repository's own Databricks bundle from the template of `strandline init`.

The repository builds the wheel that a project only uploads. Otherwise both are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from strandline.project.scaffold import Project, files_of

ROOT: Final = Path(__file__).parent.parent
_PROJECT: Final = Project(name="strandline", catalog="main", warehouse="Serverless Starter Warehouse")
_UUID: Final = "5f4f6f0a-3c0e-4d5e-9a41-1d1a0c7c2b53"
_ARTIFACTS: Final = """
artifacts:
  strandline:
    type: whl
    path: .
    build: uv build --wheel

presets:
  artifacts_dynamic_version: true # otherwise a redeploy of the same version may run the old wheel
"""


def bundle_files() -> dict[str, str]:
    """Return the content of each file of the repository's bundle, by its path."""
    files = files_of(_PROJECT, _UUID)
    found = {name: text for name, text in files.items() if name.startswith("resources/")}
    databricks = files["databricks.yml"]
    assert databricks.count("\npresets:\n") == 1
    found["databricks.yml"] = databricks.replace("\npresets:\n", _ARTIFACTS)
    for target in ("dev", "staging", "prod"):
        found[f"conf/{target}.yml"] = files[f"conf/{target}.yml"]
    # the repository's conf/base.yml names the source as the tests do
    return {name: text.replace("_bronze`.`strandline`", "_bronze`.`mongo`") for name, text in found.items()}


def main() -> None:
    """I/O: writes the files."""
    for name, text in bundle_files().items():
        file = ROOT / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
