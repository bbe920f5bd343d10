"""Digits that a column DECIMAL(38, s) needs to hold a number. Inference and decoder use the same count. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Final

PRECISION: Final = 38
"""Digits of every DECIMAL column."""

_CONTEXT: Final = Context(prec=PRECISION)


@dataclass(frozen=True)
class DecimalDigits:
    """Digits of one number."""

    whole: int
    """Digits before the point."""
    exact_scale: int
    """Digits behind the point without the zeros at the end: 1 for ``1.50``, 0 for ``0.00``."""
    written_scale: int
    """Digits behind the point, with the zeros at the end: 2 for ``1.50`` and for ``0.00``."""


def decimal_digits(number: Decimal) -> DecimalDigits | None:
    """Count the digits of *number*. None: NaN, an infinity or a negative zero, which no DECIMAL column can hold."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return None
    written_scale = max(0, -exponent)
    if not number:
        return None if sign else DecimalDigits(0, 0, written_scale)
    zeros = next(place for place, digit in enumerate(reversed(digits)) if digit)
    return DecimalDigits(max(0, len(digits) + exponent), max(0, -exponent - zeros), written_scale)


def fitted(number: Decimal, scale: int) -> Decimal | None:
    """Return *number* with *scale* digits behind the point. None: DECIMAL(38, *scale*) cannot hold it exactly."""
    digits = decimal_digits(number)
    if digits is None or digits.exact_scale > scale or digits.whole > PRECISION - scale:
        return None
    return number.quantize(Decimal((0, (1,), -scale)), context=_CONTEXT)
