"""Every command on a lake that was idle for a week, a month or a year.

Delta keeps old versions and the change feed of a table for a limited time: `delta.deletedFileRetentionDuration` is
seven days, `delta.logRetentionDuration` thirty. No state of Strandline may depend on either.
"""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import bson
import pytest
import typer
from bson.raw_bson import RawBSONDocument
from command_line import parsed
from idle_lake import clean_up_logs, idle_copy, logs_of
from lakehouse import assert_equal_to_source, documents_in_source
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.cli import app
from strandline.errors import ConfigurationError
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.operations.dead_letters import list_dead_letters
from strandline.model.position import cluster_time_of
from strandline.model.table_schemas import QUALITY
from strandline.model.tables import TableName
from strandline.settings.configuration import load_settings

pytestmark = pytest.mark.skipif(
    "SPARK_REMOTE" in os.environ, reason="logs are cleaned up through the JVM, and Spark Connect shows none"
)

Db = Database[dict[str, Any]]
Commands = tuple[str, ...]
Idle = Callable[[str, Path, Path | None, float], "Lake"]
BRONZE: Final = TableName("bronze", "test")

SQL: Final = """-- materialized: incremental
-- keys: state
select state, count(*) as orders from silver.orders where not _deleted group by state"""
SUITE: Final = """table: silver.orders
where: NOT _deleted
rows: changed
on_failure: quarantine
expectations: [{type: expect_column_values_to_be_in_set, column: state, value_set: [open, paid]}]"""

READING: Final[Commands] = (
    *(
        "status",
        "status --json",
        "metrics",
        "doctor",
        "offsets show",
        "offsets history",
        "schema show",
        "schema history",
        "cuts list",
        "export dbt-sources",
    ),
    *("snapshot list", "snapshot verify", "dead-letters list", "quality held", "gold --plan", "delete"),
    *(
        "erase list",
        "erase verify --value 'no document has this'",
        "sql 'select * from silver.orders_history'",
        "sql 'select * from bronze.test_debezium'",
        "offsets alter --to oldest --dry-run",
    ),
)
MAINTENANCE: Final[Commands] = ("maintain",)
REBUILD: Final[Commands] = ("stop", "rebuild silver.orders")
MERGING: Final[Commands] = (
    "silver",
    "gold --no-quality",
    "quality run",
    "quality accept orders",
    "quality replay",
    "quality docs",
)
ORDERS: Final[Commands] = (
    *(
        "start",
        "pause",
        "resume",
        "snapshot start --collection .*notes",
        "snapshot pause",
        "snapshot resume",
        "snapshot stop",
    ),
    "run --once",
)
LETTERS: Final[Commands] = ("dead-letters show {letter}", "dead-letters replay", "dead-letters purge")
RECONCILE: Final[Commands] = ("wait --layer gold --timeout 5", "reconcile --collection {database}.orders --wait 5")
RESTORE: Final[Commands] = ("restore --as-of {moment} --collection {database}.notes --to files {folder}",)
RESET: Final[Commands] = ("stop", "offsets reset", "start", "capture --once", "silver")
ORPHAN: Final[Commands] = ("gold drop by_state",)
DELETION: Final[Commands] = ("stop", "delete --yes")
OTHERS: Final = (
    *(("spark", days) for days in (6, 8, 31, 400)),
    *(("native", days) for days in (6, 31, 400)),
)
WITHOUT_A_LAKE: Final = {"demo", "version", "gold test", "init", "explain"}
UNTIL_ENDED: Final = {"ui"}
"""`test_ui` reads a lake with it."""


@dataclass(frozen=True)
class Lake:
    """A lake, and the configuration that names it."""

    folder: Path
    ctx: JobContext
    database: Db

    def run(self, commands: Commands, **names: str) -> None:
        """Call commands as a user does; all of them succeed."""
        for command in commands:
            words = shlex.split(command.format(database=self.database.name, **names))
            assert app(["--conf", str(self.folder / "conf"), *words], standalone_mode=False) in (None, 0), command

    @property
    def orders(self) -> Any:
        return self.database.orders


def lake_in(folder: Path, spark: SparkSession, uri: str, database: Db, engine: str) -> Lake:
    """I/O: writes a configuration whose lake is ``folder/lake``."""
    for name in ("conf", "sql", "quality"):
        (folder / name).mkdir(parents=True)
    (folder / "sql" / "by_state.sql").write_text(SQL, encoding="utf-8")
    (folder / "quality" / "orders.yml").write_text(SUITE, encoding="utf-8")
    quick = {"engine": engine, "heartbeat_interval_ms": 100, "notification_enabled_channels": ["log"]}
    conf = {
        "source": {"name": "test", "uri": uri},
        "capture": {"scope": "database", "target": database.name, **quick},
        "lake": {"root": str(folder / "lake")},
        "silver": {"history": "scd2", "history_collections": [f"{database.name}.orders"]},
        "quality": {"suites_dir": str(folder / "quality"), "docs_dir": str(folder / "docs")},
        "gold": {"sql_dir": str(folder / "sql")},
    }
    (folder / "conf" / "base.yml").write_text(json.dumps(conf), encoding="utf-8")
    settings = load_settings("local", folder / "conf")
    return Lake(folder, JobContext(settings, spark, Tables(spark, settings.lake_location)), database)


def build(lake: Lake) -> None:
    """Make changes of every kind in over ten commits. The last ones are only in bronze, earlier ones not in gold."""
    states = {number: "lost" if number == 3 else "open" for number in range(7)}  # the suite quarantines number 3
    lake.orders.insert_many([{"_id": number, "state": state, "n": 0} for number, state in states.items()])
    poison = bson.encode({"_id": 1, "text": "XXXX"}).replace(b"XXXX", b"\xff\xfe\xfd\xfc")
    notes: list[Any] = [{"_id": 0}, RawBSONDocument(poison)]  # PyMongo inserts raw documents unchanged
    lake.database.notes.insert_many(notes)
    lake.run(("capture --once",))
    lake.orders.update_one({"_id": 1}, {"$set": {"state": "paid"}})
    lake.run(("run --once", "stop", "start"))
    lake.orders.delete_one({"_id": 4})
    lake.run(("capture --once", "silver"))
    for _ in range(8):
        lake.orders.update_one({"_id": 1}, {"$inc": {"n": 1}})
        lake.run(("capture --once",))
    lake.orders.delete_one({"_id": 5})
    lake.run(("capture --once",))


@pytest.fixture(scope="module")
def idle_lake(
    spark: SparkSession,
    mongo: MongoClient[dict[str, Any]],
    mongo_uri: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Idle]:
    """Provide a function that copies a lake and makes the copy some days old.

    All copies have the same source. The native engine has built the first lake; a copy may use either engine.
    """
    database = mongo["t_calendar"]
    made = lake_in(tmp_path_factory.mktemp("calendar"), spark, mongo_uri, database, "native")
    build(made)

    def idle(engine: str, folder: Path, of: Path | None, days: float) -> Lake:
        copy = lake_in(folder, spark, mongo_uri, database, engine)
        idle_copy((of or made.folder) / "lake", folder / "lake", days=days)
        return copy

    yield idle
    mongo.drop_database(database.name)


def assert_equal_to_everything(lake: Lake) -> None:
    """Assert that silver and its history equal the source."""
    assert_equal_to_source(lake.ctx, lake.database, "orders", "notes")
    history = lake.ctx.tables.read(TableName("silver", "orders_history"))
    rows = (
        history.where(F.col("_valid_to_position").isNull() & ~F.col("_deleted")).select("_key", "_document").collect()
    )
    assert len(rows) == len(documents := documents_in_source(lake.database, "orders"))
    assert {row["_key"]: bytes(row["_document"]) for row in rows} == documents
    assert history.where("_key = '1'").count() == 2 + bson.decode(documents["1"])["n"], (
        "each update of document 1 is a version"
    )
    assert history.where("_key IN ('4', '5') AND _deleted").count() == 2


def assert_gold_shows_the_source(lake: Lake) -> None:
    """Assert that gold counts all orders except the quarantined one."""
    states = Counter(order["state"] for order in lake.orders.find({"state": {"$ne": "lost"}}))
    assert dict(map(tuple, lake.ctx.tables.read(TableName("gold", "by_state")).collect())) == states  # type: ignore[arg-type]  # why: pairs


def scopes(lake: Lake) -> list[str]:
    """Return the scopes of the quality runs, oldest first."""
    return [row["scope"] for row in lake.ctx.tables.read(QUALITY).orderBy("ran_at").collect()]


def test_the_calendar_calls_every_command() -> None:
    called: set[str] = set()
    for commands in (
        READING,
        MAINTENANCE,
        REBUILD,
        MERGING,
        ORDERS,
        LETTERS,
        RECONCILE,
        RESTORE,
        RESET,
        ORPHAN,
        DELETION,
    ):
        called |= {" ".join(parsed(shlex.split(command))[0]) for command in commands}
    assert called == set(commands_of(typer.main.get_command(app))) - WITHOUT_A_LAKE - UNTIL_ENDED


def commands_of(command: Any, *path: str) -> Iterator[str]:
    """Yield every command with its group, such as ``offsets show``."""
    for name, child in getattr(command, "commands", {}).items():
        yield from commands_of(child, *path, name)
    if not hasattr(command, "commands"):
        yield " ".join(path)


# scenario: T05
@pytest.mark.usefixtures("signals_restored")
@pytest.mark.parametrize(
    ("engine", "days"),
    # 6: old versions can be read; 8: the change feed is refused; 31: the log was cleaned up; 400: control rows and
    # tombstones were deleted as well.
    [
        ("native", 8),
        *(pytest.param(engine, days, marks=pytest.mark.long) for engine, days in OTHERS),
    ],
)
def test_every_command_works_on_a_lake_that_was_idle(
    spark: SparkSession, idle_lake: Idle, tmp_path: Path, engine: str, days: int
) -> None:
    lake = idle_lake(engine, tmp_path / "first", None, days)
    version = lake.ctx.tables.version(BRONZE) - 1  # older than what `maintain` commits
    if is_maintained := (engine == "spark") == (days in (8, 400)):  # the lake is then idle for the same time again
        lake.run(MAINTENANCE)
        lake = idle_lake(engine, tmp_path / "second", lake.folder, days)
    if days > 30:
        clean_up_logs(spark, lake.folder / "lake")
        assert not any((log / f"{0:020}.json").exists() for log in logs_of(lake.folder / "lake" / "bronze"))
    is_readable = days < 7 and not is_maintained

    # The first commands run before anything is written.
    lake.run(("stop", *READING))
    if is_maintained:
        lake.run(REBUILD)
    lake.run(MERGING)
    (letter,) = list_dead_letters(lake.ctx)
    assert scopes(lake)[1:3] == (["changed", "changed"] if is_readable else ["all", "changed"])

    # New commits: the version that was the newest one is now an old one.
    lake.orders.update_one({"_id": 1}, {"$inc": {"n": 1}})
    lake.orders.insert_one({"state": "open", "days": days})
    lake.run(ORDERS)
    assert_equal_to_everything(lake)
    assert_gold_shows_the_source(lake)
    lake.run(RECONCILE)
    lake.run(LETTERS, letter=letter["id"])

    newest = max(row["position"] for row in lake.ctx.tables.read(BRONZE).where("op in ('c', 'u', 'd')").collect())
    moment = ",".join(map(str, cluster_time_of(newest)))
    lake.run(RESTORE, moment=moment, folder=str(tmp_path / "files"))
    assert (tmp_path / "files" / lake.database.name / "notes.bson").stat().st_size > 0

    lake.run(("stop",))
    to_version = f"offsets alter --to {version}"
    if days in (6, 8):
        # delta-rs reads a version as long as its log and files are there; a collection that is late keeps them
        lake.run((f"{to_version} --dry-run",))
    else:
        with pytest.raises(
            ConfigurationError, match=rf"version {version} of bronze.test cannot be read any more.*offsets history"
        ):
            lake.run((to_version,))
    lake.orders.update_one({"_id": 1}, {"$inc": {"n": 1}})
    lake.orders.delete_one({"_id": 6})
    lake.run(RESET)
    assert_equal_to_everything(lake)
    if not is_maintained:
        lake.run((*REBUILD, *MAINTENANCE))
    assert_equal_to_everything(lake)
    (lake.folder / "sql" / "by_state.sql").unlink()
    lake.run((*ORPHAN, *DELETION))
    assert not lake.ctx.tables.exists(BRONZE)
