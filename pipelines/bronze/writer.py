"""The bronze writer: one Delta commit holds the events of a batch and the token that ends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from pipelines.bronze.appender import BronzeAppender
from pipelines.bronze.engine import Engine, Reader, SparkEngine, TransactionId
from pipelines.bronze.envelope import Batch, BatchEnd, Note, control_table
from pipelines.bronze.lineage import end_lanes, end_lineage_lanes, end_stream, lanes_at_work, restored_at, stream_app_id
from pipelines.bronze.native_engine import NativeEngine
from pipelines.bronze.offsets import Committed, committed, last_before_hole
from pipelines.bronze.opened_table import OpenedTable
from pipelines.bronze.ownership import SOURCE, STREAM, check_owner
from pipelines.errors import ContractError, StrandlineError
from pipelines.io.append_result import AlreadyAppended, Appended
from pipelines.io.ddl import schema_of
from pipelines.io.metrics import COMMIT_SECONDS
from pipelines.model.deployment import IDENTITY_PROPERTY
from pipelines.model.table_schemas import BRONZE_DDL, SKIPPED_BY
from pipelines.model.update_kinds import UPDATES_PROPERTY, UpdateKind, updates_in

_STATISTICS: Final = "delta.dataSkippingStatsColumns"
PROPERTIES = {
    "delta.appendOnly": "true",
    "delta.enableChangeDataFeed": "true",
    _STATISTICS: ",".join(SKIPPED_BY),
    "delta.checkpointInterval": "100",
}
_FILTERS: Final = "strandline.filters"
_Rows = TypeVar("_Rows")


@dataclass
class BronzeWriter(BronzeAppender):
    """Appends to ``bronze.<source>`` as the one writer of a source. `open` comes first, `close` last.

    Args:
        native_workers: Processes of the native engine; 0: Spark writes.
    """

    native_workers: int = 0
    lineage: int = field(default=1, init=False)
    """Of the batches that this writer commits: part of every transaction id, so that a new lineage fences the writers of the old one."""
    filters: str | None = field(default=None, init=False)
    """As the last run noted them; None: it noted none."""
    _opened: OpenedTable = field(init=False)
    _spark: SparkEngine = field(init=False)
    _engine: Engine = field(init=False)

    def open(
        self,
        identity: str,
        stream: str | None,
        filters: str | None = None,
        updates: UpdateKind | None = None,
        *,
        restored: bool = False,
    ) -> Committed | None:
        """I/O: creates the table if it is not there; returns where the last run ended (None: there was none). Idempotent.

        Args:
            identity: Which MongoDB deployment this is.
            stream: What of it the change stream covers: a token of one stream is accepted by any other, and loses events there. None: any.
            filters: What of the stream is captured; a new table notes it.
            updates: How updates will come; the table notes every kind. None: none will.
            restored: An earlier writer raised `BronzeRestored`.

        Raises:
            ConfigurationError: The table belongs to another source, or to another stream of it.
            ContractError: It holds rows and no position: to begin anew in silence would lose what happened since.
        """
        properties = PROPERTIES | {SOURCE: self.source, IDENTITY_PROPERTY: identity}
        properties |= ({STREAM: stream} if stream else {}) | ({_FILTERS: filters} if filters else {})
        properties |= {UPDATES_PROPERTY: updates} if updates else {}
        schema = schema_of(BRONZE_DDL)
        self.tables.create(self.table, schema, properties=properties, cluster_by=("collection", "position"))
        found = self.tables.properties(self.table)
        check_owner(self.table, found, self.source, identity, stream)
        self.filters = found.get(_FILTERS)
        if updates and updates not in (known := updates_in(found)):
            self.tables.set_properties(self.table, {UPDATES_PROPERTY: ",".join(sorted({*known, updates}))})
        self.tables.add_columns(self.table, schema)
        if "lineage" not in found.get(_STATISTICS, "").split(","):  # of an older release
            self.tables.set_properties(self.table, {_STATISTICS: PROPERTIES[_STATISTICS]})
        self._open_engines()
        restore = restored_at(self.tables.commits_after(self.table, -1))
        if restored or restore is not None:
            return self._after_restore(restore)
        last = committed(self.tables, self.table)
        if last is None and not self.tables.read(self.table).isEmpty():
            last = committed(self.tables, self.table)  # a rival may have made the first commit since that was asked
            if last is None:
                raise ContractError(
                    f"{self.table} holds rows and none that ends a batch, so nobody knows where its source was",
                    next_step=f"RESTORE TABLE {self.tables.lake.sql(self.table)} to a version that has one, or choose another source.name",
                )
        self.lineage = last.lineage if last is not None else 1
        self._opened.batch = last.batch if last is not None else 0
        return last

    def _open_engines(self) -> None:
        self._opened = OpenedTable.of(self.tables, self.table, self.source)
        version = self._opened.version
        self._engine = self._spark = SparkEngine(self.tables, self.table, self._opened.id, version)
        if self.native_workers:
            self._engine = NativeEngine.of(self._spark, version, workers=self.native_workers)

    def change_stream_to(self, stream: str) -> None:
        """I/O: from now on the table holds another stream; only after a reset, which leaves no token of the old one."""
        if self.tables.properties(self.table).get(STREAM) != stream:
            self.set_properties({STREAM: stream})

    def change_filters_to(self, filters: str) -> None:
        """I/O: what this run captures, for the next one to compare with; no commit where nothing changed."""
        if self.filters != filters:
            self.set_properties({_FILTERS: filters})
            self.filters = filters

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """I/O: one commit, apart from those of this writer's threads."""
        with self._engine.alone():
            self.tables.set_properties(self.table, properties)

    def append_frame(self, rows: DataFrame) -> None:
        """I/O: one commit of *rows* that nothing fences, apart from those of this writer's threads."""
        with self._engine.alone():
            super().append_frame(rows)

    def app_id(self, *parts: object) -> str:
        """The application transaction id of the stream, or of a part of a snapshot."""
        return ":".join([stream_app_id(self.source, self.lineage), *map(str, parts)])

    def commit(
        self,
        events: Sequence[bytes],
        *,
        batch: int,
        resume_token: str,
        snapshot_id: str | None,
        last_event: str | None = None,
        whole: bool = False,
    ) -> Committed:
        """I/O: one commit of *events* with the token after them; no events: a heartbeat row. Exactly once by (lineage, *batch*).

        Args:
            last_event: Cluster time in hex of the last event before *resume_token*, which may be older than *events*; None: none is known.
            whole: Whether it is certain that *events* end inside no transaction.

        Raises:
            FencedError: Another writer committed this batch.

        Effects on failure:
            Either the whole batch is there or nothing; the next run goes on from what is there. Calling again is safe.
        """
        end = BatchEnd(resume_token, snapshot_id, self.lineage, last_event, whole)
        if not events:
            return self._ended(self._engine.append_rows, control_table(self.stamp(), batch=batch, end=end), batch, end)
        rows = Batch(batch, events, end, self.stamp(), self.stored_json)
        return self._ended(self._engine.append_batch, rows, batch, end)

    def commit_note(
        self,
        note: Note,
        *,
        batch: int,
        resume_token: str | None,
        snapshot_id: str | None,
        last_event: str | None = None,
        extra_rows: Sequence[pa.Table] = (),
    ) -> Committed:
        """I/O: one batch without events that says something: a gap, or an offset that an operator set. It fences as any batch does.

        Args:
            beside: More rows of the same commit.

        Raises:
            FencedError: Another writer committed this batch.
        """
        end = BatchEnd(resume_token, snapshot_id, self.lineage, last_event)
        rows = pa.concat_tables([*extra_rows, control_table(self.stamp(), batch=batch, end=end, note=note)])
        return self._ended(self._engine.append_rows, rows, batch, end)

    def _ended(
        self,
        append: Callable[[_Rows, TransactionId], Appended | AlreadyAppended],
        rows: _Rows,
        batch: int,
        end: BatchEnd,
    ) -> Committed:
        with COMMIT_SECONDS.time():
            landed = self._once(append, rows, app_id=self.app_id(), sequence=batch)
        if isinstance(landed, AlreadyAppended):
            raise self.refusal(f"batch {batch}", batch=batch)
        self._opened.batch = batch
        return Committed(batch, end.resume_token, end.snapshot_id, end.lineage, end.last_event)

    def open_lineage(
        self,
        note: Note,
        *,
        batch: int,
        resume_token: str | None,
        snapshot_id: str | None,
        last_event: str | None = None,
        restored_at: int | None = None,
    ) -> Committed:
        """I/O: one commit ends the lineage and opens the next: every writer of the old one is fenced from then on. The lanes of its
        snapshots are ended before, by one commit each.

        A lineage that the log of a restored table still knows as ended is passed over.

        Args:
            restored_at: The version of a RESTORE, which may have taken back what tells of a snapshot.

        Raises:
            FencedError: Another writer opened it.
            RetriableError: A capture committed again and again; the lineage goes on.
        """
        while True:
            ended, app_id = self.lineage, self.app_id()
            lanes = end_lineage_lanes(self._spark, app_id, ended, f"{self.writer}:ended", restored_at)
            end = BatchEnd(resume_token, snapshot_id, ended + 1, last_event)
            rows = control_table(self.stamp(), batch=batch, end=end, note=note)
            landed = end_stream(self._spark, rows, app_id=app_id, proof=f"{app_id}:{self.writer}:{note.operation_type}")
            self.lineage = ended + 1
            if isinstance(landed, Appended):  # of a snapshot that began meanwhile the lanes are ended now
                end_lineage_lanes(self._spark, app_id, ended, f"{self.writer}:ended", restored_at, done=lanes)
                self._opened.batch = batch
                return Committed(batch, resume_token, snapshot_id, self.lineage, last_event)
            last = committed(self.tables, self.table)
            if last is not None and last.lineage >= self.lineage:
                raise self._opened.fenced(f"lineage {self.lineage}")

    def end_snapshots_before(self, snapshot_id: str) -> None:
        """I/O: no chunk of an earlier snapshot lands any more, of one that was stopped or replaced: one commit for each of its lanes.
        Idempotent. What it read stood in no sweep of *snapshot_id*, and could bring a document back.

        Args:
            snapshot_id: Named by the last batch. So nobody goes on with one that only earlier batches name.
        """
        if self._opened.batch > 1:
            lanes = lanes_at_work(self.tables, self.table, self.lineage, before=self._opened.batch)
            with self._engine.alone():
                others = {(snapshot, lane) for snapshot, lane in lanes if snapshot != snapshot_id}
                end_lanes(self._spark, self.app_id(), f"{self.writer}:ended", others)

    def _after_restore(self, restored_at: int | None) -> Committed:
        """Go on from the older token that a RESTORE brought back, in a lineage of its own: Delta still knows the later transactions,
        and would skip their numbers without a word. What is captured again are replays, which no reader minds. Where it brought back none,
        the next capture starts as after a reset."""
        last = last_before_hole(self.tables, self.table) or Committed(0, None, None)
        self.lineage = last.lineage
        return self.open_lineage(
            Note("offset", "restored"),
            batch=last.batch + 1,
            resume_token=last.resume_token,
            snapshot_id=last.snapshot_id,
            last_event=last.last_event,
            restored_at=restored_at,
        )

    def append_once(self, rows: pa.Table, *, app_id: str, sequence: int) -> Appended | AlreadyAppended:
        """I/O: one fenced commit of a few *rows*, proven; or none where the sequence is taken. Unless bronze holds these rows already, the
        caller raises `refusal` then.

        Raises:
            BronzeRestored: The table was restored to an older version under this run.
            ContractError: The table is gone, or another one has its place.
        """
        return self._once(self._engine.append_rows, rows, app_id=app_id, sequence=sequence)

    def append_read(self, read: Reader, *, app_id: str, sequence: int) -> Appended | AlreadyAppended:
        """I/O: the same with rows that another process reads. Raises what that raises, too."""
        return self._once(self._engine.append_read, read, app_id=app_id, sequence=sequence)

    def _once(
        self,
        append: Callable[[_Rows, TransactionId], Appended | AlreadyAppended],
        rows: _Rows,
        *,
        app_id: str,
        sequence: int,
    ) -> Appended | AlreadyAppended:
        once = TransactionId(app_id, sequence, f"{app_id}:{self.writer}:{sequence}")
        return self._opened.guarded(lambda: append(rows, once))

    def refusal(self, what: str, *, batch: int | None = None) -> StrandlineError:
        """I/O: the error that tells why Delta skipped a commit of this writer. *batch*: None: it was no batch of the stream."""
        return self._opened.refusal(what, self.lineage, batch)

    def close(self) -> None:
        """Ends what was started since `open`. Raises ContractError where the table is gone."""
        self._opened.guarded(self._engine.close)
