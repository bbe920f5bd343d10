"""Spans by OpenTelemetry's own library, sent by OTLP over HTTP in the background. Needs the extra ``otel``."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Status, StatusCode, get_current_span

from strandline import __version__
from strandline.errors import shown_error
from strandline.io.telemetry.delivery import Deliveries
from strandline.io.telemetry.tracing import Value

FLUSH_SECONDS: Final = 5.0
"""Maximum wait for the last spans when the process ends."""
_LIBRARY: Final = logging.getLogger("opentelemetry")


class OtlpTracer:
    """Tracer that sends spans to a collector. Call `close` last.

    A queue holds at most 2,048 spans (`OTEL_BSP_MAX_QUEUE_SIZE`). What does not fit is dropped: no work waits.

    Args:
        url: URL that gets the spans. None: the ``OTEL_EXPORTER_OTLP_*`` environment variables name it.
        show_keys: Errors may hold keys of documents: a failed span then has only the kind of its error.
    """

    def __init__(self, source: str, url: str | None, *, show_keys: bool = False) -> None:
        named = {"service.name": "strandline", "service.version": __version__, "strandline.source": source}
        resource = Resource(named).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # its own wait has no limit
        self._exporter = _Exporter(url)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("strandline", __version__)
        self._show_keys = show_keys
        self._exporter.hold_log()  # last: what the library says of its configuration belongs in the log

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Value]) -> Iterator[None]:
        with self._tracer.start_as_current_span(
            name,
            attributes=_named(attributes),
            record_exception=False,  # a stack trace may hold values of documents
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Exception as error:
                span.set_status(Status(StatusCode.ERROR, shown_error(error, show_keys=self._show_keys)))
                raise

    def annotate(self, attributes: Mapping[str, Value]) -> None:
        get_current_span().set_attributes(_named(attributes))

    def close(self) -> None:
        """Send the spans that wait, for at most `FLUSH_SECONDS`."""
        closing = threading.Thread(target=self._provider.shutdown, name="strandline-traces", daemon=True)
        closing.start()
        closing.join(FLUSH_SECONDS)
        if closing.is_alive():
            self._exporter.shutdown()  # ends the retries of the library, so that the failure is told
            closing.join(1.0)
        self._exporter.release_log()


def _named(attributes: Mapping[str, Value]) -> dict[str, str | int | float | bool]:
    return {f"strandline.{name}": value for name, value in attributes.items() if value is not None}


class _Exporter(OTLPSpanExporter):
    """Exporter that counts failures, and tells an outage in one line of the log instead of several for each batch."""

    def __init__(self, url: str | None) -> None:
        super().__init__(endpoint=url)
        self._deliveries = Deliveries("traces")
        self._log_lines, self._ended = _LogLines(), False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._log_lines.lines.clear()
        try:
            result = super().export(spans)
        except Exception as error:  # noqa: BLE001  # why: some releases (1.38) raise if nobody listens
            self._deliveries.failed(f"{type(error).__name__}: {error}")
            return SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._deliveries.succeeded()
        else:
            self._deliveries.failed(self._log_lines.lines[0] if self._log_lines.lines else "no answer")
        return result

    def shutdown(self) -> None:
        if self._ended:  # the library would warn
            return
        self._ended = True
        super().shutdown()  # type: ignore[no-untyped-call]  # why: the library has no types there

    def hold_log(self) -> None:
        """Keep the lines of the library from the log: `export` tells an outage in one line."""
        _LIBRARY.addHandler(self._log_lines)
        _LIBRARY.propagate = False

    def release_log(self) -> None:
        """Let the library write to the log again."""
        _LIBRARY.removeHandler(self._log_lines)
        _LIBRARY.propagate = True


class _LogLines(logging.Handler):
    """Handler that keeps the lines of the library: `export` returns no reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
