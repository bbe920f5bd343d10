"""What a running capture is asked to do, by signals and by changed filters: acted upon between two batches, each exactly once.

To act is to commit a batch: for all signals of one look it holds what was done (a plan, discarded chunks, that a snapshot waits) and the
rows that name the signals, so a crash leaves both or neither. A signal that must wait stays where it is, and is found again.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines.bronze.envelope import signal_table
from pipelines.bronze.signal_rows import acted_upon
from pipelines.control.signal_inbox import SignalInbox
from pipelines.errors import ConfigurationError, RetriableError
from pipelines.jobs.capture.batch_committer import BatchCommitter
from pipelines.jobs.capture.concurrent_snapshot import ConcurrentSnapshot
from pipelines.jobs.capture.filter_changes import filters_of, newly_included_collections, note_gaps
from pipelines.jobs.capture_session import CaptureSession
from pipelines.jobs.snapshot.plan import Plan, make_plan
from pipelines.jobs.snapshot.run import SnapshotRun
from pipelines.model.signal import Execute, Hold, Log, Names, Order, Refused, Signal, Stop, order_of
from pipelines.source.client import captured_collections

_log = logging.getLogger("strandline.signals")
_WAIT_SECONDS = 0.2


@dataclass(frozen=True)
class _Asked:
    """A signal that waits for its turn."""

    signal: Signal
    order: Order


class SignalHandler:
    """Asked by the stream's loop before each batch."""

    def __init__(
        self, session: CaptureSession, committer: BatchCommitter, snapshot: ConcurrentSnapshot, inbox: SignalInbox
    ) -> None:
        self._session, self._committer, self._snapshot, self._inbox = session, committer, snapshot, inbox
        self._waiting: list[_Asked] = []
        self._rows: list[pa.Table] = []
        self._filters = filters_of(session.selection)
        note_gaps(session)
        self._newcomers = session.retry(lambda: newly_included_collections(session))
        if snapshot.run is not None and snapshot.run.is_whole_and_new:
            read = snapshot.run.plan.collections
            self._newcomers = [where for where in self._newcomers if str(where) not in read]

    def process(self, stop: threading.Event) -> bool:
        """I/O: acts upon what came; waits while a blocking snapshot holds the stream. False where the run is to end meanwhile."""
        self._act()
        while self._snapshot.run is not None and self._snapshot.run.holds_stream:
            if stop.wait(_WAIT_SECONDS) or not self._session.gate.wait_until_running(stop):
                return False
            self._session.notifications.flush_due()
            self._act()
        self._session.notifications.flush_due()
        return True

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left that would begin or go on by itself: a snapshot that was told to wait does not."""
        run = self._snapshot.run
        if run is not None:
            return run.paused
        return not self._waiting and not self._newcomers and not self._inbox.is_due

    def _act(self) -> None:
        self._welcome()
        new_signals = self._inbox.new_signals()
        known = acted_upon(
            self._session.writer.tables, self._session.writer.table, [signal.key for signal in new_signals]
        )
        self._waiting += [_Asked(signal, order_of(signal)) for signal in new_signals if signal.key not in known]
        for asked in list(self._waiting):
            if asked in self._waiting and not (isinstance(asked.order, Execute) and self._is_busy):
                try:
                    if not self._act_upon(asked):
                        break  # whatever came after it waits, too
                except RetriableError as error:  # nothing was committed: it is asked again before the next batch
                    _log.warning("signal %s waits: %s", asked.signal.key, error)
                    break
                except ConfigurationError as error:  # the source lets us not: it would not at the next start either
                    self._skip(asked.signal, error.message)
                self._waiting.remove(asked)
        self._commit()

    def _commit(self) -> None:
        """I/O: one batch for all that was done since the last one; a snapshot that was begun starts when it has landed."""
        if not self._rows:
            return
        self._session.notifications.flush()
        rows, self._rows = self._rows, []
        self._committer.note(rows, self._snapshot.id)
        self._snapshot.start()

    @property
    def _is_busy(self) -> bool:
        return self._snapshot.run is not None or bool(self._newcomers)

    def _welcome(self) -> None:
        """Read what the filters and stages of the last run left out; then those of this run are the ones to compare with."""
        if self._newcomers and self._snapshot.run is None:
            for collection in self._newcomers:
                _log.info("%s is read: the filters or stages of the last run left out all of it or a part", collection)
            plan = self._session.retry(
                lambda: make_plan(self._session, self._newcomers, sweeps=True, kind="incremental")
            )
            self._begin(plan)
            self._commit()
            self._newcomers = []
        if not self._newcomers:
            self._session.writer.change_filters_to(self._filters)

    def _act_upon(self, asked: _Asked) -> bool:
        """False where the signal must wait."""
        signal = asked.signal
        match asked.order:
            case Refused(reason):
                self._skip(signal, reason)
            case Log(message):
                _log.info(
                    "signal %s: %s", signal.key, " ".join(message.split())
                )  # one line, whatever comes from outside
                self._note(signal, "logged")
            case Hold(paused):
                return self._hold(signal, paused)
            case Stop() as order:
                self._stop(asked, order)
            case Execute() as order:
                self._execute(signal, order)
        return True

    def _hold(self, signal: Signal, paused: bool) -> bool:
        """Chunks in hand land before a pause is told. False while there are any."""
        run, word = self._snapshot.run, "paused" if paused else "resumed"
        if run is None or (paused and run.progress.all_claimed):
            self._skip(signal, "no snapshot runs" if run is None else "nothing is left of the snapshot that runs")
            return True
        if not paused:
            run.resume()
            run.progress.tell("RESUMED", signal=signal.key, paused_seconds=run.paused_seconds)
        elif run.pause():
            run.progress.tell("PAUSED", signal=signal.key)
        else:
            return False
        self._note(signal, word, run.said(word, json.dumps({"signal": signal.key})))
        return True

    def _stop(self, asked: _Asked, order: Stop) -> None:
        """What was asked for before it, and waits, is part of a stop of everything."""
        signal, run, names = asked.signal, self._snapshot.run, order.collections
        waiting = self._waiting[: self._waiting.index(asked)] if names is None else []
        for earlier in [each for each in waiting if isinstance(each.order, Execute)]:
            self._skip(earlier.signal, f"stopped by signal {signal.key} before it began")
            self._waiting.remove(earlier)
        if run is None:
            self._skip(signal, "no snapshot runs")
            return
        withdrawn = run.progress.withdraw(lambda name: names is None or names.mean(name))
        reason = json.dumps({"stopped_by": signal.key})
        rows = run.said("discarded", reason, [chunk.number for chunk in withdrawn])
        if names is None:
            rows += run.said("stopped", reason)
            paused = run.paused_seconds
            self._snapshot.end()  # what is in hand lands before the end is told
            run.tell_end("ABORTED", signal=signal.key, paused_seconds=paused)
        self._note(signal, "stopped", rows, chunks=len(withdrawn))

    def _execute(self, signal: Signal, order: Execute) -> None:
        session, found = self._session, captured_collections(self._session.client, self._session.selection)
        wanted = [where for where in found if order.collections.mean(str(where))]
        for pattern in order.collections.patterns:
            if not any(Names((pattern,)).mean(str(where)) for where in found):
                self._tell_skipped(signal, f"no captured collection is called {pattern}")
        if not wanted:
            self._skip(signal, "no captured collection is meant")
            return
        plan = make_plan(session, wanted, sweeps=True, kind=order.type, signal=signal.key, query_of=order.query_of)
        self._note(signal, "begun", snapshot_id=self._begin(plan))

    def _begin(self, plan: Plan) -> str:
        """The id of the snapshot that reads *plan* from the next batch on."""
        run = SnapshotRun(self._session, uuid.uuid4().hex, plan, {})
        self._rows += run.said("plan", plan.to_json())
        self._snapshot.begin(run)
        return run.id

    def _skip(self, signal: Signal, reason: str) -> None:
        self._tell_skipped(signal, reason)
        self._note(signal, "skipped", reason=reason)

    def _tell_skipped(self, signal: Signal, reason: str) -> None:
        self._session.notifications.notify("Signal", "SKIPPED", signal.key, signal=signal.type, reason=reason)

    def _note(self, signal: Signal, outcome: str, rows: Sequence[pa.Table] = (), **said: Any) -> None:
        content = {"data": signal.data, "by": signal.by, "channel": signal.channel, "outcome": outcome, **said}
        self._rows += [
            signal_table(self._session.writer.stamp(), signal.key, signal.type or "", json.dumps(content)),
            *rows,
        ]
