"""Give a table the protocol 1/4, so that delta-rs can write it: no liquid clustering. No Spark.

Delta offers no statement for this: it cannot drop the feature ``clustering``. Delta's protocol allows it, because a
table without clustering columns needs neither ``clustering`` nor ``domainMetadata``. Rows, versions and the change feed
stay, and Spark can still write the table. A table with another feature, such as column mapping, is refused.

A table that Spark made has writer version 7 and names its features. delta-rs 1.6.6 raises the *reader* version of such
a table to 2 when it sets a property. With 1/4 it does not.

Source: delta-io/delta, PROTOCOL.md: clustered tables, domain metadata.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from deltalake import DeltaTable

from pipelines.errors import ConfigurationError
from pipelines.io.log_commit import commit_info, put_commit
from pipelines.io.table_folder import TableFolder

PLAIN_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns"}
)
"""Writer features that delta-rs writes, and that protocol 1/4 has."""
_CLUSTERING: Final = frozenset({"clustering", "domainMetadata"})
_WRITER: Final = 4
_NO_COLUMNS: Final = json.dumps({"clusteringColumns": [], "domainName": "delta.clustering"})
_log = logging.getLogger("strandline.tables")


def make_plain(folder: TableFolder) -> None:
    """I/O: one commit that gives the table the protocol 1/4. None if it is not above that. Idempotent.

    Raises:
        ConfigurationError: The table has features that delta-rs does not write.
    """
    while not _is_plain(opened := folder.table()):
        features = features_of(opened)
        if unknown := features - PLAIN_FEATURES - _CLUSTERING:
            raise ConfigurationError(
                f"{folder.uri} has features that the native engine does not write ({', '.join(sorted(unknown))})",
                next_step="set capture.engine: spark",
            )
        is_clustered = bool(features & _CLUSTERING)
        if put_commit(folder, int(opened.version()) + 1, _actions(is_clustered)) and is_clustered:
            _log.info("%s: liquid clustering ended; strandline maintain sorts its files instead", folder.uri)


def _is_plain(opened: DeltaTable) -> bool:
    protocol = opened.protocol()
    return protocol.min_reader_version == 1 and protocol.min_writer_version <= _WRITER


def features_of(opened: DeltaTable) -> frozenset[str]:
    """Return the features of a table's protocol. An old protocol names none, and may mean column mapping."""
    protocol = opened.protocol()
    named = frozenset([*(protocol.reader_features or ()), *(protocol.writer_features or ())])
    may_be_mapped = protocol.min_reader_version == 2 or protocol.min_writer_version in (5, 6)
    return named | ({"columnMapping"} if may_be_mapped else set())


def _actions(is_clustered: bool) -> list[dict[str, Any]]:
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": _WRITER}}
    if not is_clustered:
        return [commit_info("UPGRADE PROTOCOL", {}), protocol]
    ended = {"domain": "delta.clustering", "configuration": _NO_COLUMNS, "removed": True}
    return [commit_info("DROP FEATURE", {"featureName": "clustering"}), protocol, {"domainMetadata": ended}]
