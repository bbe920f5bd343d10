"""End liquid clustering of a table in a folder, so that delta-rs can write it. No Spark.

Delta offers no statement for this: it cannot drop the feature ``clustering``. The protocol allows it, because a table
without clustering columns needs neither ``clustering`` nor ``domainMetadata``. Readers, versions and the change feed
are not affected, and Spark continues to write the table.

Source: delta-io/delta, PROTOCOL.md: clustered tables, domain metadata.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable

from pipelines import __version__
from pipelines.errors import ConfigurationError
from pipelines.io.log_commit import put_commit

PLAIN_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns"}
)
"""Writer features that delta-rs writes, and that protocol 1/4 has."""
_CLUSTERING: Final = frozenset({"clustering", "domainMetadata"})
_NO_COLUMNS: Final = json.dumps({"clusteringColumns": [], "domainName": "delta.clustering"})
_log = logging.getLogger("strandline.tables")


def make_plain(folder: Path) -> None:
    """I/O: one commit that ends liquid clustering. None if the table is not clustered. Idempotent.

    Raises:
        ConfigurationError: The table has other features that delta-rs does not write.
    """
    while features := features_of(opened := DeltaTable(str(folder))) - PLAIN_FEATURES:
        if unknown := features - _CLUSTERING:
            raise ConfigurationError(
                f"{folder} has features that the native engine does not write ({', '.join(sorted(unknown))})",
                next_step="set capture.engine: spark",
            )
        if put_commit(folder / "_delta_log", int(opened.version()) + 1, _actions()):
            _log.info("%s: liquid clustering ended; strandline maintain sorts its files instead", folder)


def features_of(opened: DeltaTable) -> frozenset[str]:
    """Return the features of a table's protocol. An old protocol names none, and may mean column mapping."""
    protocol = opened.protocol()
    named = frozenset([*(protocol.reader_features or ()), *(protocol.writer_features or ())])
    may_be_mapped = protocol.min_reader_version == 2 or protocol.min_writer_version in (5, 6)
    return named | ({"columnMapping"} if may_be_mapped else set())


def _actions() -> list[dict[str, Any]]:
    info = {
        "timestamp": time.time_ns() // 1_000_000,
        "operation": "DROP FEATURE",
        "operationParameters": {"featureName": "clustering"},
        "isBlindAppend": False,
        "operationMetrics": {},
        "engineInfo": f"strandline/{__version__}",
    }
    ended = {"domain": "delta.clustering", "configuration": _NO_COLUMNS, "removed": True}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 4}
    return [{"commitInfo": info}, {"protocol": protocol}, {"domainMetadata": ended}]
