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

import pyarrow.compute as pc
from deltalake import DeltaTable

from strandline.errors import ConfigurationError
from strandline.io.delta_log.commits import REPLACEMENT, Commit, LogFolder
from strandline.io.delta_log.delta_rs_query import arrow_table
from strandline.io.delta_log.delta_types import has_type
from strandline.io.delta_log.log_commit import commit_info, put_commit
from strandline.io.delta_log.table_folder import TableFolder

PLAIN_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns"}
)
"""Writer features that delta-rs writes, and that protocol 1/4 has."""
CLUSTERING_FEATURES: Final = frozenset({"clustering", "domainMetadata"})
_WRITER: Final = 4
_NAMED_READER: Final = 3
_NAMED_WRITER: Final = 7
"""Versions of a protocol that names its features. There are no later ones."""
_ABSOLUTE: Final = r"^(/|[A-Za-z][A-Za-z0-9+.-]*:)"
"""Beginning of a path that is not relative to the table's folder."""
_MAPPED_FEATURES: Final = frozenset({"columnMapping", "timestampNtz"})
"""Reader features of a portable table with column mapping (`silver.compatibility`)."""
_ENABLED_BY: Final = {
    "deletionVectors": "delta.enableDeletionVectors",
    "typeWidening": "delta.enableTypeWidening",
}
_TYPES: Final = {"variantType": "variant", "timestampNtz": "timestamp_ntz"}
_WIDENED: Final = '"delta.typeChanges"'
"""Key in the metadata of a column whose type was widened: files may have the type before."""
_READER_FEATURES: Final = frozenset({*_ENABLED_BY, *_MAPPED_FEATURES, *_TYPES})
_NO_COLUMNS: Final = json.dumps({"clusteringColumns": [], "domainName": "delta.clustering"})
_log = logging.getLogger("strandline.tables")


def make_plain(folder: TableFolder) -> DeltaTable:
    """I/O: one commit that gives the table the protocol 1/4. None if it is not above that. Idempotent.

    Returns the newest version of the table, opened.

    Raises:
        ConfigurationError: The table has features that delta-rs does not write.
    """
    while not is_plain(table := folder.table()):
        features = features_of(table)
        if unknown := features - PLAIN_FEATURES - CLUSTERING_FEATURES:
            raise ConfigurationError(
                f"{folder.uri} has features that the native engine does not write ({', '.join(sorted(unknown))})",
                next_step="set capture.engine: spark",
            )
        is_clustered = bool(features & CLUSTERING_FEATURES)
        if put_commit(folder, int(table.version()) + 1, _actions(is_clustered)) and is_clustered:
            _log.info("%s: liquid clustering ended; strandline maintain sorts its files instead", folder.uri)
    return table


def drop_reader_features(folder: TableFolder) -> None:
    """I/O: one commit without the reader features that the last replacement of the whole table has left. Idempotent.

    Spark's ``CREATE OR REPLACE TABLE`` keeps the features of the replaced content. Delta's DROP FEATURE knows no
    VARIANT, and leaves another feature. Older versions of the table keep their own protocol.

    No commit if the log does not show the replacement, or if the protocol changed after it. A feature that a file, a
    column or a property uses stays.
    """
    while True:
        table = folder.table()
        left = (features_of(table) & _READER_FEATURES) - _used_features(table)
        if not left or not _was_replaced(LogFolder(folder), int(table.version())):
            return
        protocol = table.protocol()
        reader = frozenset(protocol.reader_features or ()) - left
        following: dict[str, Any] = {
            "minWriterVersion": _NAMED_WRITER,
            "writerFeatures": sorted(features_of(table) - left),
        }
        following |= (
            {"minReaderVersion": _NAMED_READER, "readerFeatures": sorted(reader)} if reader else {"minReaderVersion": 1}
        )
        info = commit_info("DROP FEATURE", {"featureName": ", ".join(sorted(left))})
        if put_commit(folder, int(table.version()) + 1, [info, {"protocol": following}]):
            return


def _used_features(table: DeltaTable) -> frozenset[str]:
    """Return the reader features that a column or a property of the table uses."""
    configuration = table.metadata().configuration
    used = {name for name, key in _ENABLED_BY.items() if configuration.get(key, "").lower() == "true"}
    used |= {name for name, kind in _TYPES.items() if has_type(table, kind)}
    used |= {"typeWidening"} if _WIDENED in table.schema().to_json() else set()
    is_mapped = configuration.get("delta.columnMapping.mode", "none") != "none"
    return frozenset(used) | (_MAPPED_FEATURES if is_mapped else frozenset())


def _was_replaced(log: LogFolder, version: int) -> bool:
    """I/O: returns True if the log up to *version* shows that files without deletion vectors replaced the whole table.

    False: the protocol changed since then, a file has a deletion vector, or log clean-up removed the commit.
    """
    for number in range(version, -1, -1):
        actions = log.actions(number)
        if actions is None or any((action.get("add") or {}).get("deletionVector") for action in actions):
            return False
        if Commit.of_actions(number, actions).operation == REPLACEMENT:
            return True
        if any("protocol" in action for action in actions):
            return False
    return False


def is_plain(table: DeltaTable) -> bool:
    """Return True if an opened table has a protocol that delta-rs writes: 1/4 or below."""
    protocol = table.protocol()
    return protocol.min_reader_version == 1 and protocol.min_writer_version <= _WRITER


def features_of(table: DeltaTable) -> frozenset[str]:
    """Return what a reader and a writer of the table must know: the features of its protocol, and words of our own.

    An old protocol names no features, and may mean column mapping. A newer one than this module knows, and files
    outside the table's folder, as in a shallow clone, are features without a name in the protocol.
    """
    protocol = table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if protocol.min_reader_version == 2 or protocol.min_writer_version in (5, 6):
        features.add("columnMapping")
    if protocol.min_reader_version > _NAMED_READER or protocol.min_writer_version > _NAMED_WRITER:
        features.add(f"writer version {protocol.min_writer_version}")
    paths = arrow_table(table.get_add_actions(flatten=True))["path"]
    if pc.any(pc.match_substring_regex(paths, _ABSOLUTE)).as_py():
        features.add("files of another table")
    return frozenset(features)


def _actions(is_clustered: bool) -> list[dict[str, Any]]:
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": _WRITER}}
    if not is_clustered:
        return [commit_info("UPGRADE PROTOCOL", {}), protocol]
    ended = {"domain": "delta.clustering", "configuration": _NO_COLUMNS, "removed": True}
    return [commit_info("DROP FEATURE", {"featureName": "clustering"}), protocol, {"domainMetadata": ended}]
