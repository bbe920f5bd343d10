"""A lake whose clock is moved: a copy without commits for some days, and Delta's own clean-up of expired log files.

Delta takes the age of a version from the time of its log file, and VACUUM takes the age of a data file from the time
of that file. So moved times are enough.
Delta caches the state of a table by path: the copy has a path that the session has never read.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

_DAY: Final = 86_400
_TIMES: Final = (
    ("commitInfo", "timestamp"),
    ("txn", "lastUpdated"),
    ("add", "modificationTime"),
    ("remove", "deletionTimestamp"),
)
"""Actions of a log file, and the field of each that holds a time in ms."""


def idle_copy(lake: Path, copy: Path, *, days: float) -> Path:
    """I/O: *copy* is the lake as it stood *days* ago, and nobody has touched it since. Returns *copy*."""
    shutil.copytree(lake, copy)
    for log in logs_of(copy):
        for sums in log.glob("*.crc"):
            sums.unlink()  # over what is rewritten below; Delta and Hadoop do without them
    for file in (file for file in copy.rglob("*") if file.is_file()):
        moved = file.stat().st_mtime - days * _DAY
        if file.parent.name == "_delta_log" and file.suffix == ".json":
            _move_times(file, days)
        os.utime(file, (moved, moved))
    return copy


def clean_up_logs(spark: SparkSession, lake: Path) -> None:
    """I/O: writes a checkpoint per table, then lets Delta remove log files beyond ``delta.logRetentionDuration``."""
    logs = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]  # why: only the JVM has it; Connect has no JVM
    for log in logs_of(lake):
        logs.forTable(spark._jsparkSession, str(log.parent)).checkpoint()


def logs_of(lake: Path) -> Iterator[Path]:
    """The ``_delta_log`` of every table."""
    return lake.rglob("_delta_log")


def _move_times(file: Path, days: float) -> None:
    actions: list[dict[str, Any]] = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line]
    for action in actions:
        for kind, field in _TIMES:
            if field in (content := action.get(kind, {})):
                content[field] -= int(days * _DAY * 1000)
    file.write_text("".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions), "utf-8")
