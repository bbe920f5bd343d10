"""Cost of a compaction of bronze, by number of events. No Spark, no mongod."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import bson
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench.documents import documents
from strandline.bronze.compact_files import removable_rows
from strandline.bronze.compaction import read_rule
from strandline.bronze.envelope import SCHEMA
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.sorted_rewrite import remove_rows
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.delta_schema import delta_schema
from strandline.model.horizon import Horizon
from strandline.model.table_schemas import BRONZE_DDL, bronze_table
from strandline.model.tables import Lake

_KEYS: Final = 200_000
_BATCH: Final = 50_000
_SECONDS_OF_A_YEAR: Final = 365 * 24 * 3600
_KEPT_DAYS: Final = 30
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class CompactionCost:
    """Cost of the first compaction of a year of events over 200,000 keys. 30 days are kept."""

    events: int
    removed: int
    megabytes_before: float
    megabytes_after: float
    seconds: float
    cpu_seconds: float
    memory: int
    """Peak of this process, in bytes."""


def compare(folder: Path, *, events: int, seed: int) -> Iterator[CompactionCost]:
    """Yield the cost for a quarter, a half and all of *events*."""
    for count in (events // 4, events // 2, events):
        lake = Lake(root=str(folder / f"compaction-{count}"))
        _build(Path(lake.path(bronze_table("bench"))), count, seed)
        yield _measure(DeltaRsTables(lake), count)


def _build(table: Path, count: int, seed: int) -> None:
    """I/O: writes a bronze table with whole documents of random keys, evenly over a year, in commits of 50,000."""
    DeltaTable.create(str(table), delta_schema(BRONZE_DDL), configuration={"delta.appendOnly": "true"})
    chance = np.random.default_rng(seed)
    contents = [bson.encode(one) for one in documents(_BATCH, seed=seed)]
    for batch, first in enumerate(range(0, count, _BATCH), 1):
        numbers = range(first, min(count, first + _BATCH))
        times = [number * _SECONDS_OF_A_YEAR // count for number in numbers]
        rows = {
            "batch": [batch] * len(numbers),
            "position": [f"{at:08x}{1:08x}:82{number:012X}" for at, number in zip(times, numbers, strict=True)],
            "op": ["u"] * len(numbers),
            "operation_type": ["replace"] * len(numbers),
            "db": ["shop"] * len(numbers),
            "collection": ["orders"] * len(numbers),
            "collection_uuid": ["0" * 32] * len(numbers),
            "key": [f'{{"$oid":"{key:024x}"}}' for key in chance.integers(_KEYS, size=len(numbers))],
            "document_size": [len(content) for content in islice(contents, len(numbers))],
            "envelope": contents[: len(numbers)],
        }
        empty = SCHEMA.empty_table()
        columns = [pa.array(rows.get(name, [None] * len(numbers)), empty[name].type) for name in SCHEMA.names]
        write_deltalake(str(table), pa.Table.from_arrays(columns, schema=SCHEMA), mode="append")


def _measure(tables: DeltaRsTables, count: int) -> CompactionCost:
    bronze, horizon = bronze_table("bench"), _SECONDS_OF_A_YEAR - _KEPT_DAYS * 24 * 3600
    folder = LocalFolder(Path(tables.lake.path(bronze)))
    before, started, cpu = _megabytes(folder), time.perf_counter(), time.process_time()
    rule = read_rule(tables, bronze, Horizon(f"{horizon:08x}{0:08x}:", 0), {}, drops=True, renames=True)
    removed = sum(step[0] for step in remove_rows(folder, removable_rows(folder, rule)) if step is not None)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return CompactionCost(count, removed, before, _megabytes(folder), seconds, cpu, memory)


def _megabytes(folder: LocalFolder) -> float:
    """Return the size of the data files of the newest version."""
    actions = pa.table(folder.table().get_add_actions())
    return sum(actions["size_bytes"].to_pylist()) / _MIB
