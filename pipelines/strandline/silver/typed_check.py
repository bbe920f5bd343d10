"""Comparison of a row's columns and rescued values with its document. Pure.

Its rules are its own: it does not ask the decoder, so it sees a column that the decoder fills wrongly.
"""

from __future__ import annotations

import json
import math
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from strandline.model.bson import raw as rb
from strandline.model.shape import Shape
from strandline.silver.decode.decoder import shown_path
from strandline.silver.decode.scalars import variant_text

_EPOCH: Final = datetime(1970, 1, 1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DATES: Final = range((datetime.min - _EPOCH) // _MILLISECOND, (datetime.max - _EPOCH) // _MILLISECOND + 1)
_ACCEPTED: Final = {
    "int": {rb.INT32},
    "long": {rb.INT32, rb.INT64},
    "double": {rb.INT32, rb.INT64, rb.DOUBLE},
    "decimal": {rb.INT32, rb.INT64, rb.DECIMAL128},
    "string": {rb.STRING},
    "objectId": {rb.OBJECT_ID},
    "bool": {rb.BOOLEAN},
    "date": {rb.DATE},
    "binary": {rb.BINARY},
    "uuid": {rb.BINARY},
    "struct": {rb.DOCUMENT},
    "array": {rb.ARRAY},
}
"""BSON types whose values a column of each kind may hold. Other kinds hold every type, as JSON."""
_GENERIC, _UUID = 0, 4
"""Subtypes of BSON's binary."""

_Rescued = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class RowCheck:
    """Paths of one row that do not show what its document has."""

    wrong: tuple[str, ...] = ()
    """Neither the column nor ``_rescued`` has the document's value, or one has a value that the document lacks."""
    late: tuple[str, ...] = ()
    """The value is rescued, and its column can hold it: the column is newer than the row."""


def check_row(document: bytes | None, shape: Shape, values: Mapping[str, Any], rescued: str | None) -> RowCheck:
    """Compare the columns and the rescued values of a row with its document.

    Args:
        document: None: all columns must be null.
        shape: Shape of the table.
        values: The row's columns. Times are microseconds; VARIANTs are JSON texts.
        rescued: ``_rescued`` as JSON text.
    """
    if document is None:
        filled = [name for name, value in {**values, "_rescued": rescued}.items() if value is not None]
        return RowCheck(wrong=tuple(filled))
    row = _Row()
    whole = next((name for name, inner in shape.columns() if inner.is_whole), None)
    if whole is not None and not _shows(values[whole], document, rb.DOCUMENT, 0, len(document)):
        row.wrong.append(whole)
    row.compare_fields(document, 0, shape, values, "", keeps_unknown=whole is not None)
    return row.held_against(json.loads(rescued) if rescued is not None else {})


@dataclass
class _Row:
    wrong: list[str] = field(default_factory=list)
    must_be_rescued: _Rescued = field(default_factory=dict)
    may_be_rescued: _Rescued = field(default_factory=dict)
    """Values that fit their column, and are not in it."""
    left_out: list[str] = field(default_factory=list)
    """Paths without a column, as rescued values show them. What is rescued below them is not compared."""

    def held_against(self, rescued: Mapping[str, dict[str, Any]]) -> RowCheck:
        """Return the result of the comparison with the row's *rescued* values."""
        shown: _Rescued = {}
        for path, entry in rescued.items():
            shown.setdefault(path.rstrip("'"), []).append(entry)
        wrong, late = list(self.wrong), []
        paths = dict.fromkeys((*self.must_be_rescued, *self.may_be_rescued, *shown))
        for path in (path for path in paths if not f"{path}.".startswith(tuple(f"{one}." for one in self.left_out))):
            must, may = self.must_be_rescued.get(path, []), self.may_be_rescued.get(path, [])
            if _sorted(must + may) != _sorted(shown.get(path, [])):
                wrong.append(path)
            elif may:
                late.append(path)
        return RowCheck(tuple(wrong), tuple(late))

    def compare_fields(
        self, raw: bytes, at: int, shape: Shape, values: Mapping[str, Any], prefix: str, *, keeps_unknown: bool = False
    ) -> None:
        """Compare the columns of a struct with the document at *at*."""
        columns = {shape.field_name_of(name): (name, inner) for name, inner in shape.columns() if not inner.is_whole}
        missing = dict(columns)
        left_out = {
            shape.field_name_of(name) for name, one in shape.fields.items() if one.has_column and not one.is_kept
        }
        for kind, encoded, value, end in rb.elements(raw, at):
            name = encoded.decode("utf-8", "backslashreplace")
            is_known = name in columns and name.encode() == encoded
            if is_known and name in missing:
                column, inner = missing.pop(name)
                self._compare(raw, kind, value, end, inner, values[column], prefix + name)
            elif name in left_out:
                self.left_out.append(shown_path(prefix + name))
            elif is_known or not keeps_unknown:
                _add(self.must_be_rescued, raw, kind, value, end, prefix + name)
        self.wrong += [prefix + name for name, (column, _) in missing.items() if values[column] is not None]

    def _compare(self, raw: bytes, kind: int, value: int, end: int, shape: Shape, shown: Any, path: str) -> None:
        accepted = _ACCEPTED.get(shape.kind)
        if shown is None:
            fits = accepted is None or (kind in accepted and _column_value(raw, kind, value, end, shape) is not None)
            _add(self.may_be_rescued if fits else self.must_be_rescued, raw, kind, value, end, path)
        elif accepted is not None and kind not in accepted:
            self.wrong.append(path)
        elif shape.kind == "struct":
            self.compare_fields(raw, value, shape, shown, f"{path}.")
        elif shape.kind == "array":
            self._compare_elements(raw, value, shape, shown, path)
        elif not (
            _shows(shown, raw, kind, value, end)
            if accepted is None
            else _is_same(shown, _column_value(raw, kind, value, end, shape))
        ):
            self.wrong.append(path)

    def _compare_elements(self, raw: bytes, at: int, shape: Shape, shown: list[Any], path: str) -> None:
        assert shape.element is not None  # has_column
        elements = list(rb.elements(raw, at))
        if len(elements) != len(shown):
            self.wrong.append(path)
            return
        for index, ((kind, _, value, end), one) in enumerate(zip(elements, shown, strict=True)):
            self._compare(raw, kind, value, end, shape.element, one, f"{path}.{index}")


def _add(rescued: _Rescued, raw: bytes, kind: int, value: int, end: int, path: str) -> None:
    """Add a value to *rescued*, under its path without the marks of a repeated path."""
    if kind != rb.NULL:
        entry = {"type": rb.TYPE_NAMES[kind], "value": json.loads(variant_text(raw, kind, value, end))}
        rescued.setdefault(shown_path(path).rstrip("'"), []).append(entry)


def _sorted(entries: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(entry, sort_keys=True) for entry in entries)


def _shows(shown: str, raw: bytes, kind: int, value: int, end: int) -> bool:
    """Return True if a JSON text has the value. The order of names does not matter: VARIANT sorts them."""
    return kind != rb.NULL and bool(json.loads(shown) == json.loads(variant_text(raw, kind, value, end)))


def _is_same(shown: Any, expected: Any) -> bool:
    if isinstance(shown, float) and isinstance(expected, float):
        signs = math.copysign(1, shown) == math.copysign(1, expected)
        return math.isnan(shown) if math.isnan(expected) else shown == expected and signs
    return type(shown) is type(expected) and bool(shown == expected)


def _column_value(raw: bytes, kind: int, value: int, end: int, shape: Shape) -> Any:
    """Return what a column must show for a value of an accepted type. None: it cannot hold the value exactly."""
    payload = raw[value:end]
    match shape.kind:
        case "int" | "long":
            return int.from_bytes(payload, "little", signed=True)
        case "double":
            return _double(payload) if kind == rb.DOUBLE else _as_double(int.from_bytes(payload, "little", signed=True))
        case "decimal":
            is_decimal = kind == rb.DECIMAL128
            number = rb.decimal_at(payload, 0) if is_decimal else int.from_bytes(payload, "little", signed=True)
            return _decimal(number, shape.scale)
        case "string":
            return _text(payload[4:-1])
        case "objectId":
            return payload.hex()
        case "bool":
            return payload == b"\1"
        case "date":
            milliseconds = int.from_bytes(payload, "little", signed=True)
            return milliseconds * 1000 if milliseconds in _DATES else None
        case "binary":
            return payload[5:] if payload[4] == _GENERIC else None
        case "uuid":
            is_uuid = payload[4] == _UUID and len(payload) == 5 + 16
            return str(uuid.UUID(bytes=payload[5:])) if is_uuid else None
    return payload  # a document or an array: it has a column of its own for each part


def _double(payload: bytes) -> float:
    number: float = struct.unpack("<d", payload)[0]
    return number


def _as_double(number: int) -> float | None:
    return float(number) if float(number) == number else None


def _decimal(number: int | Decimal, scale: int) -> Decimal | None:
    if isinstance(number, Decimal) and (not number.is_finite() or (number.is_zero() and number.is_signed())):
        return None
    shifted = Fraction(number) * 10**scale
    is_exact = shifted.denominator == 1 and abs(shifted) < 10**38
    return Decimal(f"{shifted.numerator}E-{scale}") if is_exact else None


def _text(encoded: bytes) -> str | None:
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return None
