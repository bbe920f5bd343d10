"""Files of one table in a folder of this machine."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from deltalake import DeltaTable

from strandline.io.delta_log.checksums import left_over
from strandline.io.delta_log.disk import create_file, sync
from strandline.io.delta_log.table_folder import LOG, TableFolder, commit_name
from strandline.io.delta_log.torn_log import repair_log

_SPARK_MAY_WRITE_SECONDS: Final = 3600
"""Age up to which a checksum file may belong to a file that Spark is about to rename."""


@dataclass(frozen=True)
class LocalFolder:
    """A table in a folder of this machine.

    Args:
        path: Absolute path of the table.
    """

    path: Path
    may_write_late: bool = False

    @property
    def uri(self) -> str:
        return str(self.path)

    def table(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(self.uri, version)

    def is_table(self) -> bool:
        return DeltaTable.is_deltatable(self.uri)

    def names(self) -> Iterator[str]:
        for folder, _, names in os.walk(self.path):
            yield from (str(Path(folder, name).relative_to(self.path)) for name in names)

    def is_empty(self) -> bool:
        return not self.path.is_dir() or not any(self.path.iterdir())

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def create(self, name: str, content: bytes) -> bool:
        return create_file(self.path / name, content)

    def newest(self, version: int) -> int:
        if not (self.path / commit_name(version)).exists():
            return -1
        while (self.path / commit_name(version + 1)).exists():
            version += 1
        return version

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        file = self.path / name
        if file.parent != self.path:  # the table's own folder is not made anew if somebody has moved it away
            file.parent.mkdir(exist_ok=True)
        try:
            with file.open("xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
        except BaseException:
            file.unlink(missing_ok=True)  # failed attempts must not fill the disk
            raise

    def source(self, name: str) -> str:
        return str(self.path / name)

    def take(self, name: str, folder: TableFolder) -> None:
        os.link(Path(folder.uri) / name, self.path / name)

    def remove_all(self) -> None:
        for inner in self.path.iterdir():
            if inner.name != LOG:
                shutil.rmtree(inner) if inner.is_dir() and not inner.is_symlink() else inner.unlink()
        shutil.rmtree(self.path)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def sync(self, *names: str) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                sync(self.path / name)

    def remove_checksums(self, checkpoint: int) -> None:
        newest = time.time() - _SPARK_MAY_WRITE_SECONDS
        for folder, _, names in os.walk(self.path):
            for name in left_over(names, checkpoint):
                with suppress(FileNotFoundError):
                    if (file := Path(folder, name)).stat().st_mtime < newest:
                        file.unlink()

    def repair_log(self) -> None:
        repair_log(self.path / LOG)
