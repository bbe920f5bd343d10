"""Generate docs/spark-versions.md: each version of Spark, what its tests saw, what differs, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from strandline.errors import ConfigurationError
from strandline.io.spark.s3_session import refuse_hadoop
from strandline.io.spark.spark_versions import SUPPORTED, delta_package, refuse_native_tables

_TESTS: Final = Path(__file__).parent.parent / "tests"
_HEAD: Final = """# Versions of Spark

Strandline chooses Delta by the version of Spark that is installed. `make docs` generates this page from the
versions in `pipelines/strandline/io/spark/spark_versions.py` and from the last runs of `make test-spark SPARK=…`.

| Spark | Delta | Hadoop | last recorded run of `make test-spark` | tests passed | on |
|---|---|---|---|---|---|
"""
_OWN: Final = """
Another Delta is used if `spark.conf` names it in `spark.jars.packages` or as a JAR. A platform that runs Spark
itself (Databricks, `spark-submit`, Spark Connect) brings its own Delta. There a Spark that is newer than this table
runs, and the log has a warning. `make test` uses the newest version of the table.

`make test-spark` runs the suites that ask something of Spark: tables, MERGE, history, gold, quality, and on a real
MongoDB capture, silver, rebuild and reconcile. All other tests run with the newest version only.

## What differs

"""
_REFUSED: Final = """
## What is refused

Each ends the command with exit code 2 and one line. Nothing is written.

| what is there | the line |
|---|---|
"""
_DATABRICKS: Final = """
## Databricks

The wheel's dependencies can be resolved with the packages of a runtime or of a serverless environment, except those in
the last column. So can the extras `aws`, `openlineage`, `otel` and `readers`. The versions are those of Databricks'
release notes, in `tests/databricks_runtimes.yml`. Nothing of this was run on Databricks.

| runtime | Spark | Python | pyarrow | pandas | pydantic | Python packages that the wheel replaces |
|---|---|---|---|---|---|---|
"""


def _read(name: str) -> Any:
    return yaml.safe_load((_TESTS / name).read_text(encoding="utf-8"))


def spark_versions_page() -> str:
    """Return the text of docs/spark-versions.md."""
    return _HEAD + _versions() + _OWN + _differences() + _REFUSED + _refusals() + _DATABRICKS + _runtimes()


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def _versions() -> str:
    runs = _read("spark_runs.yml")
    rows = ""
    for minor, packages in SUPPORTED.items():
        run = runs.get(minor)
        seen = (f"{run['pyspark']}, Python {run['python']}", run["passed"], run["seen"]) if run else ("none", "", "")
        rows += _row(minor, packages.delta, packages.hadoop, *seen)
    return rows


def _differences() -> str:
    head = _row("", *SUPPORTED, "tests") + "|---" * (len(SUPPORTED) + 2) + "|\n"
    return head + "".join(
        _row(one["what"], *(one["versions"][minor] for minor in SUPPORTED), ", ".join(f"`{t}`" for t in one["tests"]))
        for one in _read("spark_versions.yml")
    )


def _refusals() -> str:
    cases: tuple[tuple[str, Callable[[], object]], ...] = (
        ("Spark 3.5", lambda: delta_package("3.5.9")),
        ("Spark 4.3, which has no Delta yet, started by Strandline", lambda: delta_package("4.3.0")),
        ("`silver.compatibility: native`, or such a table, with Spark 4.0", lambda: refuse_native_tables("4.0.5")),
        ("a lake on S3, with Spark 4.0", lambda: refuse_hadoop(SUPPORTED["4.0"].hadoop)),
    )
    return "".join(_row(what, f"`{_told(call)}`") for what, call in cases)


def _told(call: Callable[[], object]) -> str:
    try:
        call()
    except ConfigurationError as refused:
        return str(refused)
    raise AssertionError("it is not refused any more")


def _replaced(runtime: dict[str, Any]) -> str:
    by_extras = runtime["replaced_by_extras"].items()
    parts = [("", runtime["replaced"]), *((f"with the extra `{extra}` ", names) for extra, names in by_extras)]
    return "; ".join(before + ", ".join(f"`{name}`" for name in names) for before, names in parts)


def _runtimes() -> str:
    return "".join(
        _row(
            one["runtime"],
            one["spark"],
            one["python"],
            *(one["packages"][name] for name in ("pyarrow", "pandas", "pydantic")),
            _replaced(one),
        )
        for one in _read("databricks_runtimes.yml")
    )
