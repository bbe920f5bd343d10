"""Events and replies of MongoDB 7.0 to 9.0, as the servers' sources describe them. No such server was run."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import bson
import pytest
from bson import Timestamp
from bson.binary import Binary

from strandline.bronze.envelope import Batch, BatchEnd, Stamp, stream_table
from strandline.model.lives import Lives
from strandline.model.namespaces import Namespace, NamespaceEvent
from strandline.silver.decode.document import document_in, patch_in
from strandline.silver.fold.patches import fold_pending
from strandline.silver.fold.step import Base
from strandline.silver.incarnations import Incarnations
from strandline.source.batch_builder import BatchBuilder
from strandline.source.client import has_snapshot_reads, version_numbers

NEW = Binary.from_uuid(uuid.UUID(int=6))
NS = {"db": "shop", "coll": "a"}
AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SESSION = {"lsid": {"id": NEW, "uid": b"u"}, "txnNumber": bson.Int64(7)}


def event(kind: str, number: int, seconds: int = 101, **fields: Any) -> bytes:
    token = f"82{seconds:08X}{1:08X}2B042C0100296E{number:04X}"
    return bson.encode(
        {"_id": {"_data": token}, "operationType": kind, "clusterTime": Timestamp(seconds, 1), "wallTime": AT, **fields}
    )


def rows(*events: bytes) -> list[dict[str, Any]]:
    batch = Batch(1, events, BatchEnd('{"_data": "82FF"}', None), Stamp("shop", "run", 0), stored_json=False)
    return stream_table(batch).to_pylist()


def test_the_end_of_a_transaction_has_no_namespace() -> None:
    """E8."""
    (row,) = rows(event("endOfTransaction", 1, **SESSION, operationDescription=SESSION))
    assert (row["op"], row["db"], row["collection_uuid"], row["key"]) == ("ddl", None, None, None)
    assert row["source"]["txn_number"] == 7


def test_an_insert_with_a_commit_timestamp_is_an_insert() -> None:
    """E9: 8.2.0."""
    more = {"collectionUUID": NEW, "fullDocument": {"_id": 1}, "ns": NS, "documentKey": {"_id": 1}}
    (row,) = rows(event("insert", 1, **SESSION, commitTimestamp=Timestamp(101, 2), **more))
    assert (row["op"], row["key"], row["db"], row["collection"]) == ("c", "1", "shop", "a")
    assert (row["collection_uuid"], row["document_size"]) == (NEW.hex(), len(bson.encode({"_id": 1})))


def test_events_of_one_cluster_time_without_a_session_may_be_cut_and_have_own_positions() -> None:
    """E10: one insertMany of 8.0 is one entry of the oplog."""
    found = [event("insert", n, ns=NS, collectionUUID=NEW, documentKey={"_id": n}) for n in range(3)]
    builder = BatchBuilder((), max_events=2, max_bytes=1 << 20)
    assert [builder.add(each) for each in found[:2]] == [True, True]
    assert builder.can_close(due=False)
    positions = [row["position"] for row in (*rows(*found[:2]), *rows(found[2]))]
    assert positions == sorted(set(positions))


def test_the_creation_of_a_view_and_a_reshard_begin_end_no_life() -> None:
    """E11."""
    view = {"viewOn": "system.buckets.w", "pipeline": []}
    created, begun = rows(
        event("create", 1, ns=NS, operationDescription=view, nsType="timeseries"),
        event("reshardBegin", 2, ns=NS, collectionUUID=NEW, reshardingUUID=NEW),
    )
    assert (created["op"], created["collection_uuid"], begun["op"]) == ("ddl", None, "ddl")


def test_an_update_whose_lookup_found_nothing_is_folded() -> None:
    """E13: the shard key changed."""
    patch = {"updatedFields": {"v": 2}, "removedFields": [], "truncatedArrays": [], "disambiguatedPaths": {}}
    raw = event("update", 1, ns=NS, documentKey={"_id": 1}, fullDocument=None, updateDescription=patch)
    (row,) = rows(raw)
    assert (row["document_size"], document_in("u", raw)) == (None, None)
    base = Base("1", bson.encode({"_id": 1, "v": 1}))
    folded = fold_pending(base, {"2": patch_in(raw)}).base
    assert folded is not None
    assert bson.decode(folded.document) == {"_id": 1, "v": 2}


def test_a_false_drop_of_8_0_0_ends_nothing_if_the_collection_has_another_uuid() -> None:
    """SERVER-97044: a drop during a resharding with zones."""
    name = Namespace("shop", "a")
    events = [NamespaceEvent("101", name, "06", is_creation=True), NamespaceEvent("102", name, "01")]
    assert Incarnations().after(events, name, {"01": "050"}).lives == Lives()


@pytest.mark.parametrize(
    ("version", "numbers", "capped"),
    [
        *(("6.0.27", (6, 0, 27), False), ("7.0.31", (7, 0, 31), False), ("8.0.20", (8, 0, 20), True)),
        *(("8.2.6", (8, 2, 6), True), ("8.3.2", (8, 3, 2), True)),
        *(("9.0.4", (9, 0, 4), True), ("9.1.0-rc0", (9, 1, 0), True)),
    ],
    ids="R7 {}".format,
)
def test_versions_are_read_and_capped_collections_have_a_past_since_8(
    version: str, numbers: tuple[int, ...], capped: bool
) -> None:
    assert version_numbers(version) == numbers
    assert has_snapshot_reads(version)
    assert has_snapshot_reads(version, capped=True) is capped
