"""A collector of traces and a receiver of lineage: a real HTTP server on a free port of this machine."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

TRACES, LINEAGE = "/v1/traces", "/api/v1/lineage"


@dataclass
class Collector:
    """Collector of traces and lineage: answers every request, and keeps it.

    Args:
        status: Status of its answers.
    """

    status: int = 200
    url: str = ""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    """Path, headers and body of each request."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, path: str, headers: dict[str, str], body: bytes) -> None:
        with self._lock:
            self.requests.append((path, headers, body))

    def bodies(self, path: str) -> list[bytes]:
        with self._lock:
            return [body for at, _, body in self.requests if at == path]

    def exports(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies(TRACES)]

    def spans(self, name: str = "") -> list[Span]:
        """All spans, or those of one name, in the order in which they ended."""
        found = [
            span
            for export in self.exports()
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(
            (span for span in found if not name or span.name == name), key=lambda span: span.end_time_unix_nano
        )

    def events(self, job: str = "") -> list[dict[str, Any]]:
        """All events of lineage, or those of one job."""
        found = [json.loads(body) for body in self.bodies(LINEAGE)]
        return [event for event in found if not job or event["job"]["name"] == job]


def attributes(found: Any) -> dict[str, Any]:
    """Attributes of a span or of a resource, without the prefix."""
    values = {each.key: each.value for each in found.attributes}
    return {
        name.removeprefix("strandline."): getattr(value, value.WhichOneof("value")) for name, value in values.items()
    }


@contextmanager
def collector(status: int = 200) -> Iterator[Collector]:
    """A running collector. It takes traces and lineage."""
    got = Collector(status)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            got.add(self.path, dict(self.headers), body)
            self.send_response(got.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    got.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield got
    finally:
        server.shutdown()
        server.server_close()


def nobody() -> str:
    """A URL at which nobody listens."""
    with collector() as gone:
        return gone.url
