"""Signals and changed filters, processed between two batches of a running capture, each exactly once.

All signals of one poll are committed as one batch. The batch holds the results (a plan, discarded chunks, a pause) and
one row per signal, so a crash leaves both or neither. A signal that must wait has no row, and the next poll finds it
again.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.bronze.envelope import signal_table
from strandline.bronze.signal_rows import acted_upon
from strandline.control.signal_inbox import SignalInbox
from strandline.errors import ConfigurationError, LakeUnavailable, RetriableError
from strandline.jobs.capture.batch_committer import BatchCommitter
from strandline.jobs.capture.concurrent_snapshot import ConcurrentSnapshot
from strandline.jobs.capture.filter_changes import commit_filter_changes, filters_to_json, newly_included_collections
from strandline.jobs.capture.scheduled_reads import ScheduledReads
from strandline.jobs.capture_session import CaptureSession
from strandline.jobs.snapshot.plan import Plan, make_plan
from strandline.jobs.snapshot.run import SnapshotRun
from strandline.model.signal import (
    CollectionPatterns,
    ExecuteSnapshot,
    LogMessage,
    Order,
    RejectedSignal,
    SetPaused,
    Signal,
    StopSnapshot,
    parse_signal,
)
from strandline.source.errors import CredentialsRefused, ServerChanged
from strandline.source.listing import captured_collections

_log = logging.getLogger("strandline.signals")
_WAIT_SECONDS = 0.2


@dataclass(frozen=True)
class _WaitingSignal:
    """A signal that is not processed yet."""

    signal: Signal
    order: Order


class SignalHandler:
    """Processes signals and newly included collections. The stream's loop calls it before each batch.

    I/O at construction: if the filters have changed, commits a heartbeat, records gaps, and lists the source's
    collections.
    """

    def __init__(
        self, session: CaptureSession, committer: BatchCommitter, snapshot: ConcurrentSnapshot, inbox: SignalInbox
    ) -> None:
        self._session, self._committer, self._snapshot, self._inbox = session, committer, snapshot, inbox
        self._waiting: list[_WaitingSignal] = []
        self._uncommitted_rows: list[pa.Table] = []
        self._filters = filters_to_json(session.selection)
        if session.writer.filters != self._filters:
            # It fences an earlier capture, which goes on with other filters: only one of the two may store its own.
            committer.commit_control_rows([], snapshot.snapshot_id)
        commit_filter_changes(session, committer.last)
        self._scheduled = ScheduledReads(session)
        self._newly_included = session.retry(lambda: newly_included_collections(session))
        if snapshot.run is not None and snapshot.run.is_new_initial:
            planned = snapshot.run.plan.collections
            self._newly_included = [collection for collection in self._newly_included if str(collection) not in planned]

    def process(self) -> bool:
        """Process new signals. Wait while a blocking snapshot holds the stream.

        I/O: reads the signal channels; writes bronze and notifications. Return False if the run must end.
        """
        self._process_signals()
        stop, wait = self._session.stop, self._session.state.wait
        while self._snapshot.run is not None and self._snapshot.run.holds_stream:
            if wait(stop, _WAIT_SECONDS) or not self._session.gate.wait_until_running(stop, wait):
                return False
            self._session.notifications.flush_due()
            self._process_signals()
        self._session.notifications.flush_due()
        return True

    @property
    def is_idle(self) -> bool:
        """Return True if no signal, no collection, no snapshot and no scheduled read is left to process.

        A paused snapshot counts as idle.
        """
        run = self._snapshot.run
        if run is not None:
            return run.paused
        return not self._waiting and not self._newly_included and not self._inbox.is_due and self._scheduled.is_idle

    def _process_signals(self) -> None:
        self._snapshot_newly_included()
        new_signals = self._inbox.new_signals()
        handled_keys = acted_upon(
            self._session.writer.tables, self._session.writer.table, [signal.key for signal in new_signals]
        )
        self._waiting += [
            _WaitingSignal(signal, parse_signal(signal)) for signal in new_signals if signal.key not in handled_keys
        ]
        for waiting in list(self._waiting):
            if waiting not in self._waiting:
                continue
            if isinstance(waiting.order, ExecuteSnapshot) and self._is_busy:
                if waiting.order.replaces and self._snapshot.run is not None:
                    rows, _ = self._discard(self._snapshot.run, waiting.signal, waiting.order.collections)
                    self._uncommitted_rows += rows
            else:
                try:
                    if not self._execute_order(waiting):
                        break  # later signals wait, too
                except (LakeUnavailable, CredentialsRefused, ServerChanged):
                    raise  # not about this signal: it stays unanswered
                except RetriableError as error:  # nothing was committed: it is retried before the next batch
                    _log.warning("signal %s waits: %s", waiting.signal.key, error)
                    break
                except ConfigurationError as error:  # the source refuses it, and would refuse it at the next start
                    self._skip(waiting.signal, error.message)
                self._waiting.remove(waiting)
        self._read_scheduled()
        self._commit()

    def _read_scheduled(self) -> None:
        """Plan a snapshot of the scheduled collections that are due, unless another snapshot runs."""
        if not self._is_busy and (due := self._scheduled.due()):
            plan = self._session.retry(lambda: make_plan(self._session, [], kind="scheduled", scheduled=due))
            self._begin_snapshot(plan)

    def _commit(self) -> None:
        """Commit one batch with all rows since the last one, then start a planned snapshot."""
        if not self._uncommitted_rows:
            return
        self._session.notifications.flush()
        rows, self._uncommitted_rows = self._uncommitted_rows, []
        self._committer.commit_control_rows(rows, self._snapshot.snapshot_id)
        self._snapshot.start()

    @property
    def _is_busy(self) -> bool:
        return self._snapshot.run is not None or bool(self._newly_included)

    def _snapshot_newly_included(self) -> None:
        """Plan a snapshot of newly included collections.

        After it, store the filters of this run for the next comparison.
        """
        if self._newly_included and self._snapshot.run is None:
            for collection in self._newly_included:
                _log.info("%s is read: the filters or stages of the last run left out all of it or a part", collection)
            plan = self._session.retry(
                lambda: make_plan(self._session, self._newly_included, sweeps=True, kind="incremental")
            )
            self._begin_snapshot(plan)
            self._commit()
            self._newly_included = []
        if not self._newly_included:
            self._session.writer.change_filters_to(self._filters)

    def _execute_order(self, waiting: _WaitingSignal) -> bool:
        """Execute the order of one signal. Return False if the signal must wait."""
        signal = waiting.signal
        match waiting.order:
            case RejectedSignal(reason):
                self._skip(signal, reason)
            case LogMessage(message):
                line = " ".join(message.split())  # a message from outside makes one line
                _log.info("signal %s: %s", signal.key, line)
                self._add_signal_row(signal, "logged")
            case SetPaused(paused):
                return self._pause_or_resume(signal, paused)
            case StopSnapshot() as order:
                self._stop_snapshot(waiting, order)
            case ExecuteSnapshot() as order:
                self._execute_snapshot(signal, order)
        return True

    def _pause_or_resume(self, signal: Signal, paused: bool) -> bool:
        """Pause or resume the current snapshot.

        Return False while a chunk is in progress: a pause begins after its commit.
        """
        run, outcome = self._snapshot.run, "paused" if paused else "resumed"
        if run is None or (paused and run.progress.all_taken):
            self._skip(signal, "no snapshot runs" if run is None else "no chunk of the snapshot is left to pause")
            return True
        if not paused:
            run.resume()
            run.progress.notify("RESUMED", signal=signal.key, paused_seconds=run.paused_seconds)
        elif run.pause():
            run.progress.notify("PAUSED", signal=signal.key)
        else:
            return False
        self._add_signal_row(signal, outcome, run.control_rows(outcome, json.dumps({"signal": signal.key})))
        return True

    def _stop_snapshot(self, waiting: _WaitingSignal, order: StopSnapshot) -> None:
        """Stop the current snapshot, or some of its collections.

        A full stop also cancels earlier requests that still wait.
        """
        signal, run, names = waiting.signal, self._snapshot.run, order.collections
        before = self._waiting[: self._waiting.index(waiting)] if names is None else []
        for earlier in [entry for entry in before if isinstance(entry.order, ExecuteSnapshot)]:
            self._skip(earlier.signal, f"stopped by signal {signal.key} before it began")
            self._waiting.remove(earlier)
        if run is None:
            self._skip(signal, "no snapshot runs")
            return
        rows, chunks = self._discard(run, signal, names)
        if names is None:
            rows += run.control_rows("stopped", json.dumps({"stopped_by": signal.key}))
            paused = run.paused_seconds
            self._snapshot.end()  # chunks in progress are committed before the end is notified
            run.notify_end("ABORTED", signal=signal.key, paused_seconds=paused)
        self._add_signal_row(signal, "stopped", rows, chunks=chunks)

    def _discard(
        self, run: SnapshotRun, signal: Signal, names: CollectionPatterns | None
    ) -> tuple[list[pa.Table], int]:
        """Drop the unread chunks of *names*. None: of all collections. Return their control rows and their number."""
        planned = sorted({str(chunk.collection) for chunk in run.plan.chunks})
        stopped = set(planned) if names is None else names.matching(planned)
        discarded = [chunk.number for chunk in run.progress.discard(stopped.__contains__)]
        return run.control_rows("discarded", json.dumps({"stopped_by": signal.key}), discarded), len(discarded)

    def _execute_snapshot(self, signal: Signal, order: ExecuteSnapshot) -> None:
        session, captured = self._session, captured_collections(self._session.client, self._session.selection)
        scheduled = [name for name in session.settings.scheduled if order.query_of(name) is None]
        names = [*map(str, captured), *scheduled]
        matched = {pattern: CollectionPatterns((pattern,)).matching(names) for pattern in order.collections.patterns}
        collections = [
            collection for collection in captured if any(str(collection) in among for among in matched.values())
        ]
        scheduled = [name for name in scheduled if any(name in among for among in matched.values())]
        for pattern, among in matched.items():
            if not among:
                self._notify_skipped(signal, f"no captured collection matches {pattern}")
        if not collections and not scheduled:
            self._skip(signal, "the signal matches no captured collection")
            return
        is_everything = collections and collections == captured and not order.conditions
        chosen = None if is_everything else collections  # None: the plan certifies that it lists all of them
        plan = make_plan(
            session,
            chosen,
            sweeps=True,
            kind=order.type,
            signal=signal.key,
            query_of=order.query_of,
            scheduled=scheduled,
        )
        self._add_signal_row(signal, "begun", snapshot_id=self._begin_snapshot(plan))

    def _begin_snapshot(self, plan: Plan) -> str:
        """Make *plan* the current snapshot, and return its id. The next batch commits the plan."""
        run = SnapshotRun(self._session, uuid.uuid4().hex, plan, {})
        self._uncommitted_rows += run.control_rows("plan", plan.to_json())
        self._snapshot.replace(run)
        self._scheduled.begin(plan.scheduled)
        return run.id

    def _skip(self, signal: Signal, reason: str) -> None:
        self._notify_skipped(signal, reason)
        self._add_signal_row(signal, "skipped", reason=reason)

    def _notify_skipped(self, signal: Signal, reason: str) -> None:
        self._session.notifications.notify("Signal", "SKIPPED", signal.key, signal=signal.type, reason=reason)

    def _add_signal_row(self, signal: Signal, outcome: str, rows: Sequence[pa.Table] = (), **details: Any) -> None:
        """Add *rows* and the signal's own row to the next batch."""
        content = {"data": signal.data, "by": signal.by, "channel": signal.channel, "outcome": outcome, **details}
        self._uncommitted_rows += [
            signal_table(self._session.writer.stamp(), signal.key, signal.type or "", json.dumps(content)),
            *rows,
        ]
