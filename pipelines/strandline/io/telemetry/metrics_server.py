"""The HTTP endpoint of `capture` and `run`: ``/metrics``, ``/state`` and ``/log`` (JSON), ``/livez``, ``/readyz``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from strandline.errors import ConfigurationError
from strandline.io.telemetry.live_log import LOG
from strandline.io.telemetry.live_metrics import LiveMetrics
from strandline.io.telemetry.live_state import CaptureState
from strandline.io.telemetry.metrics import TABLE_NAMES, Labelled
from strandline.model.network import is_loopback, names_this_machine
from strandline.plain_text import printable_json

_App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_TEXT: Final = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
_TEXTS: Final = ("/state", "/log")
_JSON: Final = [("Content-Type", "application/json; charset=utf-8"), ("Cache-Control", "no-store")]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    """Handler that logs no requests."""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def serve(port: int, address: str, labels: Mapping[str, str], capture: CaptureState, *, max_tables: int = 50) -> None:
    """I/O: serves ``/metrics``, ``/state``, ``/log``, ``/livez`` and ``/readyz`` in a thread until the process ends.

    Args:
        labels: Labels of every series: the source, and the user's own.
        capture: State of the capture that is shown.
        max_tables: Maximum number of tables and collections with series of their own.

    Raises:
        ConfigurationError: The port is taken.
    """
    TABLE_NAMES.limit = max_tables
    registry = CollectorRegistry()
    registry.register(Labelled(labels, LiveMetrics(capture)))
    try:
        server = make_server(address, port, _guarded(address, _routes(registry, labels, capture)), _Server, _Quiet)
    except OSError as error:
        raise ConfigurationError(
            f"metrics cannot be served at {address}:{port} ({error.strerror})", next_step="choose another metrics.port"
        ) from error
    threading.Thread(target=server.serve_forever, name="strandline-metrics", daemon=True).start()


def _guarded(address: str, app: _App) -> _App:
    """Return *app* without answers to a page of another site (`names_this_machine`).

    Elsewhere than on the loopback interface this holds for texts only: a scraper may use any name of the machine.
    """

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        is_asked = is_loopback(address) or environ["PATH_INFO"] in _TEXTS
        if is_asked and not names_this_machine(environ.get("HTTP_HOST", ""), address):
            start_response("400 Bad Request", list(_TEXT))
            return [
                b"ask this endpoint by the IP address or the plain name of its machine, on the loopback interface by"
                b" localhost\n"
            ]
        return app(environ, start_response)

    return guarded


def _routes(registry: CollectorRegistry, labels: Mapping[str, str], capture: CaptureState) -> _App:
    metrics: _App = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/state":
                start_response("200 OK", list(_JSON))  # the server adds to the list
                return [printable_json({**labels, **capture.document()}).encode()]
            case "/log":
                start_response("200 OK", list(_JSON))
                return [printable_json({**labels, "lines": LOG.newest_first()}).encode()]
            case "/livez" | "/readyz" as path:
                reasons = capture.not_live() if path == "/livez" else capture.not_ready()
                start_response("503 Service Unavailable" if reasons else "200 OK", list(_TEXT))
                return ["".join(f"{reason}\n" for reason in reasons or ["ok"]).encode()]
        return metrics(environ, start_response)

    return app
