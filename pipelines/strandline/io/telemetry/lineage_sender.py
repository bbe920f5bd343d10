"""Lineage events, sent by OpenLineage's own client in a thread. Needs the extra ``openlineage``."""

from __future__ import annotations

import logging
import os
import queue
import threading
from typing import Any, Final

from openlineage.client import OpenLineageClient
from openlineage.client.transport.console import ConsoleTransport

from strandline.errors import ConfigurationError
from strandline.io.telemetry.delivery import Deliveries
from strandline.io.telemetry.lineage_events import run_event
from strandline.model.lineage import RunReport

FLUSH_SECONDS: Final = 5.0
"""Maximum wait for the last events when the process ends."""
_MOST_WAITING: Final = 1_000
_SECONDS, _RETRIES = 5.0, 2


def client_of(url: str | None) -> OpenLineageClient:
    """Return the client of the library, with *url* or as its own configuration says.

    I/O: reads the environment and the configuration file of the library.

    Raises:
        ConfigurationError: Neither names a receiver, or the library refuses its configuration.
    """
    config: dict[str, Any] = {}
    if url is not None:
        config = {"type": "http", "url": url, "timeout": _SECONDS, "retry": {"total": _RETRIES}}
        if key := os.environ.get("OPENLINEAGE_API_KEY"):
            config["auth"] = {"type": "api_key", "apiKey": key}
    try:
        client = OpenLineageClient(config={"transport": config} if config else None)
    except Exception as error:
        raise ConfigurationError(
            f"the configuration of the OpenLineage client is refused ({type(error).__name__})",
            next_step="correct lineage.url, or the variables and the file of the client (strandline explain telemetry)",
        ) from error
    if isinstance(client.transport, ConsoleTransport) and (client.config.transport or {}).get("type") != "console":
        raise ConfigurationError(
            "lineage.enabled is set, and nothing names a receiver", next_step="set lineage.url or OPENLINEAGE_URL"
        )
    return client


class LineageSender:
    """Receiver that sends each report in a thread of its own. Call `close` last.

    The library's asynchronous transport makes its caller wait while its queue is full. Here a report is dropped then.

    Args:
        namespace: Namespace of the jobs.
    """

    def __init__(self, client: OpenLineageClient, namespace: str, *, show_keys: bool = False) -> None:
        self._client, self._namespace, self.show_keys = client, namespace, show_keys
        self._deliveries = Deliveries("lineage")
        self._waiting: queue.Queue[RunReport | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._deliver, name="strandline-lineage", daemon=True)
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # it logs each retry of the client
        self._thread.start()

    def tell(self, report: RunReport) -> None:
        self._put(report)

    def close(self) -> None:
        """Send the reports that wait, for at most `FLUSH_SECONDS`."""
        self._put(None)
        self._thread.join(FLUSH_SECONDS)
        if self._thread.is_alive():
            self._deliveries.failed(f"{self._waiting.qsize()} events wait, {FLUSH_SECONDS:.0f} s after the end")

    def _put(self, report: RunReport | None) -> None:
        try:
            self._waiting.put_nowait(report)
        except queue.Full:
            self._deliveries.failed(f"{_MOST_WAITING} events wait")

    def _deliver(self) -> None:
        while (report := self._waiting.get()) is not None:
            try:
                self._client.emit(run_event(report, self._namespace))
            except Exception as error:  # noqa: BLE001  # why: whatever a transport raises must not end the thread
                self._deliveries.failed(f"{type(error).__name__}: {error}")
            else:
                self._deliveries.succeeded()
        self._client.close(FLUSH_SECONDS)
