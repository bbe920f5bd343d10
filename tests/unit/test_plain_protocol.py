"""Reader features that a replacement of a whole table has left, and features that are still used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.plain_protocol import drop_reader_features

LEFT = ["columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "variantType"]
REPLACEMENT = "CREATE OR REPLACE TABLE AS SELECT"
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 40, "cardinality": 6}
REPLACED: dict[str, Any] = {"commitInfo": {"operation": REPLACEMENT}}
MERGED: dict[str, Any] = {"commitInfo": {"operation": "MERGE"}}
PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": LEFT,
        "writerFeatures": [*LEFT, "changeDataFeed"],
    }
}


def table(folder: Path, *commits: list[dict[str, Any]]) -> LocalFolder:
    """Return a table whose log ends with *commits*. Its protocol names the features `LEFT` from version 1 on."""
    write_deltalake(folder, pa.table({"n": [1]}))
    for version, actions in enumerate(([{"commitInfo": {"operation": "WRITE"}}, PROTOCOL], *commits), 1):
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        (folder / "_delta_log" / f"{version:020}.json").write_text(lines)
    return LocalFolder(folder)


def metadata(properties: dict[str, str], *columns: dict[str, Any]) -> dict[str, Any]:
    schema = json.dumps({"type": "struct", "fields": list(columns)})
    return {
        "metaData": {
            "id": "1",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": properties,
        }
    }


def column(kind: Any, **extra: Any) -> dict[str, Any]:
    return {"name": "n", "type": kind, "nullable": True, "metadata": extra}


def features(folder: LocalFolder) -> tuple[int, set[str]]:
    protocol = DeltaTable(folder.uri).protocol()
    return protocol.min_reader_version, set(protocol.reader_features or ())


def test_features_of_the_replaced_table_leave_the_protocol(tmp_path: Path) -> None:
    folder = table(tmp_path, [REPLACED], [MERGED])
    drop_reader_features(folder)
    assert features(folder) == (1, set())
    drop_reader_features(folder)
    assert folder.newest(0) == 4


@pytest.mark.parametrize(
    ("properties", "kept_column", "kept"),
    [
        ({"delta.enableDeletionVectors": "TRUE"}, column("long"), {"deletionVectors"}),
        ({"delta.enableTypeWidening": "true"}, column("long"), {"typeWidening"}),
        (
            {"delta.columnMapping.mode": "name"},
            column("long", **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "n"}),
            {"columnMapping", "timestampNtz"},
        ),
        ({}, column({"type": "array", "elementType": "timestamp_ntz", "containsNull": True}), {"timestampNtz"}),
        ({}, column("variant"), {"variantType"}),
        ({}, column("long", **{"delta.typeChanges": [{"fromType": "short", "toType": "long"}]}), {"typeWidening"}),
    ],
)
def test_a_feature_that_a_property_or_a_column_uses_stays(
    tmp_path: Path, properties: dict[str, str], kept_column: dict[str, Any], kept: set[str]
) -> None:
    folder = table(tmp_path, [REPLACED, metadata(properties, kept_column)])
    drop_reader_features(folder)
    assert features(folder) == (3, kept)


ADDED = {"add": {"path": "x", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}}


@pytest.mark.parametrize(
    "commits",
    [
        pytest.param([[MERGED]], id="not replaced since the features came"),
        pytest.param(
            [[REPLACED], [MERGED, {"add": {**ADDED["add"], "deletionVector": VECTOR}}]], id="vectors came later"
        ),
        pytest.param([[REPLACED], [MERGED, PROTOCOL]], id="protocol changed later"),
    ],
)
def test_without_a_replacement_as_the_cause_every_feature_stays(
    tmp_path: Path, commits: list[list[dict[str, Any]]]
) -> None:
    folder = table(tmp_path, *commits)
    drop_reader_features(folder)
    assert features(folder) == (3, set(LEFT))


def test_after_log_clean_up_every_feature_stays(tmp_path: Path) -> None:
    folder = table(tmp_path, [REPLACED], [MERGED])
    DeltaTable(folder.uri).create_checkpoint()
    folder.remove(f"_delta_log/{2:020}.json")
    drop_reader_features(folder)
    assert features(folder) == (3, set(LEFT))
