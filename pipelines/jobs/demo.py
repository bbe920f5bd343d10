"""The demo: an airline's MongoDB with live changes → bronze → silver → gold, a look at the result, and the proof."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import yaml
from pydantic import SecretStr
from rich.console import Console

from pipelines.demo.dataset import load_dataset
from pipelines.demo.files import GOLD, QUALITY
from pipelines.demo.proof import as_table, prove
from pipelines.demo.replay import Replay, load_reference, operations
from pipelines.demo.show import Stages, gold_table
from pipelines.errors import ConfigurationError, ContractError
from pipelines.io.ddl import schema_of
from pipelines.io.session import SHORT_LIVED
from pipelines.jobs.capture.job import run_capture
from pipelines.jobs.context import JobContext, open_context
from pipelines.jobs.gold.job import run_gold
from pipelines.jobs.gold.quality import run_gold_gate
from pipelines.jobs.operations.sql import run_sql
from pipelines.jobs.silver.job import run_silver
from pipelines.jobs.source_connection import connection_options
from pipelines.model.table_schemas import SCHEMA_CHANGES, SCHEMA_CHANGES_DDL
from pipelines.settings.capture import CaptureSettings
from pipelines.settings.configuration import Settings
from pipelines.source.client import AnyClient, hosts_of, open_client, translate_errors
from pipelines.source.mongod import EmbeddedMongod

DATABASE = "airline"
COLLECTIONS = ("airlines", "airports", "planes", "weather", "flights")

# About a month of flights: enough for winter weather and every carrier, and under two minutes on two cores.
DEFAULT_ROWS = 26_000
_LIVE_SHARE = 0.25  # of the flights are replayed live, the others are history

# What of gold is shown: title, query (ten rows, and columns for a terminal of 80 characters).
_SHOWN = (
    (
        "gold.on_time_performance: who is on time",
        "SELECT airline, flights, cancelled, median_arrival_delay AS median_delay, percent_on_time FROM gold.on_time_performance"
        " WHERE flights >= 20 ORDER BY percent_on_time DESC",
    ),
    (
        "gold.delay_by_weather: what the weather at the origin costs",
        "SELECT weather, flights, average_departure_delay AS average_delay, percent_late FROM gold.delay_by_weather"
        " ORDER BY average_delay DESC",
    ),
    (
        "gold.fleet_age: the largest fleets",
        "SELECT carrier, manufacturer, planes, average_age, seats_per_plane FROM gold.fleet_age ORDER BY planes DESC",
    ),
)

_ELSEWHERE = "unset MONGODB_URI and STRANDLINE_SOURCE__URI: the demo then starts a MongoDB of its own"
_CONF = "conf"  # in the lake; it names the demo's source, lake, gold and suites for the commands that follow
_LAYERS = {"bronze", "silver", "gold", "control", "quality-docs", _CONF}


def run_demo(
    settings: Settings, *, lake: Path, rows: int | None, console: Console, command: str = "strandline"
) -> None:
    """I/O: replaces *lake* (a demo's), starts a mongod unless one is configured, and leaves the lake to be looked at.

    Args:
        lake: Folder; an earlier demo's is replaced.
        rows: Flights, about a quarter of them live; None: `DEFAULT_ROWS`.
        console: Where everything is shown.
        command: How this program is started here; what to try next begins with it.

    Raises:
        ConfigurationError: *lake* is not a demo's; or the configured MongoDB has a database of the demo's name, or lets its user not
            write one. Nothing was changed.
        ContractError: A gold table was not built, or a silver table does not equal its source.
    """
    count = _checked(rows)
    _refuse_strangers(lake)
    stages = Stages(console)
    with _mongod(settings, stages) as uri:
        demo_settings = _settings_of(settings, uri, lake)
        with closing(open_client(connection_options(demo_settings))) as client:
            if settings.source.uri is not None:
                stages.say(f"The MongoDB that is configured, {hosts_of(uri)}, gets a database {DATABASE}")
            _refuse_taken(client)
            with _writing():  # before the lake that is there goes
                client[DATABASE].create_collection(COLLECTIONS[0])
            shutil.rmtree(lake, ignore_errors=True)
            _write_conf(demo_settings, lake)
            with ThreadPoolExecutor(max_workers=1) as beside:
                starting = beside.submit(_started, demo_settings)
                with stages.step("Loading the airline's database, while Spark starts"):
                    replay = _loaded(client, count)
                with stages.step("Starting Spark"):
                    ctx = starting.result()
            _land(ctx, replay, stages)
        _look(ctx, stages)
        _prove(ctx, stages)
    stages.close(lake, f"{command} --conf {shlex.quote(str(lake / _CONF))}")


def _started(settings: Settings) -> JobContext:
    """A session that has committed once: the first commit of a JVM takes it many times as long as the next."""
    ctx = open_context(settings, java_options=SHORT_LIVED)
    ctx.tables.create(SCHEMA_CHANGES, schema_of(SCHEMA_CHANGES_DDL))
    return ctx


def _loaded(client: AnyClient, count: int) -> Replay:
    """Reference data and history are in the database; what follows is ready to be replayed."""
    dataset = load_dataset(count)
    history = len(dataset.flights) - max(1, int(len(dataset.flights) * _LIVE_SHARE))
    with _writing():
        load_reference(client[DATABASE], dataset, dataset.flights[:history])
    return Replay(client, DATABASE, operations(dataset, dataset.flights[history:], seed=1))


def _land(ctx: JobContext, replay: Replay, stages: Stages) -> None:
    """Snapshot and stream collide: capture starts while the flights are in the air."""
    with stages.step("First half of the live day"):
        replay.start()
        replay.half.wait()
    with stages.step("Bronze: snapshot beside the stream") as note:

        def landed(what: str, count: int) -> None:
            replay.hurry()
            note(f"{count:,} {what}")

        result = run_capture(ctx, once=True, report=landed)
    with stages.step("Second half of the live day"), _writing():
        replay.join()
    with stages.step("Bronze: the rest of the stream") as note:
        rest = run_capture(ctx, once=True, report=lambda what, count: note(f"{count:,} {what}"))
    stages.say(
        f"{result.documents:,} documents by snapshot, {result.events:,} changes beside it and {rest.events:,} after it; "
        f"{replay.total:,} were made"
    )
    with stages.step("Silver: one typed table for each collection") as note:
        run_silver(ctx, report=lambda merged: note(f"{merged.table} {merged.inserted + merged.updated:,} rows"))


def _look(ctx: JobContext, stages: Stages) -> None:
    with stages.step("Quality: expectations on silver.flights"):
        report = run_gold_gate(ctx)
    stages.say(report.summary())
    with stages.step("Gold: three pieces"):
        results = run_gold(ctx, versions=report.versions)
    for result in results:
        if result.blocks:
            raise ContractError(f"gold.{result.name} was not built: {result.reason}", next_step="strandline gold")
    for title, query in _SHOWN:
        rows = run_sql(ctx, query).limit(10).collect()
        stages.show(gold_table(title, [row.asDict() for row in rows]))


def _prove(ctx: JobContext, stages: Stages) -> None:
    with (
        stages.step("Proof: every document of silver against MongoDB"),
        closing(open_client(connection_options(ctx.settings), raw=True)) as raw,
    ):
        proofs = prove(ctx.tables, raw[DATABASE], COLLECTIONS)
    stages.show(as_table(proofs))
    equal, total = sum(proof.equal for proof in proofs), sum(proof.source for proof in proofs)
    stages.say(f"{equal:,} of {total:,} documents equal")
    if not all(proof.holds for proof in proofs):
        raise ContractError("silver does not equal its source", next_step="please report this with the table above")


@contextmanager
def _mongod(settings: Settings, stages: Stages) -> Iterator[str]:
    """The configured MongoDB, or an embedded one for the time of the demo."""
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


def _settings_of(settings: Settings, uri: str, lake: Path) -> Settings:
    """The user's settings, pointed at the demo's database and lake. What the user captures, and by which filters, is not the demo's."""
    sections = {
        "source": settings.source.model_copy(update={"name": DATABASE, "uri": SecretStr(uri)}),
        "capture": CaptureSettings(
            scope="database",
            target=DATABASE,
            snapshot_chunk_size=50_000,
            notification_enabled_channels=["table"],
            engine="native",
        ),
        "lake": settings.lake.model_copy(update={"root": str(lake), "catalog": None}),
        "gold": settings.gold.model_copy(update={"sql_dir": str(GOLD), "tests_dir": None}),
        "quality": settings.quality.model_copy(
            update={"suites_dir": str(QUALITY), "docs_dir": str(lake / "quality-docs")}
        ),
    }
    return settings.model_copy(update=sections)


def _write_conf(settings: Settings, lake: Path) -> None:
    """I/O: a configuration that leads the other commands to the demo's lake, from any folder. No secret is in it."""
    folder = lake.resolve()
    sections = {
        "source": {"name": settings.source.name},
        "lake": {"root": str(folder)},
        "gold": {"sql_dir": settings.gold.sql_dir},
        "quality": {"suites_dir": settings.quality.suites_dir, "docs_dir": str(folder / "quality-docs")},
    }
    (folder / _CONF).mkdir(parents=True)
    (folder / _CONF / "local.yml").write_text(yaml.safe_dump(sections), encoding="utf-8")


def _checked(rows: int | None) -> int:
    if rows is not None and rows < 1:
        raise ConfigurationError(
            f"{rows} flights make no demo", next_step=f"--rows 1 or more; without it {DEFAULT_ROWS:,}"
        )
    return rows or DEFAULT_ROWS


def _refuse_strangers(lake: Path) -> None:
    """Only an earlier demo's lake may be replaced."""
    strangers = sorted({entry.name for entry in lake.iterdir()} - _LAYERS) if lake.exists() else []
    if strangers:
        raise ConfigurationError(
            f"{lake} is not a demo's lake, it holds {strangers[0]}", next_step="choose another --lake"
        )


def _refuse_taken(client: AnyClient) -> None:
    with translate_errors("listing databases"):
        taken = DATABASE in client.list_database_names()
    if taken:
        raise ConfigurationError(
            f"that MongoDB has a database {DATABASE} already", next_step=f"{_ELSEWHERE}, or drop {DATABASE} there"
        )


@contextmanager
def _writing() -> Iterator[None]:
    """Of what the server refuses: the pipeline itself needs no privilege to write, so the usual advice would not help."""
    try:
        with translate_errors("writing the demo's data"):
            yield
    except ConfigurationError as refused:
        raise ConfigurationError(
            refused.message, next_step=f"{_ELSEWHERE}, or grant its user readWrite on {DATABASE}"
        ) from None
