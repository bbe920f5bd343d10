"""Port to the files of one table, in a folder of this machine or in an object store. No Spark.

`LocalFolder` and `StoreFolder` implement it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Final, Protocol

from deltalake import DeltaTable

LOG: Final = "_delta_log"
_OF_VERSION: Final = re.compile(r"\d{20}\.(json|checkpoint\.)")


def commit_name(version: int) -> str:
    """Return the name of a commit's file."""
    return f"{LOG}/{version:020}.json"


def is_of_version(name: str) -> bool:
    """Return True for the *name* of a commit or a checkpoint. A creation that failed leaves a log without one."""
    return _OF_VERSION.match(name) is not None


class TableFolder(Protocol):
    """Files of one table. Names are paths below the table. Every method is I/O.

    A failure of the disk or the store is an OSError.
    """

    @property
    def uri(self) -> str:
        """Path or URI of the table, as delta-rs opens it."""

    @property
    def may_write_late(self) -> bool:
        """True if a request that failed here may still be carried out."""

    def table(self, version: int | None = None) -> DeltaTable:
        """Open a *version* of the table. None: the newest one. Raises DeltaError or OSError."""

    def is_table(self) -> bool:
        """Return True if there is a Delta table."""

    def names(self) -> Iterator[str]:
        """Yield the name of every file."""

    def is_empty(self) -> bool:
        """Return True if there is no file."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file. None: there is no such file."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file, unless it exists. On disk on return. False: it exists, with another content.

        Effects on failure: an error may leave the file, whole.
        """

    def newest(self, version: int) -> int:
        """Return the last of the commits that follow each other from *version* on. -1: *version* has no file."""

    def writing(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Return a context that writes a new file. It is on disk at the end. After an error there is no file."""

    def source(self, name: str) -> Any:
        """Return what pyarrow opens to read a file. Raises FileNotFoundError."""

    def take(self, name: str, folder: TableFolder) -> None:
        """Give a file of another table of the lake the same name here, too, without reading it."""

    def remove(self, name: str) -> None:
        """Remove a file. No error if it is missing."""

    def remove_all(self) -> None:
        """Remove every file, those of the log last: after a kill there is still a table."""

    def sync(self, *names: str) -> None:
        """Bring files and their names to the disk. No error if one is missing. The name "" is the table itself."""

    def remove_checksums(self, checkpoint: int) -> None:
        """Remove the checksum files that are `left_over`. A folder keeps those of the last hour: Spark may be writing.

        Args:
            checkpoint: Version of the newest checkpoint.
        """

    def repair_log(self) -> None:
        """Repair the log after a power cut."""
