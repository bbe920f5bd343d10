"""The bronze writer: one Delta commit holds the events of a batch and the token that ends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import pyarrow as pa

from pipelines.bronze.engine import Engine, Once, Reader, SparkEngine
from pipelines.bronze.envelope import Batch, BatchEnd, Note, Stamp, control_table
from pipelines.bronze.native_engine import NativeEngine
from pipelines.bronze.offsets import COMMITS_LOOKED_AT, Committed, committed, last_before_hole, was_restored
from pipelines.bronze.stream_rows import one_file
from pipelines.errors import ConfigurationError, ContractError, FencedError
from pipelines.io.landed import Landed
from pipelines.io.metrics import COMMIT_SECONDS
from pipelines.io.tables import Tables, schema_of
from pipelines.model.columns import BRONZE_DDL, SKIPPED_BY, bronze_table
from pipelines.model.deployment import IDENTITY_PROPERTY, same_deployment
from pipelines.model.tables import TableName
from pipelines.model.updates import UPDATES_PROPERTY, UpdateKind, updates_in

_STATISTICS: Final = "delta.dataSkippingStatsColumns"
PROPERTIES = {
    "delta.appendOnly": "true",
    "delta.enableChangeDataFeed": "true",
    _STATISTICS: ",".join(SKIPPED_BY),
    "delta.checkpointInterval": "100",
}
_SOURCE, _STREAM = "strandline.source", "strandline.stream"
_FILTERS: Final = "strandline.filters"
_Rows = TypeVar("_Rows")
_END_OF_LINEAGE: Final = 2**62  # the last sequence of a lineage: whatever its writers commit later is too old


@dataclass
class BronzeWriter:
    """Appends to ``bronze.<source>`` as the one writer of a source.

    Args:
        writer: Names this run; stands in every row.
        clock_us: Microseconds since the epoch, UTC.
        stored_json: Fill the JSON columns at capture.
        native_workers: Processes of the native engine; 0: Spark writes.
    """

    tables: Tables
    source: str
    writer: str
    clock_us: Callable[[], int]
    stored_json: bool = False
    native_workers: int = 0
    lineage: int = field(default=1, init=False)
    """Of the batches that this writer commits: part of every transaction id, so that a new lineage fences the writers of the old one."""
    filters: str | None = field(default=None, init=False)
    """As the last run noted them; None: it noted none."""
    _opened_at: int = field(default=-1, init=False)
    _engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self._engine = SparkEngine(self.tables, self.table)

    @property
    def table(self) -> TableName:
        return bronze_table(self.source)

    def stamp(self) -> Stamp:
        return Stamp(self.source, self.writer, self.clock_us())

    def open(self, identity: str, stream: str | None, filters: str | None = None, updates: UpdateKind | None = None) -> Committed | None:
        """I/O: creates the table if it is not there; returns where the last run ended (None: there was none). Idempotent.

        Args:
            identity: Which MongoDB deployment this is.
            stream: What of it the change stream covers: a token of one stream is accepted by any other, and loses events there. None: any.
            filters: What of the stream is captured; a new table notes it.
            updates: How updates will come; the table notes every kind. None: none will.

        Raises:
            ConfigurationError: The table belongs to another source, or to another stream of it.
            ContractError: It holds rows and no position: to begin anew in silence would lose what happened since.
        """
        properties = PROPERTIES | {_SOURCE: self.source, IDENTITY_PROPERTY: identity}
        properties |= ({_STREAM: stream} if stream else {}) | ({_FILTERS: filters} if filters else {})
        properties |= {UPDATES_PROPERTY: updates} if updates else {}
        schema = schema_of(BRONZE_DDL)
        self.tables.create(self.table, schema, properties=properties, cluster_by=("collection", "position"))
        found = self.tables.properties(self.table)
        self._check_owner(found, identity, stream)
        self.filters = found.get(_FILTERS)
        if updates and updates not in (known := updates_in(found)):
            self.tables.set_properties(self.table, {UPDATES_PROPERTY: ",".join(sorted({*known, updates}))})
        self.tables.add_columns(self.table, schema)
        if "lineage" not in found.get(_STATISTICS, "").split(","):  # of an older release
            self.tables.set_properties(self.table, {_STATISTICS: PROPERTIES[_STATISTICS]})
        commits = self.tables.history(self.table, limit=COMMITS_LOOKED_AT)
        self._opened_at = commits[0].version
        if self.native_workers:
            self._engine = NativeEngine.of(SparkEngine(self.tables, self.table), self._opened_at, workers=self.native_workers)
        if was_restored(commits):
            return self._after_restore()
        last = committed(self.tables, self.table)
        if last is None and not self.tables.read(self.table).isEmpty():
            last = committed(self.tables, self.table)  # a rival may have made the first commit since that was asked
            if last is None:
                raise ContractError(
                    f"{self.table} holds rows and none that ends a batch, so nobody knows where its source was",
                    next_step=f"RESTORE TABLE {self.tables.lake.sql(self.table)} to a version that has one, or choose another source.name",
                )
        self.lineage = last.lineage if last is not None else 1
        return last

    def check_owner(self, identity: str, stream: str | None) -> None:
        """I/O: raises as `open` does where the table belongs to another source, or to another stream of it; writes nothing."""
        self._check_owner(self.tables.properties(self.table), identity, stream)

    def _check_owner(self, found: dict[str, str], identity: str, stream: str | None) -> None:
        if found.get(_SOURCE) != self.source or not same_deployment(found.get(IDENTITY_PROPERTY, ""), identity):
            raise ConfigurationError(
                f"{self.table} holds changes of another MongoDB deployment ({found.get(IDENTITY_PROPERTY)}, this is {identity})",
                next_step="name this source otherwise (source.name), or choose another lake.root",
            )
        if stream is not None and found.get(_STREAM, stream) != stream:
            raise ConfigurationError(
                f"{self.table} holds the stream of {found[_STREAM]}, and the configuration says {stream}",
                next_step="set capture.scope and capture.target back, or start anew: strandline stop, then strandline offsets reset",
            )

    def change_stream_to(self, stream: str) -> None:
        """I/O: from now on the table holds another stream; only after a reset, which leaves no token of the old one."""
        if self.tables.properties(self.table).get(_STREAM) != stream:
            self.set_properties({_STREAM: stream})

    def change_filters_to(self, filters: str) -> None:
        """I/O: what this run captures, for the next one to compare with; no commit where nothing changed."""
        if self.filters != filters:
            self.set_properties({_FILTERS: filters})
            self.filters = filters

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """I/O: one commit, apart from those of this writer's threads."""
        with self._engine.alone():
            self.tables.set_properties(self.table, properties)

    def append(self, rows: pa.Table) -> None:
        """I/O: one commit of a few *rows* that nothing fences, apart from those of this writer's threads."""
        with self._engine.alone():
            self.tables.append(self.table, one_file(self.tables.spark, rows))

    def app_id(self, *parts: object) -> str:
        """The application transaction id of the stream, or of a part of a snapshot."""
        return ":".join(["strandline", self.source, str(self.lineage), *map(str, parts)])

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
        beside: Sequence[pa.Table] = (),
    ) -> Committed:
        """I/O: one batch without events that says something: a gap, or an offset that an operator set. It fences as any batch does.

        Args:
            beside: More rows of the same commit.

        Raises:
            FencedError: Another writer committed this batch.
        """
        end = BatchEnd(resume_token, snapshot_id, self.lineage, last_event)
        rows = pa.concat_tables([*beside, control_table(self.stamp(), batch=batch, end=end, note=note)])
        return self._ended(self._engine.append_rows, rows, batch, end)

    def _ended(self, append: Callable[[_Rows, Once], Landed | None], rows: _Rows, batch: int, end: BatchEnd) -> Committed:
        with COMMIT_SECONDS.time():
            self._once(append, rows, app_id=self.app_id(), sequence=batch, what=f"batch {batch}")
        return Committed(batch, end.resume_token, end.snapshot_id, end.lineage, end.last_event)

    def open_lineage(
        self, note: Note, *, batch: int, resume_token: str | None, snapshot_id: str | None, last_event: str | None = None
    ) -> Committed:
        """I/O: one commit ends the lineage and opens the next: every writer of the old one is fenced from then on.

        A lineage that the log of a restored table still knows as ended is passed over.

        Raises:
            FencedError: Another writer opened it.
        """
        while True:
            ended, self.lineage = self.app_id(), self.lineage + 1
            end = BatchEnd(resume_token, snapshot_id, self.lineage, last_event)
            rows = one_file(self.tables.spark, control_table(self.stamp(), batch=batch, end=end, note=note))
            proof = f"{ended}:{self.writer}:{note.operation_type}"
            if self.tables.append_once(self.table, rows, app_id=ended, sequence=_END_OF_LINEAGE, proof=proof) is not None:
                return Committed(batch, resume_token, snapshot_id, self.lineage, last_event)
            last = committed(self.tables, self.table)
            if last is not None and last.lineage >= self.lineage:
                raise self._fenced(f"lineage {self.lineage}")

    def _after_restore(self) -> Committed:
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
        )

    def append_once(self, rows: pa.Table, *, app_id: str, sequence: int, what: str) -> int:
        """I/O: one fenced commit of a few *rows*, proven. Returns how many rows the commit holds.

        Raises:
            FencedError: Another writer committed this sequence.
            ContractError: The table was restored to an older version under this run.
        """
        return self._once(self._engine.append_rows, rows, app_id=app_id, sequence=sequence, what=what)

    def append_read(self, read: Reader, *, app_id: str, sequence: int, what: str) -> int:
        """I/O: the same with rows that another process reads. Raises what that raises, too."""
        return self._once(self._engine.append_read, read, app_id=app_id, sequence=sequence, what=what)

    def _once(self, append: Callable[[_Rows, Once], Landed | None], rows: _Rows, *, app_id: str, sequence: int, what: str) -> int:
        landed = append(rows, Once(app_id, sequence, f"{app_id}:{self.writer}:{sequence}"))
        if landed is None:
            raise self._fenced(what)
        if landed.restored_at is not None and landed.restored_at > self._opened_at:
            raise ContractError(
                f"{self.table} was restored to an older version while this capture was writing; nothing is lost",
                next_step="strandline capture: it goes on from where the table is whole",
            )
        return landed.rows

    def _fenced(self, what: str) -> FencedError:
        return FencedError(
            f"another writer committed {what} of source {self.source}; this one stops, nothing is lost",
            next_step="run one capture per source; strandline status shows the writer",
        )

    def close(self) -> None:
        """Ends what `open` started."""
        self._engine.close()
