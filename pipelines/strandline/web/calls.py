"""The calls of the API: KIP-875's, and those for snapshots and signals. Each calls the function that its command calls.

A call returns the status code and the JSON of its answer. None: no content.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from strandline.bronze.capture_process import CaptureProcess
from strandline.control.proof import ProofTable
from strandline.control.sources import State, state_of
from strandline.errors import ConfigurationError
from strandline.jobs.lake_context import (
    LakeContext,
    open_capture_without_spark,
    open_without_spark,
)
from strandline.jobs.offsets.life_cycle import last_offset, request_restart, set_desired_state
from strandline.jobs.offsets.move_offset import OffsetMove, alter_offset, reset_offset
from strandline.jobs.offsets.show_offset import process_of, show_offset
from strandline.jobs.snapshot.report import list_snapshots
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.model.query import Query
from strandline.model.table_schemas import SIGNALS
from strandline.settings.configuration import Settings
from strandline.web.connector_config import connector_config

Answer = tuple[int, Any]
_BY: Final = "api"
_NEWEST: Final = 100


class BadRequest(Exception):
    """The request cannot be carried out as it is. Nothing was written."""


@dataclass(frozen=True)
class Asked:
    """One request, with its parameters and its body."""

    parameters: Mapping[str, str]
    body: Any = None
    expand: tuple[str, ...] = ()

    @property
    def by(self) -> str:
        return self.parameters.get("by") or _BY

    @property
    def why(self) -> str | None:
        return self.parameters.get("why") or None

    def flag(self, name: str) -> bool:
        """Return True if the parameter is ``true``.

        Raises:
            BadRequest: It is neither ``true`` nor ``false``.
        """
        value = self.parameters.get(name, "false").lower()
        if value not in ("true", "false"):
            raise BadRequest(f"{name} is true or false")
        return value == "true"

    def object(self, *names: str) -> dict[str, Any]:
        """Return the body, which is an object with no other fields than *names*.

        Raises:
            BadRequest: It is not.
        """
        if not isinstance(self.body, dict) or not set(self.body) <= set(names):
            raise BadRequest(f"the body is a JSON object with the fields {', '.join(names)}")
        return self.body


@dataclass
class Calls:
    """All calls on one source.

    Args:
        open_lake: Opens the lake for a command that writes control rows.
        open_capture: Opens the lake for a command that writes bronze.
    """

    settings: Settings
    open_lake: Callable[[Settings], LakeContext | None] = open_without_spark
    open_capture: Callable[[Settings], LakeContext | None] = open_capture_without_spark
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def source(self) -> str:
        return self.settings.source.name

    @property
    def _task_id(self) -> dict[str, Any]:
        return {"connector": self.source, "task": 0}

    def knows(self, source: str) -> bool:
        """Return True if *source* is the source of this configuration, and not deleted. I/O: reads its state."""
        return source == self.source and state_of(self._lake().tables, source).state != "deleted"

    def connectors(self, asked: Asked) -> Answer:
        """List the sources, with their status and their configuration if *expand* names them."""
        names = [self.source] if self.knows(self.source) else []
        if not asked.expand:
            return 200, names
        calls = {"status": self.status, "info": self.connector}
        return 200, {
            name: {word: call(asked)[1] for word, call in calls.items() if word in asked.expand} for name in names
        }

    def connector(self, _: Asked) -> Answer:
        """Return the configuration of the source, without secrets, and its tasks."""
        is_stopped = state_of(self._lake().tables, self.source).state == "stopped"
        tasks = [] if is_stopped else [self._task_id]
        return 200, {
            "name": self.source,
            "config": connector_config(self.settings),
            "tasks": tasks,
            "type": "source",
        }

    def config(self, _: Asked) -> Answer:
        """Return the configuration of the source, without secrets."""
        return 200, connector_config(self.settings)

    def status(self, _: Asked) -> Answer:
        """Return the wanted state (`connector`), the capturing process (`tasks`, `process`), and silver's `proof`."""
        ctx = self._lake()
        order, process = state_of(ctx.tables, self.source), _process(ctx)
        proof = ProofTable(ctx.tables, self.source).status()
        worker = "" if process is None else process.worker
        state = order.state.upper()
        is_unassigned = state == "RUNNING" and not (process and process.alive)
        task = {"id": 0, "state": "UNASSIGNED" if is_unassigned else state, "worker_id": worker}
        return 200, {
            "name": self.source,
            "connector": {"state": state, "worker_id": worker},
            "tasks": [] if order.state == "stopped" else [task],
            "type": "source",
            "order": {"at": order.at, "by": order.by, "why": order.why},
            "process": None if process is None else asdict(process),
            "proof": None if proof is None else asdict(proof),
        }

    def tasks(self, asked: Asked) -> Answer:
        """List the task of the source. A stopped source has none."""
        config = {"task.class": "strandline"}
        return 200, [{"id": task_id, "config": config} for task_id in self.connector(asked)[1]["tasks"]]

    def task_status(self, asked: Asked) -> Answer:
        """Return the state of the process that captures."""
        for task in self.status(asked)[1]["tasks"]:
            return 200, task
        raise BadRequest(f"source {self.source} is stopped: it has no task")

    def offsets(self, _: Asked) -> Answer:
        """Return the committed position."""
        ctx = self._lake()
        last = last_offset(ctx)
        if last is None or last.resume_token is None:
            return 200, {"offsets": []}
        offset = asdict(show_offset(ctx))
        for name in ("source", "state", "process"):
            del offset[name]
        return 200, {"offsets": [{"partition": {"source": self.source}, "offset": offset}]}

    def alter_offsets(self, asked: Asked) -> Answer:
        """Move the position of a stopped source. An offset of null resets it."""
        entries = asked.object("offsets").get("offsets")
        if not isinstance(entries, list) or len(entries) != 1 or not isinstance(entries[0], dict):
            raise BadRequest("offsets is a list of one object with partition and offset: a source has one partition")
        if entries[0].get("partition") != {"source": self.source} or set(entries[0]) != {"partition", "offset"}:
            raise BadRequest(f'the partition is {{"source": "{self.source}"}}, and beside it stands an offset')
        if entries[0]["offset"] is None:
            return self.reset_offsets(asked)
        to = _target(entries[0]["offset"])
        with self._one_at_a_time:
            move = alter_offset(self._capture(), to, by=asked.by, why=asked.why, dry_run=asked.flag("dry_run"))
        return _moved(move)

    def reset_offsets(self, asked: Asked) -> Answer:
        """Forget the position of a stopped source. All rows stay."""
        with self._one_at_a_time:
            ctx = self._capture()
            if last_offset(ctx) is None and state_of(ctx.tables, self.source).state == "stopped":
                return 200, {"message": f"{self.source} has no offset"}
            move = reset_offset(ctx, by=asked.by, why=asked.why, dry_run=asked.flag("dry_run"))
        return _moved(move)

    def stop(self, asked: Asked) -> Answer:
        """Stop the source: a running capture ends after its batch."""
        return self._order("stopped", 204, asked)

    def pause(self, asked: Asked) -> Answer:
        """Pause the source: a running capture waits."""
        return self._order("paused", 202, asked)

    def resume(self, asked: Asked) -> Answer:
        """Let a paused or stopped source run."""
        return self._order("running", 202, asked)

    def restart(self, asked: Asked) -> Answer:
        """Have a running capture open new connections. It continues from its committed position."""
        with_status = asked.flag("includeTasks") or asked.flag("onlyFailed")
        with self._one_at_a_time:
            ctx = self._lake()
            process = _process(ctx)
            if process is None or not process.alive or not asked.flag("onlyFailed"):
                request_restart(ctx, by=asked.by, why=asked.why)
        return (202, self.status(asked)[1]) if with_status else (204, None)

    def restart_task(self, asked: Asked) -> Answer:
        """Have a running capture open new connections, as `restart`: a source has one task."""
        return self.restart(asked)

    def snapshots(self, _: Asked) -> Answer:
        """List snapshots, newest first."""
        ctx = self._lake()
        return 200, [] if last_offset(ctx) is None else [asdict(state) for state in list_snapshots(ctx)]

    def start_snapshot(self, asked: Asked) -> Answer:
        """Read collections again, in a running capture or at the next start."""
        body = asked.object("type", "data-collections", "additional-conditions")
        return self._send("execute-snapshot", body, asked)

    def pause_snapshot(self, asked: Asked) -> Answer:
        """Pause the running snapshot. The stream continues."""
        return self._send("pause-snapshot", {}, asked)

    def resume_snapshot(self, asked: Asked) -> Answer:
        """Continue a paused snapshot."""
        return self._send("resume-snapshot", {}, asked)

    def stop_snapshot(self, asked: Asked) -> Answer:
        """Stop the running snapshot, or drop the unread chunks of some collections."""
        body = {} if asked.body is None else asked.object("data-collections")
        return self._send("stop-snapshot", {"type": "incremental", **body}, asked)

    def signals(self, _: Asked) -> Answer:
        """List the newest signals, newest first."""
        tables = self._lake().tables
        if not tables.exists(SIGNALS):
            return 200, []
        columns = ("id", "type", "data", "at", "by", "source", "channel")
        ours = Query(SIGNALS).select(*columns).where_any(("source", "=", self.source), ("source", "is null", None))
        return 200, tables.query(ours.order("-at", "id").limit(_NEWEST))

    def send(self, asked: Asked) -> Answer:
        """Send a signal to a running capture, or to the next one."""
        body = asked.object("type", "data")
        if not isinstance(body.get("type"), str) or not isinstance(body.get("data", {}), dict):
            raise BadRequest("type is a text, and data an object")
        return self._send(body["type"], body.get("data", {}), asked)

    def _send(self, kind: str, data: Mapping[str, Any], asked: Asked) -> Answer:
        with self._one_at_a_time:
            return 202, asdict(send_signal(self._lake(), kind, data, by=asked.by))

    def _order(self, state: State, success: int, asked: Asked) -> Answer:
        with self._one_at_a_time:
            set_desired_state(self._lake(), state, by=asked.by, why=asked.why, force=asked.flag("force"))
        return success, None

    def _lake(self) -> LakeContext:
        return _require_lake(self.open_lake(self.settings))

    def _capture(self) -> LakeContext:
        return _require_lake(self.open_capture(self.settings))


def _process(ctx: LakeContext) -> CaptureProcess | None:
    last = last_offset(ctx)
    return None if last is None else process_of(ctx, last)


def _require_lake(ctx: LakeContext | None) -> LakeContext:
    if ctx is None:
        raise ConfigurationError(
            "this lake can be written by Spark only, which the API does not start",
            next_step="the command strandline offsets",
        )
    return ctx


def _target(offset: Any) -> str:
    """Return the target of a move: ``to`` as in the command, or the resume token of an answer of this API."""
    if not isinstance(offset, dict):
        raise BadRequest("offset is an object with resume_token or to, or null")
    target = offset.get("to", offset.get("resume_token"))
    if not isinstance(target, str) or not target:
        raise BadRequest("offset needs resume_token, or to: a time, a bronze version, now or oldest")
    return target


def _moved(move: OffsetMove) -> Answer:
    return 200, {"message": move.summary(), "move": asdict(move)}
