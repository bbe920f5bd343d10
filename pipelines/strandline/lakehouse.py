"""The public Python API: a lake, its source and its settings as one object. The commands call the same functions.

import strandline

lakehouse = strandline.connect(conf="conf")
lakehouse.run()                                  # capture, silver and gold, up to the source's present
lakehouse.status().offset.lag_seconds
lakehouse.read("orders").to_pandas()
"""

from __future__ import annotations

import getpass
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from strandline.errors import ConfigurationError
from strandline.model.table_schemas import bronze_table
from strandline.settings import DEFAULT_CONF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.bronze.offsets import CommittedBatch
    from strandline.control.proof import ProofStatus
    from strandline.gold.results import GoldResult
    from strandline.jobs.capture.stream_loop import CaptureResult
    from strandline.jobs.erase.run_erase import ErasureResult
    from strandline.jobs.offsets.show_offset import Offset
    from strandline.jobs.operations.pipeline_status import PipelineStatus
    from strandline.jobs.operations.status import ColumnType
    from strandline.jobs.reconcile.continuous import ProofStep
    from strandline.jobs.reconcile.run_reconcile import Reconciliation
    from strandline.jobs.restore.run_restore import RestoreResult
    from strandline.jobs.run import RunResult
    from strandline.jobs.silver.collection import SilverResult
    from strandline.jobs.snapshot.report import CollectionCheck, SnapshotState
    from strandline.jobs.wait import Arrival, WaitLayer
    from strandline.model.signal import Signal
    from strandline.reader import Library
    from strandline.settings.configuration import Settings
    from strandline.settings.selection import Engine


@dataclass(frozen=True)
class Progress:
    """Rows that one step has written."""

    layer: Literal["bronze", "silver"]
    name: str
    """``events`` or ``documents`` in bronze; the name of the table in silver."""
    rows: int
    """Rows of this step, not of the run."""


OnProgress = Callable[[Progress], None]
"""Called after each commit to bronze and after each silver table, in the thread that wrote it."""


def connect(
    conf: str | Path | None = None,
    *,
    target: str | None = None,
    engine: Engine | None = None,
    **settings: Mapping[str, Any],
) -> Lakehouse:
    """Return the lakehouse of a project. I/O: reads the configuration files and the environment; nothing is opened.

    Args:
        conf: Folder of the configuration files; relative folders of the settings begin at the working directory.
            None: ``STRANDLINE_CONF``, or else ``conf``, in the project: the working directory or the nearest folder
            above it that has a ``conf/base.yml``. Relative folders begin there.
        target: Name of the configuration, ``<conf>/<target>.yml``. None: ``STRANDLINE_TARGET``, or else ``local``.
        engine: ``spark``: Spark writes every row of bronze, silver and gold. None: as the settings say.
        settings: Sections of settings, which win over files and environment:
            ``source={"uri": "mongodb://…"}, lake={"root": "lake"}``.

    Raises:
        ConfigurationError: A setting is wrong. The message lists all problems, without values.
    """
    return Lakehouse(conf, target=target, engine=engine, **settings)


class Lakehouse:
    """One source and its lake. Methods return frozen values and raise the exceptions of `strandline.errors`.

    Spark is started by the first method that needs it. An object serves one thread; jobs use threads of their own.
    """

    def __init__(
        self,
        conf: str | Path | None = None,
        *,
        target: str | None = None,
        engine: Engine | None = None,
        **settings: Mapping[str, Any],
    ) -> None:
        """As `connect`."""
        from strandline.jobs.lake_opener import LakeOpener
        from strandline.settings.configuration import load_settings
        from strandline.settings.project_folder import project_above

        project = project_above(Path.cwd())
        folder = Path(conf) if conf else project / (os.environ.get("STRANDLINE_CONF") or DEFAULT_CONF)
        sections: dict[str, Any] = {section: dict(values) for section, values in settings.items()}
        sections |= {} if engine is None else {"engine": engine}
        loaded = load_settings(target or os.environ.get("STRANDLINE_TARGET") or "local", folder, sections)
        self._opener = LakeOpener(loaded if conf else loaded.in_project(project))

    @property
    def settings(self) -> Settings:
        """The settings of this object. Passwords are hidden when they are printed."""
        return self._opener.settings

    @property
    def bronze(self) -> str:
        """Name of the bronze table in `sql`: ``bronze.<source>``."""
        return str(bronze_table(self.settings.source.name))

    @property
    def spark(self) -> SparkSession:
        """The Spark session. I/O: the first use starts Spark, or takes the session that runs."""
        return self._opener.with_spark().spark

    def run(self, *, progress: OnProgress = lambda _: None) -> RunResult:
        """Capture up to the source's present, then run silver, the quality gate and gold.

        I/O, effects on failure: as `strandline.jobs.run.run_once`. Calling again is safe.

        Raises:
            QualityGateClosed: Bronze and silver are up to date. Gold is unchanged.
        """
        from strandline.jobs.run import open_pipeline, run_once

        return run_once(
            self._opener.for_capture(),
            partial(open_pipeline, self._opener),
            report=_bronze_progress(progress),
            silver_report=_silver_progress(progress),
        )

    def capture(
        self, *, once: bool = True, stop: threading.Event | None = None, progress: OnProgress = lambda _: None
    ) -> CaptureResult:
        """Append change events and snapshots to bronze.

        Args:
            once: True: return when bronze holds everything that the source had done before this call. False: go on
                until *stop* is set.
            stop: Ends the capture after the current batch.

        Raises:
            FencedError: Another process captures this source. Nothing is lost.
            ResumePointLost: The source no longer has the history.
        """
        from strandline.jobs.capture.run_capture import run_capture

        return run_capture(self._opener.for_capture(), once=once, stop=stop, report=_bronze_progress(progress))

    def silver(self, *collections: str, progress: OnProgress = lambda _: None) -> list[SilverResult]:
        """Merge new rows of bronze into silver. Return one result for each table that had some.

        Args:
            collections: ``db.collection``. None: all.
        """
        from strandline.jobs.silver.run_silver import run_silver

        return run_silver(self._opener.for_silver(), collections=collections, report=_silver_progress(progress))

    def gold(self, *names: str, check_quality: bool = True) -> list[GoldResult]:
        """Check quality, then build the views and tables of gold whose inputs changed.

        Args:
            names: Views or tables to build, with those that they read. None: all.
            check_quality: False: build without the quality gate.

        Returns:
            One result for each view or table. A failed one raises no error.

        Raises:
            QualityGateClosed: A blocking expectation failed. Gold is unchanged.
        """
        from strandline.jobs.gold.refresh import refresh_gold
        from strandline.jobs.gold.run_gold import run_gold

        return (refresh_gold if check_quality else run_gold)(self._opener.with_spark(), names)

    def wait(self, until: str = "now", *, layer: WaitLayer = "silver", timeout_seconds: float = 60.0) -> Arrival:
        """Wait until a layer holds every change that the source had made up to a moment. Other processes do the work.

        Args:
            until: ``now``; an operation time of a MongoDB session, ``1764300000,3``; or an ISO 8601 time.
            layer: ``bronze``, ``silver`` or ``gold``.

        Raises:
            RetriableError: The layer is still behind after *timeout_seconds*.
        """
        from strandline.jobs.wait import wait_for

        return wait_for(self._opener.for_control(), until=until, layer=layer, timeout_seconds=timeout_seconds)

    def status(self, *, with_errors: bool = False) -> PipelineStatus:
        """Return the position of the source and the state of every silver table. Count dead letters on demand."""
        from strandline.jobs.operations.pipeline_status import pipeline_status

        return pipeline_status(self._opener.for_silver_counts(), with_errors=with_errors)

    def offsets(self) -> Offset:
        """Return the committed position: token, batch, times, and how long the oplog still holds it."""
        from strandline.jobs.offsets.show_offset import show_offset

        return show_offset(self._opener.for_control())

    def offset_history(self, limit: int = 20) -> list[CommittedBatch]:
        """Return the newest *limit* committed positions, newest first: batch, time, and what moved the position."""
        from strandline.jobs.offsets.show_offset import offset_history

        return offset_history(self._opener.for_control(), limit)

    def snapshot(
        self,
        *collections: str,
        filters: Mapping[str, str] | None = None,
        kind: Literal["incremental", "blocking"] = "incremental",
        replace: bool = False,
        by: str | None = None,
    ) -> Signal:
        """Have collections read again: by the running capture, or by the next one at its start.

        Args:
            collections: Regular expressions, each for the whole of ``database.collection``.
            filters: Query by ``database.collection``, as Extended JSON: read only matching documents.
            kind: ``blocking``: the stream waits for the snapshot.
            replace: A running snapshot drops its unread chunks of these collections. Not with *filters*.
            by: Name of the person or job. None: the user of this process.

        Raises:
            ConfigurationError: A name or query is invalid. No signal was sent.
        """
        from strandline.jobs.snapshot.send_signal import send_signal

        conditions = [{"data-collection": name, "filter": query} for name, query in (filters or {}).items()]
        data = {"type": kind, "data-collections": list(collections), "additional-conditions": conditions}
        return send_signal(
            self._opener.for_control(), "execute-snapshot", data | {"replace": replace}, by=by or getpass.getuser()
        )

    def snapshots(self) -> list[SnapshotState]:
        """Return all snapshots, newest first: planned and committed chunks."""
        from strandline.jobs.snapshot.report import list_snapshots

        return list_snapshots(self._opener.for_control())

    def verify_snapshot(self, snapshot_id: str | None = None) -> list[CollectionCheck]:
        """Check that the chunks of a snapshot (None: the newest) cover every collection, and are whole in bronze.

        Returns one check for each collection. ``holds`` is its outcome.
        """
        from strandline.jobs.snapshot.report import verify_snapshot

        return verify_snapshot(self._opener.for_control(), snapshot_id)

    def reconcile(
        self, *collections: str, typed: bool = False, repair: bool = False, wait_seconds: float = 30.0
    ) -> Reconciliation:
        """Compare silver with the source, document by document.

        Args:
            collections: ``db.collection``. None: all.
            typed: True: compare every column and ``_rescued`` with the row's document, too, also in histories.
            repair: True: read differing documents into bronze again. The next silver run merges them.
            wait_seconds: Maximum wait for a running capture and silver to catch up.

        Raises:
            RetriableError: The lake is behind the source.
        """
        from strandline.jobs.reconcile.run_reconcile import run_reconcile

        return run_reconcile(
            self._opener.for_silver(), collections=collections, typed=typed, repairs=repair, wait_seconds=wait_seconds
        )

    def prove(
        self,
        *collections: str,
        stop: threading.Event,
        repair: bool = False,
        progress: Callable[[ProofStep], None] = lambda _: None,
    ) -> ProofStatus | None:
        """Compare silver with the source, range by range and with columns, at the pace of ``proof.budget``.

        Returns the proof of all ranges when *stop* is set. Arguments, errors: see
        `strandline.jobs.reconcile.continuous.prove`.
        """
        from strandline.jobs.reconcile.continuous import prove

        return prove(self._opener.for_silver(), stop, collections=collections, repairs=repair, report=progress)

    def restore(
        self,
        as_of: str,
        *collections: str,
        to: str | Path,
        keys: Sequence[str] = (),
        allow_inexact: bool = False,
        resume: bool = False,
        into_source: Collection[str] = (),
    ) -> RestoreResult:
        """Write collections as they were at a moment to another deployment or to files, and compare what was written.

        Arguments, errors: see `strandline.jobs.restore.run_restore.run_restore`.
        """
        from strandline.jobs.restore.run_restore import run_restore

        return run_restore(
            self._opener.with_spark(),
            as_of=as_of,
            collections=collections,
            to=to,
            keys=keys,
            allow_inexact=allow_inexact,
            resume=resume,
            into_source=into_source,
        )

    def erase(self, collection: str, **request: Any) -> ErasureResult:
        """Erase documents. Only counts without ``dry_run=False``. See `strandline.jobs.erase.run_erase.run_erase`."""
        from strandline.jobs.erase.run_erase import run_erase

        return run_erase(self._opener.with_spark(), collection, **{"by": getpass.getuser(), **request})

    def columns(self) -> list[ColumnType]:
        """Return the columns of every silver table that come from documents."""
        from strandline.jobs.operations.status import silver_columns

        return silver_columns(self._opener.for_control())

    def dead_letters(self, limit: int = 1000) -> list[dict[str, Any]]:
        """Return the newest *limit* documents and events that could not be stored as they are, without their values."""
        from strandline.jobs.operations.dead_letters import list_dead_letters

        return list_dead_letters(self._opener.for_control(), limit=limit)

    def quality_results(self) -> DataFrame:
        """Return the last result of every expectation."""
        from strandline.jobs.gold.quality import latest_checks

        return latest_checks(self._opener.with_spark())

    def sql(self, query: str) -> DataFrame:
        """Return the result of a query on layer names: ``select … from silver.orders``. Spark computes it when used.

        Raises:
            ConfigurationError: The query is invalid, or a table is unknown.
        """
        from strandline.jobs.operations.sql import run_sql

        return run_sql(self._opener.with_spark(), query)

    def versions(self, table: str) -> DataFrame:
        """Return every version of every document of a silver table, such as ``silver.orders``.

        A version is valid from ``_valid_from`` until ``_valid_to`` (null: still valid). A table without a history has
        one version of each document: the present one.
        """
        from strandline.jobs.operations.sql import versions

        return versions(self._opener.with_spark(), table)

    def read(self, table: str, *, using: Library = "arrow", everything: bool = False) -> Any:
        """Read a table of a lake by path without Spark, as `strandline.read`. `sql` reads a lake in a catalog.

        Raises:
            ConfigurationError: There is no such table, the lake is in a catalog, or the library is not installed.
        """
        from strandline.jobs.lake_context import store_options
        from strandline.reader import read

        lake = self.settings.lake_location
        if not lake.by_path:
            raise ConfigurationError(
                "the lake is in a catalog, and read() opens tables by path", next_step="use sql(), or spark.table()"
            )
        options = store_options(self.settings).for_delta_rs() if lake.in_object_store else None
        return read(table, root=lake.root or "lake", using=using, everything=everything, storage_options=options)


def _bronze_progress(progress: OnProgress) -> Callable[[str, int], None]:
    return lambda kind, rows: progress(Progress("bronze", kind, rows))


def _silver_progress(progress: OnProgress) -> Callable[[SilverResult], None]:
    return lambda result: progress(Progress("silver", str(result.table), result.inserted + result.updated))
