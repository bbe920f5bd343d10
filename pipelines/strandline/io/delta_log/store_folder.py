"""Files of one table in an object store."""

from __future__ import annotations

import io
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import pyarrow as pa
from deltalake import DeltaTable

from strandline.io.delta_log.checksums import left_over
from strandline.io.delta_log.object_store import StoreFailure, StoreOptions, opened_store, store_failures
from strandline.io.delta_log.table_folder import LOG, TableFolder, is_of_version

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CREATE_ATTEMPTS, _CREATE_PAUSE_SECONDS = 20, 0.5
_WHOLE_BYTES: Final = 8 << 20
"""Size up to which a file is read with one request."""
_COMMIT: Final = re.compile(rf"{LOG}/(\d{{20}})\.json")


@dataclass(frozen=True)
class StoreFolder:
    """A table in an object store. A file is there whole, or not at all.

    Args:
        uri: URI of the table.
    """

    uri: str
    options: StoreOptions
    may_write_late: bool = True

    @property
    def _store(self) -> ObjectStore:
        return opened_store(self.uri, self.options)

    def table(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(self.uri, version, storage_options=self.options.for_delta_rs())

    def is_table(self) -> bool:
        return DeltaTable.is_deltatable(self.uri, self.options.for_delta_rs())

    def names(self) -> Iterator[str]:
        import obstore

        with store_failures():
            for page in obstore.list(self._store):
                yield from (file["path"] for file in page if file["size"])  # without S3A's markers of folders

    def is_empty(self) -> bool:
        import obstore

        with store_failures():
            return not any(len(page) for page in obstore.list(self._store, chunk_size=1))

    def read(self, name: str) -> bytes | None:
        import obstore

        try:
            with store_failures():
                return bytes(obstore.get(self._store, name).bytes())
        except FileNotFoundError:
            return None

    def create(self, name: str, content: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with store_failures():
            for _ in range(_CREATE_ATTEMPTS):
                try:
                    obstore.put(self._store, name, content, mode="create")
                    return True
                except AlreadyExistsError:
                    # The library repeats a request without an answer: the object may be the one of the first request.
                    if (present := self.read(name)) is not None:
                        return present == content
                    time.sleep(_CREATE_PAUSE_SECONDS)  # another request to create it is running
        raise StoreFailure(
            f"{name} does not appear, and the store answers that another request creates it"
            f" ({_CREATE_ATTEMPTS} times, once every {_CREATE_PAUSE_SECONDS} seconds)",
            next_step="repeat the command",
        )

    def newest(self, version: int) -> int:
        import obstore

        newest_version = -1
        with store_failures():
            for page in obstore.list(self._store, LOG, offset=f"{LOG}/{version:020}"):
                for file in page:
                    number = _COMMIT.fullmatch(file["path"])
                    if number is not None and int(number[1]) != max(newest_version + 1, version):
                        return newest_version
                    newest_version = newest_version if number is None else int(number[1])
        return newest_version

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        import obstore

        with tempfile.TemporaryFile() as file:
            yield cast("BinaryIO", file)
            file.seek(0)
            with store_failures():
                obstore.put(self._store, name, file)

    def source(self, name: str) -> Any:
        return opened_object(self._store, name)

    def take(self, name: str, folder: TableFolder) -> None:
        import obstore

        lake, *target = self.uri.rsplit("/", 2)  # a layer, and a table
        source = folder.uri.removeprefix(f"{lake}/")
        with store_failures():
            obstore.copy(opened_store(lake, self.options), f"{source}/{name}", "/".join((*target, name)))

    def remove_all(self) -> None:
        import obstore

        with store_failures():
            names = [file["path"] for page in obstore.list(self._store) for file in page]
            for in_log in (False, True):
                if some := [name for name in names if name.startswith(f"{LOG}/") == in_log]:
                    obstore.delete(self._store, some)

    def remove(self, name: str) -> None:
        import obstore

        with store_failures():
            obstore.delete(self._store, name)

    def sync(self, *names: str) -> None:
        """Do nothing: a store answers only when it holds what it was given."""

    def remove_checksums(self, checkpoint: int) -> None:
        import obstore

        with store_failures():
            names = [file["path"].rpartition("/")[2] for page in obstore.list(self._store, LOG) for file in page]
        for name in left_over(names, checkpoint):
            self.remove(f"{LOG}/{name}")

    def repair_log(self) -> None:
        """Do nothing: no object is half written."""


class _Ranges(io.RawIOBase):
    """An object that is read in parts: only what the reader asks for is in memory."""

    def __init__(self, store: ObjectStore, name: str, size: int) -> None:
        self._store, self._name, self._size, self._at = store, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        import obstore

        end = self._size if size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        try:
            with store_failures():
                content = bytes(obstore.get_range(self._store, self._name, start=self._at, end=end))
        except FileNotFoundError as error:
            raise StoreFailure(f"{self._name} was removed while it was read", next_step="repeat the command") from error
        self._at += len(content)
        return content


def opened_object(store: ObjectStore, name: str) -> Any:
    """Return what pyarrow opens to read an object. I/O: asks for the object; a small one is read as a whole.

    Raises:
        FileNotFoundError: There is no such object.
        StoreFailure: The store refused, or did not answer. Later reads of the result may raise it, too.
    """
    import obstore

    with store_failures():
        response = obstore.get(store, name, options={"range": (0, _WHOLE_BYTES)})
        if response.meta["size"] <= _WHOLE_BYTES:
            return pa.BufferReader(pa.py_buffer(response.bytes()))
    return pa.PythonFile(_Ranges(store, name, response.meta["size"]), mode="r")


def tables_in_store(layer: str, options: StoreOptions) -> list[str]:
    """I/O: names of the Delta tables below the URI *layer*. Every table is asked for its log."""
    import obstore

    with store_failures():
        store = opened_store(layer, options)
        prefixes = obstore.list_with_delimiter(store)["common_prefixes"]
        return [
            name
            for name in prefixes
            if any(
                is_of_version(file["path"].rpartition("/")[2])
                for chunk in obstore.list(store, f"{name}/{LOG}", chunk_size=1)
                for file in chunk
            )
        ]
