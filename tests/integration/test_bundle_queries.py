"""The alert and the dashboard of the bundle, asked of a real lake."""

from __future__ import annotations

import re
from pathlib import Path

from databricks_bundle import Bundle
from lakehouse import Demo
from pyspark.sql import SparkSession

from pipelines.jobs.demo import DATABASE
from pipelines.model import table_schemas
from pipelines.model.tables import TableName
from pipelines.project.scaffold import Project, files_of

_CONTROL = {
    value.name: getattr(table_schemas, f"{name}_DDL")
    for name, value in vars(table_schemas).items()
    if isinstance(value, TableName) and value.layer == "control"
}


def test_they_answer(spark: SparkSession, demo: Demo, tmp_path: Path) -> None:
    bundle = Bundle(files_of(Project(name=DATABASE, catalog="main")), "prod", values={"service_principal": "id"})

    def there(match: re.Match[str]) -> str:
        layer, name = match[1], match[2]
        folder = demo.lake / layer / name
        if not (folder / "_delta_log").exists():  # a control table that the demo has no rows for
            folder = tmp_path / name
            spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{folder}` ({_CONTROL[name]}) USING delta")
        return f"delta.`{folder}`"

    def asked(query: str) -> list[dict[str, object]]:
        by_path = re.sub(rf"`main`\.`{DATABASE}_(\w+)`\.`?(\w+)`?", there, query)
        return [row.asDict() for row in spark.sql(by_path).collect()]

    (late,) = asked(bundle.resources["alerts"]["capture_late"]["query_text"])
    assert isinstance(late["seconds"], int)
    assert 0 <= late["seconds"] < 3600 * 12
    datasets = bundle.resources["dashboards"]["operations"]["serialized_dashboard"]["datasets"]
    found = {each["name"]: asked("".join(each["queryLines"])) for each in datasets}
    (lag,) = found["lag"]
    assert all(value is not None for value in lag.values()), lag
    assert {row["operation"] for row in found["events"]} >= {"c", "u", "r"}
    assert found["delay"]
    assert found["exact"][0]["state"] == "exact"
    assert found["dead_letters"] == []
    assert found["differences"] == []
    assert all(row["outcome"] != "passed" for row in found["quality"])
