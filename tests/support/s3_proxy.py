"""An HTTP proxy before an S3 server. It loses answers, answers 409, or lets a conditional PUT replace an object.

It is a process of its own: delta-rs holds Python's lock while it waits for some answers.
"""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from s3_server import S3Server, await_port, free_port

_CONFLICT: Final = b"<Error><Code>ConditionalRequestConflict</Code><Message>another PUT is running</Message></Error>"


@dataclass(frozen=True)
class S3Proxy:
    """A running proxy."""

    server: S3Server
    endpoint: str
    orders: Path
    """Folder of files that tell the proxy what to do."""

    def lose_answers(self, pattern: str, count: int) -> None:
        """Have the server carry out requests whose method and path match, and lose *count* of their answers."""
        for number in range(count):
            (self.orders / f"lose-{number}").write_text(pattern)

    @property
    def lost(self) -> int:
        """Number of answers that were lost."""
        return len(list(self.orders.glob("done-lose-*")))

    def answer_conflict(self, pattern: str, count: int) -> None:
        """Answer *count* requests whose method and path match with 409, as if another PUT were running."""
        for number in range(count):
            (self.orders / f"conflict-{number}").write_text(pattern)

    @property
    def conflicts(self) -> int:
        """Number of requests that were answered with 409."""
        return len(list(self.orders.glob("done-conflict-*")))

    @property
    def largest_answer(self) -> int:
        """Size of the largest answer, in bytes."""
        return max(int(file.name.removeprefix("answer-")) for file in self.orders.glob("answer-*"))

    def replace_objects(self) -> None:
        """Have every PUT replace an object that is there, as in a store without conditional writes."""
        (self.orders / "replace").touch()


@contextmanager
def s3_proxy(server: S3Server) -> Iterator[S3Proxy]:
    port = free_port()
    with tempfile.TemporaryDirectory() as orders:
        command = [sys.executable, __file__, str(port), server.endpoint, str(server.folder), orders]
        process = subprocess.Popen(command)
        try:
            await_port(process, port)
            yield S3Proxy(server, f"http://127.0.0.1:{port}", Path(orders))
        finally:
            process.terminate()
            process.wait(10)


def _serve(port: int, endpoint: str, folder: Path, orders: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = unquote(self.path)
            if _carries_out(orders, "conflict", f"{self.command} {path}"):
                self.send_response_only(409, "Conflict")
                self.send_header("Content-Length", str(len(_CONFLICT)))
                self.end_headers()
                self.wfile.write(_CONFLICT)
                return
            if self.command == "PUT" and (orders / "replace").exists():
                (folder / path.lstrip("/")).unlink(missing_ok=True)
            upstream = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=60)
            # The host is part of the signature, so it stays the proxy's.
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            content = answer.read()
            (orders / f"answer-{len(content)}").touch()
            upstream.close()
            if _carries_out(orders, "lose", f"{self.command} {path}"):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response_only(answer.status, answer.reason)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            with suppress(BrokenPipeError):
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815  # why: the library's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def _carries_out(orders: Path, what: str, request: str) -> bool:
    """Return True if there is an order for *request*. An order holds for one request."""
    for order in sorted(orders.glob(f"{what}-*")):
        with suppress(FileNotFoundError):
            if re.search(order.read_text(), request):
                order.rename(order.with_name(f"done-{order.name}"))
                return True
    return False


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
