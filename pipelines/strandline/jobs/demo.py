"""Demo job: load an airline database, capture it with live changes, build silver and gold, compare with the source."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr
from rich.console import Console

from strandline.demo.dataset import load_dataset
from strandline.demo.files import GOLD, QUALITY
from strandline.demo.replay import Replay, load_reference, operations
from strandline.demo.show import Stages, rows_table
from strandline.errors import ConfigurationError, ContractError
from strandline.gold.results import GoldResult
from strandline.io.spark.session import SHORT_LIVED
from strandline.io.tables.ddl import schema_of
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.capture.stream_loop import CaptureResult
from strandline.jobs.context import JobContext, open_context
from strandline.jobs.gold.quality import run_gold_gate
from strandline.jobs.gold.run_gold import run_gold
from strandline.jobs.operations.engines import engines_of_results
from strandline.jobs.operations.sql import run_sql
from strandline.jobs.reconcile.run_reconcile import require_snapshot_reads, run_reconcile
from strandline.jobs.silver.collection import SilverResult
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.source_connection import connection_options
from strandline.model.table_schemas import SCHEMA_CHANGES, SCHEMA_CHANGES_DDL
from strandline.settings.capture import CaptureSettings
from strandline.settings.configuration import Settings
from strandline.settings.selection import Engine
from strandline.settings.silver import ChildTable
from strandline.source.client import AnyClient, open_client, translate_errors
from strandline.source.deployment import inspect_deployment
from strandline.source.mongod import EmbeddedMongod
from strandline.source.uri import hosts_of

DATABASE = "airline"
COLLECTIONS = ("airlines", "airports", "planes", "weather", "flights")

# About a month of flights: includes winter weather and every carrier; under two minutes on two cores.
DEFAULT_ROWS = 26_000
_LIVE_SHARE = 0.25  # share of flights replayed live; all others are inserted before the capture

# Title and query of each gold table shown: ten rows, with columns that fit into 80 characters.
_GOLD_QUERIES = (
    (
        "gold.on_time_performance: who is on time",
        "SELECT airline, flights, cancelled, median_arrival_delay AS median_delay, percent_on_time"
        " FROM gold.on_time_performance WHERE flights >= 20 ORDER BY percent_on_time DESC",
    ),
    (
        "gold.delay_by_weather: delay by the weather",
        "SELECT weather, flights, average_departure_delay AS average_delay, percent_late FROM gold.delay_by_weather"
        " ORDER BY average_delay DESC",
    ),
    (
        "gold.fleet_age: the largest fleets",
        "SELECT carrier, manufacturer, planes, average_age, seats_per_plane FROM gold.fleet_age ORDER BY planes DESC",
    ),
)

_CHILDREN = {f"{DATABASE}.flights": {"events": ChildTable(table="flight_events", key="type")}}
_NO_FILES = {"uri_file": None, "password_file": None}
_USE_EMBEDDED_MONGODB = "unset MONGODB_URI and STRANDLINE_SOURCE__URI: the demo then starts a MongoDB of its own"
_CONF = "conf"  # configuration folder in the lake, for the commands that the demo suggests
_LAKE_ENTRIES = {"bronze", "silver", "gold", "control", "quality-docs", _CONF}


def run_demo(
    settings: Settings,
    *,
    lake: Path,
    rows: int | None,
    console: Console,
    command: str = "strandline",
    engine: Engine = "spark",
) -> None:
    """Run the demo from end to end, and keep its lake.

    I/O: replaces *lake*; writes the database ``airline``; starts a mongod if no source is configured.

    Args:
        settings: Settings of the user. Source selection, engines, lake, gold and quality are replaced by those of the
            demo.
        lake: Folder of the lake. The lake of an earlier demo is replaced.
        rows: Number of flights, about a quarter of them live. None: `DEFAULT_ROWS`.
        console: Terminal for all output.
        command: Command line of this program, for the suggestions at the end.
        engine: Engine of all layers.

    Raises:
        ConfigurationError: *lake* has other content than a demo lake; or the configured MongoDB already has a database
            ``airline``, does not allow writing it, or is older than 5.0. Nothing was changed.
        ContractError: A gold table was not built, or a silver table does not equal its source.
    """
    count = _valid_row_count(rows)
    _require_demo_lake(lake)
    stages = Stages(console)
    with _mongod(settings, stages) as uri:
        demo_settings = _demo_settings(settings, uri, lake, engine)
        with closing(open_client(connection_options(demo_settings))) as client:
            if settings.source.uri is not None:
                stages.say(f"The MongoDB that is configured, {hosts_of(uri)}, gets a database {DATABASE}")
            require_snapshot_reads(inspect_deployment(client, uri))  # for the comparison at the end
            _require_unused_database(client)
            with _write_errors():  # checks the write privilege before the old lake is deleted
                client[DATABASE].create_collection(COLLECTIONS[0])
            shutil.rmtree(lake, ignore_errors=True)
            _write_conf(demo_settings, lake)
            with ThreadPoolExecutor(max_workers=1) as executor:
                starting = executor.submit(_start_spark, demo_settings)
                with stages.step("Loading the airline's database, while Spark starts"):
                    replay = _load_database(client, count)
                with stages.step("Starting Spark"):
                    ctx = starting.result()
            captured, merged = _ingest(ctx, replay, stages)
        built = _build_gold(ctx, stages)
        _reconcile(ctx, stages)
    stages.say(f"Written by: {engines_of_results(captured, merged, built)}")
    stages.close(lake, f"{command} --conf {shlex.quote(str(lake / _CONF))}")


def _start_spark(settings: Settings) -> JobContext:
    """Open the context and make one Delta commit. The first commit of a JVM takes many times as long as later ones."""
    ctx = open_context(settings, java_options=SHORT_LIVED)
    ctx.tables.create(SCHEMA_CHANGES, schema_of(SCHEMA_CHANGES_DDL))
    return ctx


def _load_database(client: AnyClient, count: int) -> Replay:
    """Load reference data and past flights into the database. Return the replay of live flights, not started."""
    dataset = load_dataset(count)
    history = len(dataset.flights) - max(1, int(len(dataset.flights) * _LIVE_SHARE))
    with _write_errors():
        load_reference(client[DATABASE], dataset, dataset.flights[:history])
    return Replay(client, DATABASE, operations(dataset, dataset.flights[history:], seed=1))


def _ingest(ctx: JobContext, replay: Replay, stages: Stages) -> tuple[CaptureResult, list[SilverResult]]:
    """Capture into bronze and merge into silver while the replay writes, so snapshot and stream overlap."""
    with stages.step("First half of the live day"):
        replay.start()
        replay.half_done.wait()
    with stages.step("Bronze: snapshot beside the stream") as note:

        def note_rows(what: str, count: int) -> None:
            replay.reader_started()
            note(f"{count:,} {what}")

        result = run_capture(ctx, once=True, report=note_rows)
    with stages.step("Second half of the live day"), _write_errors():
        replay.join()
    with stages.step("Bronze: the rest of the stream") as note:
        rest = run_capture(ctx, once=True, report=lambda what, count: note(f"{count:,} {what}"))
    stages.say(
        f"{result.documents:,} documents by snapshot, "
        f"{result.events:,} changes beside it and {rest.events:,} after it; "
        f"{replay.total:,} were made"
    )
    with stages.step("Silver: one typed table for each collection") as note:
        results = run_silver(
            ctx, report=lambda merged: note(f"{merged.table} {merged.inserted + merged.updated:,} rows")
        )
    return rest, results


def _build_gold(ctx: JobContext, stages: Stages) -> list[GoldResult]:
    with stages.step("Quality: expectations on silver.flights"):
        report = run_gold_gate(ctx)
    stages.say(report.summary())
    with stages.step("Gold: three pieces"):
        results = run_gold(ctx, versions=report.versions)
    for result in results:
        if result.blocks:
            raise ContractError(f"gold.{result.name} was not built: {result.reason}", next_step="strandline gold")
    for title, query in _GOLD_QUERIES:
        rows = run_sql(ctx, query).limit(10).collect()
        stages.show(rows_table(title, [row.asDict() for row in rows]))
    return results


def _reconcile(ctx: JobContext, stages: Stages) -> None:
    with stages.step("Reconcile: every document of silver against MongoDB"):
        result = run_reconcile(ctx)
    compared = [
        {"collection": collection.collection, "documents": collection.documents}
        | {"missing": collection.missing, "extra": collection.extra, "different": collection.different}
        for collection in result.collections
    ]
    stages.show(rows_table("Silver against MongoDB, byte for byte", compared))
    if not result.holds:
        raise ContractError("silver does not equal its source", next_step="please report this with the table above")


@contextmanager
def _mongod(settings: Settings, stages: Stages) -> Iterator[str]:
    """Yield the URI of the configured MongoDB, or of an embedded mongod that stops afterwards."""
    if settings.source.uri is not None:
        yield settings.source.uri.get_secret_value()
        return
    server = EmbeddedMongod()
    with stages.step("Starting MongoDB"):
        server.start()
    try:
        yield server.uri
    finally:
        server.stop()


def _demo_settings(settings: Settings, uri: str, lake: Path, engine: Engine) -> Settings:
    """Return the user settings with source, engine, lake, gold and quality of the demo. Capture filters are dropped."""
    sections: dict[str, Any] = {
        "engine": engine,
        "source": settings.source.model_copy(update={"name": DATABASE, "uri": SecretStr(uri), **_NO_FILES}),
        "capture": CaptureSettings(
            scope="database",
            target=DATABASE,
            snapshot_chunk_size=50_000,
            notification_enabled_channels=["table"],
        ),
        "silver": settings.silver.model_copy(update={"engine": None, "children": _CHILDREN}),
        "lake": settings.lake.model_copy(update={"root": str(lake), "catalog": None}),
        "gold": settings.gold.model_copy(update={"engine": None, "sql_dir": str(GOLD), "tests_dir": None}),
        "quality": settings.quality.model_copy(
            update={"suites_dir": str(QUALITY), "docs_dir": str(lake / "quality-docs")}
        ),
    }
    return settings.model_copy(update=sections)


def _write_conf(settings: Settings, lake: Path) -> None:
    """Write a configuration for other commands on the demo lake, usable from any folder. It contains no secret.

    I/O: writes ``conf/local.yml`` in *lake*.
    """
    folder = lake.resolve()
    sections: dict[str, Any] = {
        "engine": settings.engine,
        "source": {"name": settings.source.name},
        "lake": {"root": str(folder)},
        "silver": settings.silver.model_dump(include={"children"}),
        "gold": {"sql_dir": settings.gold.sql_dir},
        "quality": {"suites_dir": settings.quality.suites_dir, "docs_dir": str(folder / "quality-docs")},
    }
    (folder / _CONF).mkdir(parents=True)
    (folder / _CONF / "local.yml").write_text(yaml.safe_dump(sections), encoding="utf-8")


def _valid_row_count(rows: int | None) -> int:
    if rows is not None and rows < 1:
        raise ConfigurationError(
            f"{rows} flights make no demo", next_step=f"--rows 1 or more; without it {DEFAULT_ROWS:,}"
        )
    return rows or DEFAULT_ROWS


def _require_demo_lake(lake: Path) -> None:
    """Raise unless *lake* is empty, missing or the lake of an earlier demo."""
    foreign_entries = sorted({entry.name for entry in lake.iterdir()} - _LAKE_ENTRIES) if lake.exists() else []
    if foreign_entries:
        raise ConfigurationError(
            f"{lake} is not a demo's lake, it holds {foreign_entries[0]}", next_step="choose another --lake"
        )


def _require_unused_database(client: AnyClient) -> None:
    with translate_errors("listing databases"):
        exists = DATABASE in client.list_database_names()
    if exists:
        raise ConfigurationError(
            f"that MongoDB has a database {DATABASE} already",
            next_step=f"{_USE_EMBEDDED_MONGODB}, or drop {DATABASE} there",
        )


@contextmanager
def _write_errors() -> Iterator[None]:
    """Raise write errors with advice for the demo. The usual advice is wrong: a capture needs no write privilege."""
    try:
        with translate_errors("writing the demo's data"):
            yield
    except ConfigurationError as refused:
        raise ConfigurationError(
            refused.message, next_step=f"{_USE_EMBEDDED_MONGODB}, or grant its user readWrite on {DATABASE}"
        ) from None
