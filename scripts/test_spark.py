"""Run the suites that need Spark with one of its versions: ``python -m scripts.test_spark 4.0 [options of pytest]``.

A version other than that of ``.venv`` gets an environment of its own (scripts/spark_environment.py). When all tests
passed, the run is noted in tests/spark_runs.yml, from which docs/spark-versions.md is generated.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import yaml

from scripts.spark_environment import ROOT, environment, versions
from strandline.io.spark.spark_versions import SUPPORTED, minor_of

RUNS: Final = ROOT / "tests" / "spark_runs.yml"
SUITES: Final = (
    "tests/unit/test_spark_versions.py",
    "tests/unit/test_context.py",
    "tests/spark/test_table_store.py",
    "tests/spark/test_stream_rows.py",
    "tests/spark/test_variant.py",
    "tests/spark/test_readable.py",
    "tests/spark/test_debezium.py",
    "tests/spark/test_silver_tables.py",
    "tests/spark/test_history.py",
    "tests/spark/test_gold_publish.py",
    "tests/spark/test_gold_incremental.py",
    "tests/spark/test_quality.py",
    "tests/spark/test_retention.py::test_a_busy_table_keeps_a_shorter_log_unless_silver_is_late",
    "tests/integration/test_pipeline.py",
    "tests/integration/test_folding.py",
    "tests/integration/test_rebuild.py",
    "tests/integration/test_reconcile.py",
    "tests/integration/test_small_batches.py",
)
"""A suite for each thing that Strandline asks of Spark, so that a version takes minutes."""
# PySpark 4.0 leaves its sockets to the garbage collection.
_SOCKETS: Final = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
_HEAD: Final = "# Written by scripts/test_spark.py after a run in which every test passed.\n"
_ASKED: Final = """
import platform, pyspark
from strandline.io.spark.spark_versions import delta_package
print(pyspark.__version__, delta_package(pyspark.__version__).rsplit(":", 1)[1], platform.python_version())
"""


def main(version: str, arguments: list[str]) -> int:
    """Return the exit code of pytest."""
    here = Path(sys.executable)
    python = here if version == _version_of(here) else environment(version)
    chosen = [one for one in arguments if one.startswith("tests/")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [str(python), "-m", "pytest", *([] if chosen else SUITES), f"--junitxml={report}"]
        command += [
            "-m",
            "not long and not sweep and not places",
            "-n",
            "2",
            "--dist",
            "worksteal",
            *_SOCKETS,
            *arguments,
        ]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code == 0 and not arguments:
            _note(version, python, report)
    return code


def _version_of(python: Path) -> str:
    return minor_of(_ask(python)[0])


def _ask(python: Path) -> list[str]:
    return subprocess.run(
        [str(python), "-c", _ASKED], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()


def _note(version: str, python: Path, report: Path) -> None:
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    pyspark, delta, of_python = _ask(python)
    runs: dict[str, Any] = yaml.safe_load(RUNS.read_text("utf-8")) if RUNS.exists() else {}
    runs[version] = {
        "pyspark": pyspark,
        "delta": delta,
        "python": of_python,
        "passed": int(suite.get("tests", 0)) - int(suite.get("skipped", 0)),
        "seen": datetime.now(UTC).date(),
    }
    RUNS.write_text(_HEAD + yaml.safe_dump(dict(sorted(runs.items())), sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    asked, *rest = sys.argv[1:] or [""]
    if asked not in SUPPORTED:
        sys.exit(
            f"test-spark: no Spark {asked or 'given'}; run: make test-spark SPARK=4.0 (one of {', '.join(SUPPORTED)})"
        )
    if asked not in (*versions(), _version_of(Path(sys.executable))):
        sys.exit(
            f"test-spark: requirements/spark-{asked}.txt is missing; add it to scripts/lock.sh, then run: make lock"
        )
    sys.exit(main(asked, rest))
