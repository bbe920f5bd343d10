"""Digest of a set of documents: a count, and a sum of hashes. Two sets are compared without sending the documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

_MODULUS = 1 << 128


def digest(document: bytes) -> bytes:
    """Return the 16-byte hash of a document."""
    return hashlib.blake2b(document, digest_size=16).digest()


@dataclass(frozen=True)
class RangeDigest:
    """Count of the documents of one range, and the sum of their hashes. The order of the documents does not matter."""

    documents: int = 0
    total: int = 0

    @staticmethod
    def of(documents: Iterable[bytes]) -> RangeDigest:
        count = total = 0
        for document in documents:
            count += 1
            total += int.from_bytes(digest(document))
        return RangeDigest(count, total % _MODULUS)

    def __add__(self, other: RangeDigest) -> RangeDigest:
        return RangeDigest(self.documents + other.documents, (self.total + other.total) % _MODULUS)

    def to_hex(self) -> str:
        return f"{self.total:032x}"

    @staticmethod
    def from_hex(documents: int, total: str) -> RangeDigest:
        return RangeDigest(documents, int(total, 16))
