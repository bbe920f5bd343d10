"""Generated documents of about 840 bytes (change event: about 1,150 bytes): twelve fields, nested, arrays of six.

Deterministic for a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import Decimal128, ObjectId

LARGE = 10_000_000
"""Size of a large document, in bytes."""

_START = datetime(2026, 1, 1, tzinfo=UTC)


def documents(count: int, *, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield *count* documents, equal for equal *seed*. ObjectIds increase, as those of a driver."""
    chance = random.Random(seed)
    process = chance.randbytes(5)
    for number in range(count):
        created = _START + timedelta(seconds=number)
        yield {
            "_id": ObjectId(int(created.timestamp()).to_bytes(4) + process + (number % 2**24).to_bytes(3)),
            "seq": number,
            "name": f"customer {number:07d}",
            "email": f"user{number:07d}@example.com",
            "active": number % 2 == 0,
            "created": created,
            "balance": Decimal128(f"{number}.{number % 100:02d}"),
            "score": chance.random() * 100,
            "address": {
                "street": f"{number:07d} Long Street Name",
                "zip": f"{number % 99999:05d}",
                "geo": {"lat": chance.random(), "lon": chance.random()},
            },
            "tags": [f"tag{place}-{number % 13:02d}" for place in range(6)],
            "items": [
                {"sku": f"SKU{number:07d}{place}", "qty": place, "price": chance.random() * 10} for place in range(6)
            ],
            "notes": chance.randbytes(68).hex(),
        }


def large_documents(count: int, *, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield *count* documents of `LARGE` bytes that hardly compress."""
    chance = random.Random(seed)
    for number in range(count):
        yield {"_id": number, "text": chance.randbytes(LARGE // 2 - 20).hex()}
