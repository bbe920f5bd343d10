"""The traces and the lineage of a command, if the settings ask for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from strandline.errors import ConfigurationError, install_command

if TYPE_CHECKING:
    from strandline.settings.configuration import Settings


@contextmanager
def telemetry(settings: Settings) -> Iterator[None]:
    """Send spans (``telemetry.traces``) and lineage (``lineage.enabled``) of the block. Off: no library is imported.

    Raises:
        ConfigurationError: A package is missing, or lineage has no receiver.
    """
    with ExitStack() as cleanups:
        if settings.telemetry.traces:
            _trace(settings, cleanups)
        if settings.lineage.enabled:
            _tell_lineage(settings, cleanups)
        yield


def _trace(settings: Settings, cleanups: ExitStack) -> None:
    try:
        from strandline.io.telemetry.otlp_tracer import OtlpTracer
    except ModuleNotFoundError as error:
        raise _missing(error, "opentelemetry", "otel", "telemetry.traces") from None
    from strandline.io.telemetry.tracing import trace_with

    name, url = settings.source.name, settings.telemetry.traces_url
    tracer = OtlpTracer(name, url, show_keys=settings.logging.show_keys)
    cleanups.callback(tracer.close)
    cleanups.callback(trace_with, None)
    trace_with(tracer)


def _tell_lineage(settings: Settings, cleanups: ExitStack) -> None:
    try:
        from strandline.io.telemetry.lineage_sender import LineageSender, client_of
    except ModuleNotFoundError as error:
        raise _missing(error, "openlineage", "openlineage", "lineage.enabled") from None
    from strandline.io.tables.lineage import tell_lineage_to

    namespace = settings.lineage.namespace or os.environ.get("OPENLINEAGE_NAMESPACE") or "strandline"
    sender = LineageSender(client_of(settings.lineage.url), namespace, show_keys=settings.logging.show_keys)
    cleanups.callback(sender.close)
    cleanups.callback(tell_lineage_to, None)
    tell_lineage_to(sender)


def _missing(error: ModuleNotFoundError, package: str, extra: str, setting: str) -> Exception:
    """Return the refusal for a *package* that is not installed; *error* itself if another one is missing."""
    if (error.name or "").partition(".")[0] != package:
        return error
    return ConfigurationError(f"{setting} needs {package}, which is not installed", next_step=install_command(extra))
