"""Spans around pieces of work. Without a tracer a span does nothing, and no library is imported.

`strandline.io.telemetry.otlp_tracer` is the tracer of OpenTelemetry. Attributes are names, counts, positions and ids.
They never hold a value of a document.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

Value = str | int | float | bool | None
"""Value of an attribute. None: the attribute is left out."""

_NO_SPAN: Final = nullcontext()


class Tracer(Protocol):
    """Receiver of spans."""

    def span(self, name: str, attributes: Mapping[str, Value]) -> AbstractContextManager[None]:
        """Return a span of the block. It is a child of the span around it. An exception marks it as failed."""

    def annotate(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes to the span around the caller, if there is one."""


class _Process:
    """The tracer of this process. None: spans do nothing."""

    tracer: Tracer | None = None


def trace_with(tracer: Tracer | None) -> None:
    """Send the spans of this process to *tracer*. None: send no more spans."""
    _Process.tracer = tracer


def is_traced() -> bool:
    """Return True if spans are sent. Compute an attribute that costs something only then."""
    return _Process.tracer is not None


def span(name: str, **attributes: Value) -> AbstractContextManager[None]:
    """Return a span of the block, with *attributes*. A thread sees it as parent only in a copy of the context."""
    tracer = _Process.tracer
    return _NO_SPAN if tracer is None else tracer.span(name, attributes)


def annotate(**attributes: Value) -> None:
    """Add *attributes* to the span around the caller: what is known only at its end."""
    if _Process.tracer is not None:
        _Process.tracer.annotate(attributes)
