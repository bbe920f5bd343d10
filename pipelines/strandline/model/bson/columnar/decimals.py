"""Decimal128 values of a batch whose digits fit an integer of 64 bits. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from strandline.model.bson.columnar.batch import Flags, Ints
from strandline.model.bson.columnar.tree import Values

_HIGH_DIGITS: Final = np.uint64(2**49 - 1)
_LARGEST: Final = np.uint64(2**63 - 1)
_BIAS: Final = 6176


@dataclass(frozen=True)
class Decimals:
    """Parts of numbers: ``digits × 10^exponent``.

    Source: IEEE 754-2008, binary integer decimal.
    """

    digits: Ints
    """Zero where `is_small` is False."""
    exponents: Ints
    is_negative: Flags
    is_small: Flags
    """False for NaN, Infinity, and numbers with more digits than 64 bits hold: they must be read one by one."""

    @staticmethod
    def of(values: Values) -> Decimals:
        """Return the parts of values of the type Decimal128."""
        low, high = values.items("V16").view("<u8").reshape(-1, 2).T
        is_small = (high & _HIGH_DIGITS == 0) & (low <= _LARGEST) & (high >> 61 & 3 != 3)
        exponents = (high >> 49 & 0x3FFF).astype(np.int64) - _BIAS
        return Decimals(np.where(is_small, low, 0).astype(np.int64), exponents, high >> 63 == 1, is_small)


def trailing_zeros(digits: Ints) -> Ints:
    """Return the number of zeros at the end of each number. 0 has none."""
    rest, zeros = digits.copy(), np.zeros_like(digits)
    while (is_divisible := (rest > 0) & (rest % 10 == 0)).any():
        rest[is_divisible] //= 10
        zeros += is_divisible
    return zeros
