"""Documents of about 780 bytes (a change event of about 1,080): twelve fields, nested, with arrays of six. Deterministic by seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import bson


def documents(count: int, *, seed: int = 1) -> Iterator[dict[str, Any]]:
    """*count* documents with ObjectIds."""
    chance = random.Random(seed)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(count):
        yield {
            "_id": bson.ObjectId(),
            "seq": number,
            "name": f"customer {number}",
            "email": f"user{number}@example.com",
            "active": number % 2 == 0,
            "created": start + timedelta(seconds=number),
            "balance": bson.Decimal128(f"{number}.{number % 100:02d}"),
            "score": chance.random() * 100,
            "address": {
                "street": f"{number} Long Street Name",
                "zip": f"{number % 99999:05d}",
                "geo": {"lat": chance.random(), "lon": chance.random()},
            },
            "tags": [f"tag{place}-{number % 13}" for place in range(6)],
            "items": [{"sku": f"SKU{number}{place}", "qty": place, "price": chance.random() * 10} for place in range(6)],
            "notes": "x" * 100,
        }
