"""The JSON columns of bronze, from the envelope. Pure. Used at capture (`stored`) and by the view (`derived`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from strandline.model.bson import raw as rb
from strandline.model.bson.extended_json import WRITERS, JsonWriters


def json_columns(
    rows: Iterable[tuple[str, bytes | None]], writers: JsonWriters = WRITERS["extended"]
) -> dict[str, object]:
    """Convert envelopes.

    Args:
        rows: ``(op, envelope)`` of each row. The envelope of a control row may be None.
        writers: Format of the JSON.

    Returns:
        ``document_key``, ``after``, ``before`` and ``update_description``, one entry per row. Text that libbson refuses
        (invalid UTF-8) is null here. The envelope has its bytes.
    """
    columns: dict[str, list[Any]] = {"document_key": [], "after": [], "before": [], "update_description": []}
    for op, envelope in rows:
        row = _row(op, envelope, writers) if envelope is not None else {}
        for name, values in columns.items():
            values.append(row.get(name))
    return dict(columns)


def _row(op: str, envelope: bytes, writers: JsonWriters) -> dict[str, Any]:
    if op == "r":
        span = rb.field(envelope, b"_id")
        key = (
            None
            if span is None
            else _json(rb.as_document(span[0], envelope[span[1] : span[2]], b"_id"), writers.document)
        )
        return {"document_key": key, "after": _json(envelope, writers.document)}
    row: dict[str, Any] = {}
    for kind, name, value, end in rb.elements(envelope):
        column = _EVENT_FIELDS.get(name)
        if column is not None and kind == rb.DOCUMENT:
            row[column] = _json(envelope[value:end], writers.document)
        elif name == b"updateDescription" and kind == rb.DOCUMENT:
            row["update_description"] = _update_description(envelope, value, writers.updated_fields)
    return row


_EVENT_FIELDS = {b"documentKey": "document_key", b"fullDocument": "after", b"fullDocumentBeforeChange": "before"}


def _json(document: bytes, write: Callable[[bytes], str]) -> str | None:
    try:
        return write(document)
    except ValueError:  # not UTF-8; `envelope` keeps the bytes
        return None


def _update_description(raw: bytes, start: int, write: Callable[[bytes], str]) -> dict[str, Any]:
    description: dict[str, Any] = {
        "updated_fields": None,
        "removed_fields": [],
        "truncated_arrays": [],
        "disambiguated_paths": None,
    }
    for _, name, value, end in rb.elements(raw, start):
        if name == b"updatedFields":
            description["updated_fields"] = _json(raw[value:end], write)
        elif name == b"removedFields":
            description["removed_fields"] = [rb.text(raw, at, stop) for _, _, at, stop in rb.elements(raw, value)]
        elif name == b"truncatedArrays":
            description["truncated_arrays"] = [_truncated(raw, at) for _, _, at, _ in rb.elements(raw, value)]
        elif name == b"disambiguatedPaths":
            description["disambiguated_paths"] = _json(raw[value:end], write)
    return description


def _truncated(raw: bytes, start: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"field": None, "new_size": None}
    for _, name, value, end in rb.elements(raw, start):
        if name == b"field":
            entry["field"] = rb.text(raw, value, end)
        elif name == b"newSize":
            entry["new_size"] = rb.int32_at(raw, value)
    return entry
