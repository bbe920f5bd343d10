"""A real S3 server on loopback: versitygw, which keeps its objects in a folder. `scripts/places.sh` builds it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BUCKET: Final = "lakes"
REGION: Final = "us-east-1"
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "strandline", "AWS_SECRET_ACCESS_KEY": "only for tests"}
BINARY: Final = Path(sys.prefix) / "share" / "strandline" / "bin" / "versitygw"


@dataclass(frozen=True)
class S3Server:
    """A running server. Its bucket is `BUCKET`, a folder below *folder*."""

    endpoint: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def settings(self) -> dict[str, str]:
        """Settings of the section ``lake``."""
        return {"s3_endpoint": self.endpoint, "s3_region": REGION}


@contextmanager
def s3_server(folder: Path, port: int | None = None) -> Iterator[S3Server]:
    """Start a server whose objects are files below *folder*, and end it. Credentials are in the environment."""
    assert BINARY.exists(), "versitygw is not built: make places builds it"
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    keys = ("ROOT_ACCESS_KEY_ID", "ROOT_SECRET_ACCESS_KEY")
    environ = os.environ | dict(zip(keys, CREDENTIALS.values(), strict=True))
    command = [str(BINARY), "--port", f"127.0.0.1:{port}", "--region", REGION, "--keep-alive", "--quiet"]
    process = subprocess.Popen([*command, "posix", str(folder)], env=environ, stdout=subprocess.DEVNULL)
    try:
        await_port(process, port)
        yield S3Server(f"http://127.0.0.1:{port}", folder, process)
    finally:
        process.kill()  # asked to end, it would wait for every open connection
        process.wait(10)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def await_port(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until *process* listens."""
    for _ in range(100):
        assert process.poll() is None, "the server ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the server does not answer")
