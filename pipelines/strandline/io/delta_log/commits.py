"""The commits of a Delta table, read from the files of its log, without a Spark job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from strandline.io.delta_log.table_folder import LOG, TableFolder, commit_name, is_of_version

if TYPE_CHECKING:
    from pyspark.sql import Row

FILES_ONLY: Final = ("OPTIMIZE", "VACUUM START", "VACUUM END")
"""Operations, in Delta's words, that change files but no row and no property."""
_ROWS_KEPT: Final = (*FILES_ONLY, "SET TBLPROPERTIES", "UNSET TBLPROPERTIES")
"""Operations that change no row."""
REPLACEMENT: Final = "CREATE OR REPLACE TABLE AS SELECT"
"""Operation of the commit that replaces a whole table."""
_APPENDS: Final = ("WRITE", "STREAMING UPDATE")
"""Operations that append rows."""


@dataclass(frozen=True)
class Commit:
    """The information that a commit stores about itself."""

    version: int
    operation: str | None
    """Operation in Delta's words: ``WRITE``, ``MERGE``, ``RESTORE``, …"""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Metrics of the operation, by Delta's names."""
    user_metadata: str | None = None
    engine: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the operation, by Delta's names."""

    @property
    def keeps_rows(self) -> bool:
        """True if no row changed: by the operation, or by the numbers of a MERGE. Spark commits a MERGE of nothing."""
        counts = {self.metrics.get(f"numTargetRows{change}") for change in ("Inserted", "Updated", "Deleted")}
        return self.operation in _ROWS_KEPT or (self.operation == "MERGE" and counts == {"0"})

    @property
    def mark(self) -> str:
        """Text that no other commit of the table has, in whatever way its log is read."""
        fields = (self.operation, self.user_metadata, self.engine, self.parameters, self.metrics)
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    @staticmethod
    def of_row(row: Row) -> Commit:
        """Return the commit of a row of ``DESCRIBE HISTORY``."""
        return Commit(
            int(row["version"]),
            row["operation"],
            _by_delta_names(row["operationMetrics"] or {}),
            row["userMetadata"],
            row["engineInfo"],
            _as_texts(row["operationParameters"] or {}),
        )

    @staticmethod
    def of_actions(version: int, actions: list[dict[str, Any]]) -> Commit:
        """Return the commit of a file of the log."""
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        metrics, parameters = (_as_texts(info.get(name) or {}) for name in ("operationMetrics", "operationParameters"))
        return Commit(
            version,
            info.get("operation"),
            _by_delta_names(metrics),
            info.get("userMetadata"),
            info.get("engineInfo"),
            parameters,
        )


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return *values* as ``DESCRIBE HISTORY`` shows them."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
        if value not in (None, "null")
    }


def _by_delta_names(metrics: Mapping[str, str]) -> dict[str, str]:
    """Return metrics by the names that Spark writes. delta-rs writes ``num_target_rows_updated``."""
    named = ((name.split("_"), value) for name, value in metrics.items())
    return {first + "".join(map(str.capitalize, others)): value for (first, *others), value in named}


def mark_of_rows(commits: Iterable[Commit]) -> str | None:
    """Return the mark of the rows of an append-only table: that of the newest commit that appended rows.

    Two tables with the same mark at the same version hold the same rows up to there: what was appended before that
    commit cannot differ. Commits of properties and of maintenance are passed over: their marks may repeat.

    Args:
        commits: Commits, newest first. Read lazily. Without a commit that appended rows the oldest one counts.

    Returns:
        None: there are no commits.
    """
    commit: Commit | None = None
    for commit in commits:
        if commit.operation in _APPENDS:
            break
    return None if commit is None else commit.mark


@dataclass(frozen=True)
class Metadata:
    """Id, description and properties of a table at its newest version."""

    id: str
    """Identity of the table. A table that is created again under the same name has another id. RESTORE keeps the id."""
    description: str
    properties: Mapping[str, str]
    version: int

    @staticmethod
    def of(action: Mapping[str, Any], version: int) -> Metadata:
        """Return the metadata of an action ``metaData``."""
        return Metadata(action["id"], action.get("description") or "", dict(action["configuration"]), version)


@dataclass(frozen=True)
class LogFolder:
    """The log of a table, read file by file."""

    folder: TableFolder

    def text(self, version: int) -> str | None:
        """I/O: returns the file of a commit. None: there is no such commit, or log clean-up removed its file."""
        content = self.folder.read(commit_name(version))
        return None if content is None else content.decode()

    def actions(self, version: int, naming: str = "") -> list[dict[str, Any]] | None:
        """I/O: returns the actions of a commit. None: there is no such commit, or log clean-up removed its file.

        Args:
            naming: Text that a line must contain. Other lines are skipped before they are parsed.
        """
        if (text := self.text(version)) is None:
            return None
        return [json.loads(line) for line in text.split("\n") if line and naming in line]  # U+2028 ends no line of JSON

    def checkpoint(self) -> int:
        """I/O: version of the newest checkpoint; -1: none. Log clean-up removes only older commits."""
        pointer = self.folder.read(f"{LOG}/_last_checkpoint")
        return -1 if pointer is None else int(json.loads(pointer)["version"])

    def metadata(self) -> Metadata | None:
        """I/O: metadata of the newest version. None: the files do not contain it."""
        newest, checkpoint = self.newest(), self.checkpoint()
        if newest < max(checkpoint, 0):  # the commit of the checkpoint is gone, and newer ones may be there
            return None
        for version in range(newest, checkpoint, -1):
            for action in self.actions(version, naming='"metaData"') or ():
                if (content := action.get("metaData")) is not None:
                    return Metadata.of(content, newest)
        try:
            parquet = pq.ParquetFile(self.folder.source(f"{LOG}/{checkpoint:020}.checkpoint.parquet"))
        except FileNotFoundError:  # no checkpoint, or one of several parts
            return None
        columns = [f"metaData.{field}" for field in ("id", "description", "configuration")]
        rows = parquet.read(columns=columns)["metaData"].drop_null().to_pylist()
        return Metadata.of(rows[0], newest) if rows else None

    def newest(self) -> int:
        """I/O: newest version; -1: the files do not tell."""
        return self.folder.newest(max(self.checkpoint(), 0))

    def commits_after(self, version: int, *, through: int | None = None) -> Iterator[Commit]:
        """I/O: yields the commits after *version*, newest first, as far as their files exist. Reads lazily.

        Args:
            through: Version of the first commit. None: the newest.
        """
        for number in range(self.newest() if through is None else through, version, -1):
            if (actions := self.actions(number, naming='"commitInfo"')) is None:
                return
            yield Commit.of_actions(number, actions)


def names_in_folder(folder: Path) -> list[str]:
    """I/O: names of the Delta tables in a *folder* of this machine, which may be missing."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return [
        entry.name
        for entry in entries
        if (log := entry / LOG).is_dir() and any(is_of_version(file.name) for file in log.iterdir())
    ]
