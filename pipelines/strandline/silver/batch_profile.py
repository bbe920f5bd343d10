"""The batch profile: types, keys and keys of patches in a batch, found in one Spark job that reads every row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.io.spark import column_functions as F
from strandline.model.table_schemas import CHANGE_OPS
from strandline.silver.decode.batch_documents import documents_in, small_parts
from strandline.silver.fold.patches import is_patch
from strandline.silver.key_filter import MAX_LISTED_KEYS, Keys, KeyTally, tally
from strandline.silver.key_runs import KeyRuns, are_distinct
from strandline.silver.schema.batch_census import count_batch
from strandline.silver.schema.census import Census, CensusTaker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DDL = "part STRING, ranges STRING"


@dataclass(frozen=True)
class BatchProfile:
    """Profile of one batch of one collection."""

    changes: int
    """Number of change rows."""
    census: Census
    keys: Keys
    patch_keys: KeyTally
    """Keys of the patches: inserts and updates without their document."""
    alone: int
    """Number of documents that were not read together with the others of their batch."""
    has_distinct_keys: bool = False
    """True if no key repeats, as in the chunks of a snapshot. False: keys may repeat."""

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
        changes: Bronze rows; control rows are ignored. Reads ``op``, ``key``, ``position``, ``document_size`` and
            ``envelope``.
        max_depth: See `CensusTaker`.
    """

    def profiled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runs = KeyRuns()
        part = ProfilePart.of(runs.watch(batches), max_depth).to_json()
        yield pa.RecordBatch.from_pydict({"part": [part], "ranges": [json.dumps(runs.ranges)]})

    document = F.when(F.col("document_size").isNotNull(), F.col("envelope")).alias("envelope")
    changed_rows = changes.where(F.col("op").isin(*CHANGE_OPS)).select(
        "op", "key", "position", is_patch().alias("is_patch"), document
    )
    whole, rows = ProfilePart(), changed_rows.mapInArrow(profiled, _DDL).collect()
    for row in rows:
        whole.merge(ProfilePart.from_json(row["part"]))
    return replace(whole.profile(), has_distinct_keys=are_distinct(json.loads(row["ranges"]) for row in rows))


def profile_of(batches: Iterable[pa.RecordBatch], *, max_depth: int) -> BatchProfile:
    """Profile changes that this process holds. Pure.

    Args:
        batches: ``op``, ``key``, ``is_patch``, and ``envelope`` where it holds a whole document.
        max_depth: See `CensusTaker`.
    """
    return ProfilePart.of(batches, max_depth).profile()


@dataclass
class ProfilePart:
    """Profile of some of the rows of a batch. Parts are merged in the order of the rows: the order of new columns."""

    census: Census = field(default_factory=lambda: Census({"struct"}))
    keys: KeyTally = field(default_factory=KeyTally)
    patch_keys: KeyTally = field(default_factory=KeyTally)
    alone: int = 0

    @staticmethod
    def of(batches: Iterable[pa.RecordBatch], max_depth: int) -> ProfilePart:
        taker, part = CensusTaker(max_depth), ProfilePart()
        for batch in small_parts(batches, "envelope"):
            part.alone += count_batch(taker, documents_in(batch["op"], batch["envelope"]).drop_null())
            part.keys.merge(tally(batch["op"].to_pylist(), batch["key"].to_pylist()))
            patches = batch.filter(batch["is_patch"])
            part.patch_keys.merge(tally(patches["op"].to_pylist(), patches["key"].to_pylist()))
        return replace(part, census=taker.census)

    def merge(self, other: ProfilePart) -> None:
        self.census.merge(other.census)
        self.keys.merge(other.keys)
        self.patch_keys.merge(other.patch_keys)
        self.alone += other.alone

    def profile(self) -> BatchProfile:
        return BatchProfile(self.keys.count, self.census, self.keys.keys(), self.patch_keys, self.alone)

    def to_json(self) -> str:
        tallies = {"keys": asdict(self.keys), "patch_keys": asdict(self.patch_keys)}
        return json.dumps({"census": self.census.to_json(), "alone": self.alone, **tallies})

    @staticmethod
    def from_json(text: str) -> ProfilePart:
        content = json.loads(text)
        tallies = KeyTally(**content["keys"]), KeyTally(**content["patch_keys"])
        return ProfilePart(Census.from_json(content["census"]), *tallies, content["alone"])


def census_of_state(state: DataFrame, *, max_depth: int) -> Census:
    """Take the census of folded documents, which exist in no bronze row.

    I/O: one Spark job over *state*; writes nothing.

    Args:
        state: Output of `folded_per_key`.
    """
    folded = state.select(
        F.col("base_op").alias("op"),
        F.col("_key").alias("key"),
        F.col("_position").alias("position"),
        "envelope",
        F.length("envelope").alias("document_size"),
    )
    return profile_batch(folded, max_depth=max_depth).census
