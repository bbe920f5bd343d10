"""The version that gold or quality has chosen is gone, because another process committed to a long idle table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from idle_lake import idle_copy

from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.gold.quality import run_quality
from strandline.jobs.gold.refresh import refresh_gold
from strandline.jobs.gold.run_gold import run_gold
from strandline.model.table_schemas import QUALITY
from strandline.model.tables import Lake, TableName
from strandline.settings.configuration import LakeSettings, Settings

FLIGHTS, BY_CARRIER = TableName("silver", "flights"), TableName("gold", "by_carrier")
SQL = "-- materialized: table\nselect carrier, count(*) as flights from silver.flights group by carrier"
SUITE = """table: silver.flights
on_failure: block
expectations: [{type: expect_column_values_to_not_be_null, column: carrier}]"""


def insert(tables: Tables) -> None:
    tables.spark.sql(f"INSERT INTO {tables.lake.sql(FLIGHTS)} VALUES ('x', 'UA')")


@dataclass(frozen=True)
class BesideAWriter(Tables):
    """The same tables; the first who asks for the version of `FLIGHTS` is followed by a commit of somebody else."""

    told: list[int] = field(default_factory=list)

    def version(self, table: TableName) -> int:
        version = super().version(table)
        if table == FLIGHTS:
            self.told.append(version)
            if len(self.told) == 1:
                insert(self)
        return version


def by_gold(ctx: JobContext) -> None:
    (built,) = run_gold(ctx)
    assert built.status == "built"


def by_quality(ctx: JobContext) -> None:
    assert run_quality(ctx).versions == {FLIGHTS: 3}


def by_gate_and_gold(ctx: JobContext) -> None:
    (built,) = refresh_gold(ctx)
    assert built.status == "built"


# scenario: T05
@pytest.mark.parametrize("work", [by_gold, by_quality, by_gate_and_gold])
def test_the_work_is_done_again_with_the_newest_version(
    tables: Tables, tmp_path: Path, work: Callable[[JobContext], None]
) -> None:
    tables.create(FLIGHTS, schema_of("_key STRING, carrier STRING"), properties={"delta.enableChangeDataFeed": "true"})
    insert(tables)
    insert(tables)
    idle_copy(Path(tables.lake.root or ""), tmp_path / "idle", days=8)
    for name, file, text in (("sql", "by_carrier.sql", SQL), ("suites", "flights.yml", SUITE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text, encoding="utf-8")
    busy = BesideAWriter(tables.spark, Lake(root=str(tmp_path / "idle")))
    settings = Settings(
        source={"name": "test"},  # type: ignore[arg-type]  # why: pydantic builds the sections
        lake=LakeSettings(root=busy.lake.root),
        gold={"sql_dir": str(tmp_path / "sql")},  # type: ignore[arg-type]  # why: as above
        quality={"suites_dir": str(tmp_path / "suites"), "docs_dir": str(tmp_path / "docs")},  # type: ignore[arg-type]  # why: as above
    )
    work(JobContext(settings, tables.spark, busy))
    assert busy.told[0] == 2
    assert set(busy.told[1:]) == {3}, "chosen again"
    if work is not by_quality:
        assert busy.read(BY_CARRIER).collect() == [("UA", 3)]
    if work is not by_gold:
        assert {row["table_version"] for row in busy.read(QUALITY).collect()} == {3}, (
            "what was begun with the old version left nothing"
        )
