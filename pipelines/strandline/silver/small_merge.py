"""MERGE of a small batch into a silver table's files, in one commit. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from strandline.io.delta_log.changeable_table import (
    MOST_BYTES,
    ChangeableTable,
    StoredFile,
    TableChange,
    change_feed,
)
from strandline.io.delta_log.parquet_file import conformed
from strandline.io.spark.conflicts import OvertakenError
from strandline.io.tables.merge import Merged, merge_metrics
from strandline.silver.fold.patches import CURRENT
from strandline.silver.silver_table import SilverTable
from strandline.silver.small_batch import COMPARED, Match, matches, merged


def files_of(stored: ChangeableTable, keys: Iterable[str]) -> list[StoredFile] | None:
    """Return the files that may hold one of *keys*. None: even compressed they have more than `MOST_BYTES`."""
    files = stored.files_with(sorted(keys))
    return files if sum(file.size for file in files) <= MOST_BYTES else None


def stored_rows(stored: ChangeableTable, files: Iterable[StoredFile], keys: Iterable[str]) -> pa.Table:
    """I/O: reads the columns `CURRENT` of the rows that have one of *keys*."""
    wanted = pa.array(list(keys), pa.string())
    parts = (stored.read(file, CURRENT) for file in files)
    schema = pa.schema([stored.schema.field(name) for name in CURRENT])
    return pa.concat_tables([schema.empty_table(), *(rows.filter(pc.is_in(rows["_key"], wanted)) for rows in parts)])


def merge_small_batch(
    stored: ChangeableTable,
    files: Sequence[StoredFile],
    new: pa.Table,
    properties: Mapping[str, str],
    *,
    hard_deletes: bool,
) -> Merged:
    """MERGE *new* by key, as `SilverTable.merge` does, and set table *properties* in the same commit.

    I/O: reads the files that may hold a key; writes those that change anew; one commit. Idempotent by the positions.

    Args:
        files: Output of `files_of` for the keys of *new*.
        new: Output of `typed`.

    Raises:
        OvertakenError: Another commit came first. Nothing was changed.
    """
    found: dict[StoredFile, list[Match]] = {}
    known: set[int] = set()
    for file in files:
        found[file], keys = matches(new, stored.read(file, COMPARED), hard_deletes=hard_deletes)
        known |= keys
    watermark = SilverTable.purge_watermark_in(stored.properties)
    positions = new["_position"].to_pylist()
    inserted = [number for number in range(new.num_rows) if number not in known and positions[number] >= watermark]
    change, counts = _change(stored, new, found, inserted, properties)
    if not stored.commit(change):
        raise OvertakenError(f"another process has changed {stored.folder.uri}", next_step="strandline silver")
    return counts


def _change(
    stored: ChangeableTable,
    new: pa.Table,
    found: Mapping[StoredFile, Sequence[Match]],
    inserted: Sequence[int],
    properties: Mapping[str, str],
) -> tuple[TableChange, Merged]:
    """I/O: reads the files that change. Returns their new rows, and the numbers of rows that change."""
    replaced = [file for file, changed in found.items() if changed]
    if inserted or replaced:
        replaced += [file for file in stored.small_files() if file not in replaced]
    kept, before, after = [], [], []
    for file in replaced:
        rows, changed = stored.read(file), found.get(file, [])
        stays = [True] * rows.num_rows
        for match in changed:
            stays[match.stored] = False
        kept.append(rows.filter(pa.array(stays)))
        before.append(rows.filter(pa.array([not stay for stay in stays])))
        after.append(merged(new, rows, changed))
    added = conformed(new.take(pa.array(inserted, pa.int64())), stored.schema)
    counts = Merged(len(inserted), sum(map(len, found.values())), 0, commits=1)
    if not counts.rows:
        return TableChange(properties=properties), counts
    rows = pa.concat_tables([*kept, *after, added])
    feed = change_feed({"update_preimage": before, "update_postimage": after, "insert": [added]}) if replaced else None
    return TableChange(replaced, rows, feed, properties, merge_metrics(counts, rows.num_rows)), counts
