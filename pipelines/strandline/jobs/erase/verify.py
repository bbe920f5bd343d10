"""Proof of an erasure: a search for values in every file under the lake."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import bson
import pyarrow as pa
import pyarrow.parquet as pq
from bson.objectid import ObjectId

from strandline.errors import ConfigurationError
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.store_folder import StoreFolder
from strandline.io.delta_log.table_folder import TableFolder
from strandline.jobs.lake_context import store_here, store_options
from strandline.model.bson.merge_key import key_name
from strandline.settings.configuration import Settings

_SHORTEST: Final = 4
_ROWS_AT_ONCE: Final = 4_096
_PART_BYTES: Final = 16 << 20
_LONGEST: Final = 4_096
"""Bytes of a value that is found where two parts of a file meet."""


@dataclass(frozen=True)
class Trace:
    """A value that a file holds."""

    file: str
    """Path below the lake."""
    value: str
    """Hash of the value, as errors show keys."""
    place: str
    """``bytes``: in the bytes of the file, as of a log or of Parquet statistics; otherwise the Parquet column."""


@dataclass(frozen=True)
class Search:
    """Result of a search."""

    files: int
    traces: tuple[Trace, ...]


def find_values(settings: Settings, values: Sequence[str]) -> Search:
    """Search every file under the lake, and the Data Docs, for *values*.

    A value is found as text, in JSON, in HTML, in a resume token (hex), in the plan of a snapshot, and an ObjectId as
    its twelve bytes. Parquet is searched as it is, with its statistics, and decoded, column by column.

    I/O: reads every file. Memory: some rows of one file.

    Raises:
        ConfigurationError: A value is shorter than four characters, or the lake is no folder and not in S3.
    """
    if not values or any(len(value) < _SHORTEST for value in values):
        raise ConfigurationError(
            f"a value has fewer than {_SHORTEST} characters, and would be found by chance",
            next_step="search for a longer value of the document",
        )
    needles = {form: key_name(value) for value in values for form in _forms(value)}
    pattern = re.compile(b"|".join(map(re.escape, sorted(needles, key=len, reverse=True))))
    files, traces = 0, dict[Trace, None]()
    for folder, name in _files(settings):
        files += 1
        with suppress(FileNotFoundError):  # it was removed meanwhile
            matches = _matches(folder.source(name), name, pattern)
            traces |= {Trace(name, needles[match], place): None for place, match in matches}
    return Search(files, tuple(traces))


def _forms(value: str) -> Iterator[bytes]:
    """Yield the bytes that stand for *value* in files."""
    for text in (value, value.replace("'", "''"), value.replace("'", "\\'")):  # as it is, and in SQL of both engines
        yield text.encode()
        yield from (json.dumps(text, ensure_ascii=is_ascii)[1:-1].encode() for is_ascii in (True, False))
    yield html.escape(value).encode()
    identifiers: list[Any] = [value]
    if re.fullmatch("[0-9a-f]{24}", value):
        yield bytes.fromhex(value)
        yield value.upper().encode()
        identifiers.append(ObjectId(value))
    else:
        yield value.encode().hex().encode()
        yield value.encode().hex().upper().encode()
    for identifier in identifiers:
        yield b64encode(bson.encode({"_id": identifier}))


def _files(settings: Settings) -> Iterator[tuple[TableFolder, str]]:
    """I/O: yields each file, as its folder and its name."""
    lake, store = settings.lake_location, store_here(settings)
    folders = [Path(settings.quality.docs_dir).absolute()]
    if store is not None:
        files = StoreFolder(store.root or "", store_options(settings))
        yield from ((files, name) for name in files.names())
    elif not lake.by_path or lake.in_object_store:
        raise ConfigurationError(
            "only files in a folder or in S3 can be searched, and the lake is elsewhere",
            next_step="copy its files, and search the copy: --set lake.root=FOLDER",
        )
    else:
        root = Path(lake.root or "lake").absolute()
        folders = [root, *(folder for folder in folders if not folder.is_relative_to(root))]
    for folder in map(LocalFolder, folders):
        yield from ((folder, name) for name in folder.names())


def _matches(source: Any, name: str, pattern: re.Pattern[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the bytes of each match."""
    with pa.OSFile(source) if isinstance(source, str) else pa.PythonFile(source, "r") as file:
        rest = b""
        while part := file.read(_PART_BYTES):
            yield from (("bytes", match[0]) for match in pattern.finditer(rest + part))
            rest = part[-_LONGEST:]
        if not name.endswith(".parquet"):
            return
        file.seek(0)
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                for column, values in zip(batch.schema.names, batch.columns, strict=True):
                    buffers = (memoryview(buffer) for buffer in values.buffers() if buffer is not None)
                    yield from ((column, bytes(match[0])) for buffer in buffers for match in pattern.finditer(buffer))
