"""Compaction of bronze's files in this process: finds the rows that no reader needs. No Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.bronze.compaction import READS, STATE, CompactionRule, superseded
from strandline.io.delta_log.sorted_rewrite import key_columns
from strandline.io.delta_log.table_folder import TableFolder

_PART_ROWS: Final = 2_000_000
"""Events that are compared at once: about 1 GB of memory."""
_PLACED: Final = STATE.append(pa.field("file", pa.int32())).append(pa.field("row", pa.int64()))
_HASHED: Final = 16
"""Bytes at the end of a key that choose its part."""
_MIN_SHARE: Final = 0.2
"""Share of a file's rows that must go before the file is written anew. So the cost follows what goes."""


def removable_rows(folder: TableFolder, rule: CompactionRule) -> dict[str, np.ndarray]:
    """Return the files to write anew, and which of their rows go: see `remove_rows`.

    I/O: reads keys and positions of the files with rows before the horizon; writes them to temporary files, in parts by
    key. Memory: about 1 GB, and a byte for each row. Disk: about 100 bytes for each event before the horizon.
    """
    gone, paths = dict[str, np.ndarray](), list[str]()

    def is_needed(file: Mapping[str, Any]) -> bool:
        oldest, batch = file.get("min.position"), file.get("min.batch")
        return oldest is None or oldest < rule.horizon.position or (batch is not None and batch <= rule.horizon.batch)

    files = list(key_columns(folder, READS, is_needed))
    stays = {path: np.zeros(rows, bool) for path, rows, _ in files}
    with tempfile.TemporaryDirectory(prefix="strandline-compaction-") as name:
        parts = _Parts(Path(name), 1 + sum(rows for _, rows, _ in files) // _PART_ROWS)
        with parts:
            for path, rows, batches in files:
                gone[path], place = np.zeros(rows, bool), 0
                for batch in batches:
                    end = place + batch.num_rows
                    gone[path][place:end] = np.asarray(rule.is_old_heartbeat(batch))
                    stays[path][place:end] = np.asarray(rule.stays(batch))
                    parts.add(rule.events_in(batch), len(paths), place)
                    place = end
                paths.append(path)
        for events in parts.read():
            chosen = events.filter(superseded(events))
            places, rows_gone = np.asarray(chosen["file"]), np.asarray(chosen["row"])
            for number in np.unique(places):
                gone[paths[number]][rows_gone[places == number]] = True
    for path, rows_that_stay in stays.items():
        gone[path] &= ~rows_that_stay
    return {path: rows for path, rows in gone.items() if rows.any() and rows.mean() >= _MIN_SHARE}


class _Parts:
    """Events in temporary files. All events of a key are in one of them."""

    def __init__(self, folder: Path, count: int) -> None:
        self._files = [folder / f"{number}.arrow" for number in range(count)]
        self._open = ExitStack()
        self._writers: list[pa.RecordBatchFileWriter] = []

    def __enter__(self) -> _Parts:
        self._writers = [self._open.enter_context(pa.ipc.new_file(str(file), _PLACED)) for file in self._files]
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, events: pa.Table, file: int, place: int) -> None:
        """I/O: writes *events*. Their batch begins at *place* of a *file*."""
        numbers = pa.array([file] * events.num_rows, pa.int32())
        columns = [*(events[name] for name in STATE.names), numbers, pc.add(events["row"], place)]
        placed = pa.table(columns, schema=_PLACED)
        part = _hashes(placed["id"].combine_chunks()) % len(self._writers)
        for number, writer in enumerate(self._writers):
            writer.write_table(placed.filter(pa.array(part == number)) if len(self._writers) > 1 else placed)

    def read(self) -> Iterator[pa.Table]:
        """I/O: yields the events of each file."""
        for file in self._files:
            with pa.memory_map(str(file)) as source:
                yield pa.ipc.open_file(source).read_all()


def _hashes(texts: pa.StringArray) -> np.ndarray:
    """Return a number for each of *texts*: equal texts have equal numbers."""
    _, offsets, data = texts.buffers()
    hashes = np.zeros(len(texts), np.uint32)
    if not len(texts) or data is None:
        return hashes
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8)
    for back in range(1, _HASHED + 1):
        hashes = hashes * np.uint32(31) + content[np.maximum(bounds[1:] - back, bounds[:-1])]
    return hashes
