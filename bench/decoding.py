"""Cost of counting and decoding documents that are read together, beside the driver's decoder in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import bson
import pyarrow as pa

from bench.documents import documents
from strandline.model.shape import Shape
from strandline.silver.batch_profile import profile_of
from strandline.silver.decode.rows import decoding
from strandline.silver.schema.census import CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, evolve

_MAX_DEPTH: Final = 8
_ROWS: Final = 2_000
"""Rows of a batch, as Spark hands them to a Python worker."""


@dataclass(frozen=True)
class DecodingCost:
    """Cost of one document: microseconds of one core, of the best round."""

    kind: str
    size: int
    """Bytes of a document, on average."""
    driver: float
    """`bson.decode`, each result freed at once."""
    driver_kept: float
    """`bson.decode`, all results kept in a list."""
    census: float
    columns: float


def compare(count: int, *, rounds: int, seed: int = 1) -> Iterator[DecodingCost]:
    """Measure documents with the same fields, and documents of which each lacks a fifth of its fields."""
    yield _measured("same fields", [bson.encode(document) for document in documents(count, seed=seed)], rounds)
    chance = Random(seed)
    lacking = (_without_some(document, chance) for document in documents(count, seed=seed))
    yield _measured("fields missing", [bson.encode(document) for document in lacking], rounds)


def _without_some(document: dict[str, Any], chance: Random) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name == "_id" or chance.random() < 0.8}


def _measured(kind: str, raw: list[bytes], rounds: int) -> DecodingCost:
    shape, _ = evolve(Shape("struct"), CensusTaker(_MAX_DEPTH).count(raw[:1_000]), ColumnLimits())
    batches = [_batch(raw[start : start + _ROWS]) for start in range(0, len(raw), _ROWS)]
    runs: tuple[Callable[[], object], ...] = (
        lambda: [None for document in raw if not bson.decode(document)],
        lambda: [bson.decode(document) for document in raw],
        lambda: profile_of(batches, max_depth=_MAX_DEPTH),
        lambda: list(decoding(shape, ("key",))(iter(batches))),
    )
    seconds = [[_seconds(run) for run in runs] for _ in range(rounds)]
    best = [min(of_run) / len(raw) * 1e6 for of_run in zip(*seconds, strict=True)]
    return DecodingCost(kind, sum(map(len, raw)) // len(raw), *best)


def _batch(raw: list[bytes]) -> pa.RecordBatch:
    """Return READs of *raw* with the columns of bronze that a census and the decoder read."""
    columns = {"op": ["r"] * len(raw), "base_op": ["r"] * len(raw), "key": [str(row) for row in range(len(raw))]}
    return pa.record_batch({**columns, "is_patch": [False] * len(raw), "envelope": pa.array(raw, pa.binary())})


def _seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started
