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

from strandline.errors import ConfigurationError
from strandline.io.delta_types import has_type
from strandline.io.log_commit import commit_info, put_commit
from strandline.io.table_folder import TableFolder

PLAIN_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns"}
)
"""Writer features that delta-rs writes, and that protocol 1/4 has."""
CLUSTERING_FEATURES: Final = frozenset({"clustering", "domainMetadata"})
_WRITER: Final = 4
_NAMED_READER: Final = 3
"""Reader version of a protocol that names its features."""
_MAPPED_FEATURES: Final = frozenset({"columnMapping", "timestampNtz"})
"""Reader features of a portable table with column mapping (`silver.compatibility`)."""
_ENABLED_BY: Final = {
    "deletionVectors": "delta.enableDeletionVectors",
    "typeWidening": "delta.enableTypeWidening",
}
_READER_FEATURES: Final = frozenset({*_ENABLED_BY, *_MAPPED_FEATURES, "variantType"})
_NO_COLUMNS: Final = json.dumps({"clusteringColumns": [], "domainName": "delta.clustering"})
_log = logging.getLogger("strandline.tables")


def make_plain(folder: TableFolder) -> None:
    """I/O: one commit that gives the table the protocol 1/4. None if it is not above that. Idempotent.

    Raises:
        ConfigurationError: The table has features that delta-rs does not write.
    """
    while not _is_plain(opened := folder.table()):
        features = features_of(opened)
        if unknown := features - PLAIN_FEATURES - CLUSTERING_FEATURES:
            raise ConfigurationError(
                f"{folder.uri} has features that the native engine does not write ({', '.join(sorted(unknown))})",
                next_step="set capture.engine: spark",
            )
        is_clustered = bool(features & CLUSTERING_FEATURES)
        if put_commit(folder, int(opened.version()) + 1, _actions(is_clustered)) and is_clustered:
            _log.info("%s: liquid clustering ended; strandline maintain sorts its files instead", folder.uri)


def drop_reader_features(folder: TableFolder) -> None:
    """I/O: one commit without reader features that the table no longer uses. None if it names none. Idempotent.

    Spark's ``CREATE OR REPLACE TABLE`` keeps the features of the replaced content. Delta's DROP FEATURE knows no
    VARIANT, and leaves another feature. Older versions of the table keep their own protocol.

    Args:
        folder: Files of the table. All of its data files were written without deletion vectors.

    Raises:
        ConfigurationError: The table still uses such a feature.
    """
    while True:
        opened = folder.table()
        protocol, configuration, features = opened.protocol(), opened.metadata().configuration, features_of(opened)
        is_mapped = configuration.get("delta.columnMapping.mode", "none") != "none"
        needed = _MAPPED_FEATURES if is_mapped else frozenset[str]()
        is_named = not is_mapped or protocol.min_reader_version >= _NAMED_READER
        if is_named and features & _READER_FEATURES <= needed:
            return
        used = {name for name, key in _ENABLED_BY.items() if configuration.get(key) == "true"}
        used |= {"variantType"} if has_type(opened, "variant") else set()
        if used:
            raise ConfigurationError(
                f"{folder.uri} still uses {', '.join(sorted(used))}", next_step="report this as a defect"
            )
        reader = (frozenset(protocol.reader_features or ()) - _READER_FEATURES) | needed
        kept = (features - _READER_FEATURES) | needed
        following: dict[str, Any] = {"minWriterVersion": 7, "writerFeatures": sorted(kept)}
        following |= (
            {"minReaderVersion": _NAMED_READER, "readerFeatures": sorted(reader)} if reader else {"minReaderVersion": 1}
        )
        info = commit_info("DROP FEATURE", {"featureName": ", ".join(sorted(features - kept))})
        put_commit(folder, int(opened.version()) + 1, [info, {"protocol": following}])


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
