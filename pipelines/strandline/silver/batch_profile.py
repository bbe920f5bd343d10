"""The batch profile: types, keys and keys of patches in a batch, found in one Spark job that reads every row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.model.table_schemas import CHANGE_OPS
from strandline.silver.decode.document import document_in
from strandline.silver.fold.patches import is_patch
from strandline.silver.key_filter import MAX_LISTED_KEYS, Keys, KeyTally, tally
from strandline.silver.schema.census import Census, CensusTaker

_DDL = "census STRING, keys STRING, patched STRING"


@dataclass(frozen=True)
class BatchProfile:
    """Profile of one batch of one collection."""

    changes: int
    """Number of change rows."""
    census: Census
    keys: Keys
    patch_keys: KeyTally
    """Keys of the patches: inserts and updates without their document."""

    @property
    def holds_patches(self) -> bool:
        return self.patch_keys.count > 0

    def keys_to_fold(self, table: DataFrame | None) -> Keys | None:
        """Return the keys whose table rows are needed for folding. None: no row is needed.

        I/O: one small job over the silver table.

        Args:
            table: Silver table that may hold pending patches. None: it holds none.
        """
        needed = replace(self.patch_keys)
        if table is not None and self.changes:
            waiting = (
                table.where(f"_pending IS NOT NULL AND {self.keys.predicate('_key')}")
                .select("_key")
                .limit(MAX_LISTED_KEYS + 1)
                .collect()
            )
            if len(waiting) > MAX_LISTED_KEYS:
                return Keys()
            needed.merge(tally(["u"] * len(waiting), [row["_key"] for row in waiting]))
        return needed.keys() if needed.count else None


def profile_batch(changes: DataFrame, *, max_depth: int) -> BatchProfile:
    """Profile the bronze rows of one collection. An empty batch gives an empty profile.

    I/O: one Spark job over *changes*; writes nothing.

    Args:
        changes: Bronze rows; control rows are ignored. Reads ``op``, ``key``, ``document_size`` and ``envelope``.
        max_depth: See `CensusTaker`.
    """

    def profiled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        census, keys, patched = _tallied(batches, max_depth)
        tallies = {"keys": keys, "patched": patched}
        part = {
            "census": [json.dumps(census.to_json())],
            **{name: [json.dumps(asdict(some))] for name, some in tallies.items()},
        }
        yield pa.RecordBatch.from_pydict(part)

    document = F.when(F.col("document_size").isNotNull(), F.col("envelope")).alias("envelope")
    wanted = changes.where(F.col("op").isin(*CHANGE_OPS)).select("op", "key", is_patch().alias("is_patch"), document)
    parts = wanted.mapInArrow(profiled, _DDL).collect()
    census, keys, patched = Census({"struct"}), KeyTally(), KeyTally()
    for part in parts:
        census.merge(Census.from_json(json.loads(part["census"])))
        keys.merge(KeyTally(**json.loads(part["keys"])))
        patched.merge(KeyTally(**json.loads(part["patched"])))
    return BatchProfile(keys.count, census, keys.keys(), patched)


def profile_of(batches: Iterable[pa.RecordBatch], *, max_depth: int) -> BatchProfile:
    """Profile changes that this process holds. Pure.

    Args:
        batches: ``op``, ``key``, ``is_patch``, and ``envelope`` where it holds a whole document.
        max_depth: See `CensusTaker`.
    """
    census, keys, patched = _tallied(batches, max_depth)
    return BatchProfile(keys.count, census, keys.keys(), patched)


def _tallied(batches: Iterable[pa.RecordBatch], max_depth: int) -> tuple[Census, KeyTally, KeyTally]:
    counter, keys, patched = CensusTaker(max_depth), KeyTally(), KeyTally()
    for batch in batches:
        ops = batch["op"].to_pylist()
        found = (document_in(op, raw) for op, raw in zip(ops, batch["envelope"].to_pylist(), strict=True))
        counter.count(document for document in found if document is not None)
        keys.merge(tally(ops, batch["key"].to_pylist()))
        found_patches = batch.filter(batch["is_patch"])
        patched.merge(tally(found_patches["op"].to_pylist(), found_patches["key"].to_pylist()))
    return counter.census, keys, patched


def census_of_state(state: DataFrame, *, max_depth: int) -> Census:
    """Take the census of folded documents, which exist in no bronze row.

    I/O: one Spark job over *state*; writes nothing.

    Args:
        state: Output of `folded_per_key`.
    """
    folded = state.select(
        F.col("base_op").alias("op"),
        F.col("_key").alias("key"),
        "envelope",
        F.length("envelope").alias("document_size"),
    )
    return profile_batch(folded, max_depth=max_depth).census
