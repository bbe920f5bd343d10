"""The bronze writer: one Delta commit holds the events of a batch and the token that ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from strandline.bronze.appender import BronzeAppender
from strandline.bronze.bronze_properties import PROPERTIES, warn_of_forgotten_transactions
from strandline.bronze.engine import Engine, Reader, TransactionId
from strandline.bronze.envelope import SCHEMA, Batch, BatchEnd, Note, control_table
from strandline.bronze.epoch import (
    end_epoch_lanes,
    end_lanes,
    end_stream,
    lanes_at_work,
    restored_at,
    stream_app_id,
)
from strandline.bronze.fenced_table import FencedTable, OpenEngine
from strandline.bronze.offsets import Committed, committed, has_rows, last_before_hole
from strandline.bronze.ownership import SOURCE, STREAM, check_owner
from strandline.errors import ContractError, StrandlineError
from strandline.io.delta_log.append_result import AlreadyAppended, Appended
from strandline.io.delta_log.object_store import is_known_store
from strandline.io.telemetry.metrics import COMMIT_SECONDS
from strandline.io.telemetry.tracing import annotate
from strandline.model.deployment import IDENTITY_PROPERTY
from strandline.model.table_schemas import BRONZE_DDL
from strandline.model.tables import Lake
from strandline.model.update_kinds import UPDATES_PROPERTY, UpdateKind, updates_in

_FILTERS: Final = "strandline.filters"
_EARLIER_FILTERS: Final = "strandline.earlier_filters"
_Rows = TypeVar("_Rows")
_Append = Callable[[_Rows, TransactionId], Appended | AlreadyAppended]


@dataclass
class BronzeWriter(BronzeAppender):
    """The one fenced writer of ``bronze.<source>``. Call `open` first and `close` last.

    Args:
        open_engine: Opens the engine that appends.
    """

    open_engine: OpenEngine = field(kw_only=True)
    epoch: int = field(default=1, init=False)
    """Epoch of this writer's batches. It is part of every application id, so a new epoch fences old writers."""
    filters: str | None = field(default=None, init=False)
    """Filters of the last run. None: it stored none."""
    earlier_filters: str | None = field(default=None, init=False)
    """Filters of runs before (JSON), whose events may still be unread. None: there were none."""
    _bronze: FencedTable = field(init=False)
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
        """I/O: creates the table if it is missing. Returns the end of the last run (None: first run). Idempotent.

        Args:
            identity: Identity of the MongoDB deployment.
            stream: Scope of the change stream. A token of another scope loses events. None: do not check.
            filters: Filters of this run, stored in a new table.
            updates: Kind of updates to come. The table stores every kind. None: no updates.
            restored: True if an earlier writer raised `BronzeRestored`.

        Raises:
            ConfigurationError: The table belongs to another source, or to another stream of it.
            ContractError: The table has rows but no position. A silent new start would lose events.
        """
        initial = PROPERTIES | {SOURCE: self.source, IDENTITY_PROPERTY: identity}
        initial |= ({STREAM: stream} if stream else {}) | ({_FILTERS: filters} if filters else {})
        initial |= {UPDATES_PROPERTY: updates} if updates else {}
        columns = clustering(self.tables.lake)
        self.tables.create_table(self.table, BRONZE_DDL, properties=initial, clustered_by=columns)
        properties = self.tables.properties(self.table)
        check_owner(self.table, properties, self.source, identity, stream)
        warn_of_forgotten_transactions(self.table, properties)
        self.filters, self.earlier_filters = properties.get(_FILTERS), properties.get(_EARLIER_FILTERS)
        if updates and updates not in (earlier_updates := updates_in(properties)):
            self.tables.set_properties(self.table, {UPDATES_PROPERTY: ",".join(sorted({*earlier_updates, updates}))})
        if not set(SCHEMA.names) <= set(self.tables.columns(self.table)):  # its names are cheaper than a parse of DDL
            self.tables.add_missing_columns(self.table, BRONZE_DDL)
        self._bronze = FencedTable.of(self.tables, self.table, self.source)
        self._engine = self.open_engine(self._bronze)
        restore = restored_at(self.tables.commits_after(self.table, -1))
        if restored or restore is not None:
            return self._after_restore(restore)
        last = committed(self.tables, self.table)
        if last is None and has_rows(self.tables, self.table):
            last = committed(self.tables, self.table)  # another writer may just have made the first commit
            if last is None:
                raise ContractError(
                    f"{self.table} has rows, but none that ends a batch, so its position in the source is unknown",
                    next_step=f"RESTORE TABLE {self.tables.lake.sql(self.table)} to a version that has one,"
                    " or choose another source.name",
                )
        self.epoch = last.epoch if last is not None else 1
        self._bronze.batch = last.batch if last is not None else 0
        return last

    def change_stream_to(self, stream: str) -> None:
        """I/O: stores another scope of the change stream. Allowed only after a reset, which leaves no old token."""
        if self.tables.properties(self.table).get(STREAM) != stream:
            self.tables.set_properties(self.table, {STREAM: stream})

    def change_filters_to(self, filters: str) -> None:
        """I/O: stores the filters of this run, for the next run to compare. No commit if they are unchanged."""
        if self.filters != filters:
            self.tables.set_properties(self.table, {_FILTERS: filters})
            self.filters = filters

    def keep_earlier_filters(self, earlier: str) -> None:
        """I/O: stores filters of runs before this one. No commit if they are unchanged."""
        if self.earlier_filters != earlier:
            self.tables.set_properties(self.table, {_EARLIER_FILTERS: earlier})
            self.earlier_filters = earlier

    def app_id(self, *parts: object) -> str:
        """The application transaction id of the stream, or of a part of a snapshot."""
        return ":".join([stream_app_id(self.source, self.epoch), *map(str, parts)])

    def commit(
        self,
        events: Sequence[bytes],
        *,
        batch: int,
        resume_token: str,
        snapshot_id: str | None,
        last_event: str | None = None,
        ends_outside_transaction: bool = False,
    ) -> Committed:
        """I/O: one commit of *events* and the token after them. Exactly once by (epoch, *batch*).

        Without events it is a heartbeat row.

        Args:
            last_event: Cluster time in hex of the last event before *resume_token*. None: unknown.
            ends_outside_transaction: True if *events* are known to end outside a transaction.

        Raises:
            FencedError: Another writer committed this batch.

        Effects on failure:
            The whole batch is committed, or nothing. The next run continues from there. Calling again is safe.
        """
        end = BatchEnd(resume_token, snapshot_id, self.epoch, last_event, ends_outside_transaction)
        if not events:
            return self._commit_rows(
                self._engine.append_rows, control_table(self.stamp(), batch=batch, end=end), batch, end
            )
        batch_rows = Batch(batch, events, end, self.stamp(), self.stored_json)
        return self._commit_rows(self._engine.append_batch, batch_rows, batch, end)

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
        """I/O: one batch without events: a gap, or a change of the offset. It fences like any batch.

        Args:
            extra_rows: More rows of the same commit.

        Raises:
            FencedError: Another writer committed this batch.
        """
        end = BatchEnd(resume_token, snapshot_id, self.epoch, last_event)
        rows = pa.concat_tables([*extra_rows, control_table(self.stamp(), batch=batch, end=end, note=note)])
        return self._commit_rows(self._engine.append_rows, rows, batch, end)

    def _commit_rows(self, append: _Append[_Rows], rows: _Rows, batch: int, end: BatchEnd) -> Committed:
        began = time.monotonic()
        result = self._append(append, rows, app_id=self.app_id(), sequence=batch)
        COMMIT_SECONDS.observe(time.monotonic() - began)
        if isinstance(result, AlreadyAppended):
            raise self.refusal(f"batch {batch}", batch=batch)
        self._bronze.batch = batch
        return Committed(batch, end.resume_token, end.snapshot_id, end.epoch, end.last_event)

    def open_epoch(
        self,
        note: Note,
        *,
        batch: int,
        resume_token: str | None,
        snapshot_id: str | None,
        last_event: str | None = None,
        restored_at: int | None = None,
    ) -> Committed:
        """I/O: one commit ends the epoch and opens the next one. This fences every writer of the old epoch.

        Before that, one commit each ends the lanes of its snapshots. An epoch number is skipped if the log of a
        restored table still knows it as ended.

        Args:
            restored_at: Version of a RESTORE, which may have removed rows of a snapshot. None: no RESTORE.

        Raises:
            FencedError: Another writer opened the next epoch.
            RetriableError: A capture committed before every attempt. The epoch continues.
        """
        while True:
            ended, app_id = self.epoch, self.app_id()
            end_lanes_of = partial(
                end_epoch_lanes,
                self._engine,
                self.tables,
                self.table,
                app_id=app_id,
                epoch=ended,
                proof=f"{self.writer}:ended",
                restored_at=restored_at,
            )
            lanes = end_lanes_of()
            end = BatchEnd(resume_token, snapshot_id, ended + 1, last_event)
            rows = control_table(self.stamp(), batch=batch, end=end, note=note)
            proof = f"{app_id}:{self.writer}:{note.operation_type}"
            result = end_stream(self._engine, rows, app_id=app_id, proof=proof)
            self.epoch = ended + 1
            if isinstance(result, Appended):
                end_lanes_of(finished_lanes=lanes)  # those of a snapshot that began in the meantime
                self._bronze.batch = batch
                return Committed(batch, resume_token, snapshot_id, self.epoch, last_event)
            last = committed(self.tables, self.table)
            if last is not None and last.epoch >= self.epoch:
                raise self._bronze.fencing_error(f"epoch {self.epoch}")

    def end_snapshots_before(self, snapshot_id: str) -> None:
        """I/O: one commit ends each lane of earlier snapshots that were stopped or replaced. Idempotent.

        A late chunk of such a snapshot is in no sweep of *snapshot_id*, and could restore a deleted document.

        Args:
            snapshot_id: Snapshot that the last batch names. No writer continues snapshots of earlier batches only.
        """
        if self._bronze.batch > 1:
            lanes = lanes_at_work(self.tables, self.table, self.epoch, before=self._bronze.batch)
            others = {(snapshot, lane) for snapshot, lane in lanes if snapshot != snapshot_id}
            end_lanes(self._engine, self.app_id(), f"{self.writer}:ended", others)

    def _after_restore(self, restored_at: int | None) -> Committed:
        """Continue from the older token that a RESTORE brought back, in a new epoch.

        Delta still knows the later transactions, and would silently skip their numbers. Events that are captured again
        do no harm. Without a token the next capture starts as after a reset.
        """
        last = last_before_hole(self.tables, self.table) or Committed(0, None, None)
        self.epoch = last.epoch
        return self.open_epoch(
            Note("offset", "restored"),
            batch=last.batch + 1,
            resume_token=last.resume_token,
            snapshot_id=last.snapshot_id,
            last_event=last.last_event,
            restored_at=restored_at,
        )

    def append_once(self, rows: pa.Table, *, app_id: str, sequence: int) -> Appended | AlreadyAppended:
        """I/O: one fenced and proven commit of a few *rows*, or none if the sequence is taken.

        If it is taken and bronze does not hold these rows, the caller must raise `refusal`.

        Raises:
            BronzeRestored: The table was restored to an older version during this run.
            ContractError: The table is gone or was replaced.
        """
        return self._append(self._engine.append_rows, rows, app_id=app_id, sequence=sequence)

    def append_read(self, reader: Reader, *, app_id: str, sequence: int) -> Appended | AlreadyAppended:
        """I/O: as `append_once`, with rows that another process reads. Raises also the errors of *reader*."""
        return self._append(self._engine.append_read, reader, app_id=app_id, sequence=sequence)

    def _append(self, append: _Append[_Rows], rows: _Rows, *, app_id: str, sequence: int) -> Appended | AlreadyAppended:
        transaction = TransactionId(app_id, sequence, f"{app_id}:{self.writer}:{sequence}")
        result = self._bronze.guard(lambda: append(rows, transaction))
        annotate(version=result.version if isinstance(result, Appended) else None)
        return result

    def end_reads(self) -> None:
        """End the reads of `append_read` in progress: they raise an error. Call it when the run ends."""
        self._engine.end_reads()

    def refusal(self, what: str, *, batch: int | None = None) -> StrandlineError:
        """I/O: returns the error for a commit that Delta skipped. *batch* is None for a commit outside the stream."""
        return self._bronze.refusal(what, self.epoch, batch)

    def close(self) -> None:
        """Stop the engine. Raises ContractError if the table is gone."""
        self._bronze.guard(self._engine.close)


def clustering(lake: Lake) -> tuple[str, ...]:
    """Return the clustering columns of a new table. None where delta-rs may write the table, too: it cannot cluster."""
    is_in_reach = lake.by_path and (not lake.in_object_store or is_known_store(lake.root or ""))
    return () if is_in_reach else ("collection", "position")
