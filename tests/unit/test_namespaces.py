"""Drops and renames: events, incarnations, and the affected tables."""

from __future__ import annotations

import itertools
import uuid

import bson
import pytest
from bson.binary import Binary
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from strandline.jobs.capture.renamed_collections import unseen_renames
from strandline.model.lives import Lives
from strandline.model.namespaces import Namespace, NamespaceEvent, namespace_event
from strandline.model.position import cluster_time_hex
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.incarnations import Arrival, Incarnations, arrivals_at
from strandline.source.stages import Selection

OLD, NEW, TARGET = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)
A, B = Namespace("db", "a"), Namespace("db", "b")


def encoded(kind: str, **fields: object) -> bytes:
    return bson.encode({"_id": {"_data": "82"}, "operationType": kind, "ns": {"db": "db", "coll": "a"}, **fields})


def test_drops_and_renames_are_read_with_the_collections_that_they_name() -> None:
    known = {"collectionUUID": Binary.from_uuid(OLD)}
    to = {"db": "db", "coll": "b"}
    description = {"to": to, "dropTarget": Binary.from_uuid(TARGET)}
    assert namespace_event("p", encoded("drop", **known)) == NamespaceEvent("p", A, OLD.hex)
    assert namespace_event("p", encoded("rename", **known, to=to)) == NamespaceEvent("p", A, OLD.hex, B)
    replacing = encoded("rename", **known, to=to, operationDescription=description)
    assert namespace_event("p", replacing) == NamespaceEvent("p", A, OLD.hex, B, TARGET.hex)
    assert namespace_event("p", encoded("rename", to=to)) == NamespaceEvent("p", A, None, B), "before 6.0"
    assert namespace_event("p", encoded("create", **known)) == NamespaceEvent("p", A, OLD.hex, is_creation=True)
    assert namespace_event("p", encoded("create")) is None, "E11: a view or a time series"
    for other in ("insert", "modify", "createIndexes"):
        assert namespace_event("p", encoded(other, **known)) is None
    assert namespace_event("p", bson.encode({"operationType": "invalidate"})) is None


@pytest.mark.parametrize(
    ("name", "temporary", "unseen"),
    [
        ("tmp.agg_out.192b6685-ae83-48dd-8e61-7f2036ea3f2b", True, False),
        ("tmpvwIVb.renameCollection", True, False),
        ("tmpjTxiS.convertToCapped.orders", True, True),
        ("tmp.agg_output", False, False),
        ("tmporders", False, False),
        ("a.tmp.agg_out.1", False, False),
        ("orders.convertToCapped.x", False, False),
    ],
)
def test_collections_that_the_server_fills_only_to_rename_them(name: str, temporary: bool, unseen: bool) -> None:
    assert (Namespace("db", name).is_temporary, Namespace("db", name).is_filled_unseen) == (temporary, unseen)


@pytest.mark.parametrize(
    ("database", "collection", "internal"),
    [
        *(("__mdb_internal_search", "indexes", True), ("db", "enxcol_.a.esc", True), ("db", "system.views", True)),
        *(("db", "enxcol", False), ("mdb_internal_search", "a", False)),
    ],
)
def test_state_of_the_servers_features_becomes_no_table(database: str, collection: str, internal: bool) -> None:
    name = Namespace(database, collection)
    assert Selection("deployment").admits(*name) is not internal
    increment = BronzeIncrement(0, {name: {"u1": "05"}})
    assert increment.affected_namespaces({}, set(), lambda *_: True) == (set() if internal else {name})


HISTORY = [
    NamespaceEvent("10", A, "u1"),
    NamespaceEvent("20", A, "u2", B, "u3"),
    NamespaceEvent("30", B, "u2", A),
    NamespaceEvent("40", A, "u2"),
    NamespaceEvent("50", A, None),
]


# scenario: D06, H03: any order and any repetition
def test_lives_are_the_same_in_every_order_of_events() -> None:
    for order in itertools.permutations(HISTORY):
        known = Incarnations()
        for event in (*order, order[0]):
            known = known.after([event], A, {})
        assert known.lives == Lives(("10", "20", "30", "40", "50"), frozenset({"10", "20", "40", "50"}))
    for namespace, drops, renames, ends in [
        (B, True, True, {"20", "30"}),
        (A, False, False, set[str]()),
        (B, True, False, {"20"}),
        (A, True, False, {"10", "40", "50"}),
    ]:
        found = Incarnations(drops=drops, renames=renames).after(HISTORY, namespace, {})
        assert found.lives.ends == ends


def test_only_the_newest_name_events_are_kept() -> None:
    drops = [NamespaceEvent(f"{number:03}", A, f"u{number}") for number in range(100)]
    known = Incarnations().after(drops, A, {f"u{number}": f"{number:03}" for number in range(100)})
    kept = Incarnations.from_json(known.to_json())
    assert kept.lives.boundaries == known.lives.boundaries[60:]
    assert len(kept.seen) == 40
    assert known.new_ends(kept) == list(known.lives.boundaries[:60])
    assert Incarnations.from_json(None) == Incarnations()


# scenario: H03
def test_a_rename_brings_the_rows_of_every_name_that_the_collection_had() -> None:
    staging, orders, other = (Namespace("db", name) for name in ("staging", "orders", "other"))
    events = [
        NamespaceEvent("10", orders, "u0"),
        NamespaceEvent("20", staging, "u1", orders),
        NamespaceEvent("30", orders, "u2", other),  # moved to u2 in between, without an event
        NamespaceEvent("40", orders, "u3"),
    ]
    seen = {staging: {"u1": "12"}, orders: {"u0": "05", "u1": "22", "u3": "35"}}
    for order in itertools.permutations(events):
        found = arrivals_at([events[2]], order, seen)
        assert found == [Arrival("30", orders, "20", "30"), Arrival("30", staging, "", "20")]
    assert arrivals_at([], events, seen) == []


def affected_namespaces(increment: BronzeIncrement, known: set[Namespace], *, captured: str = "ab") -> set[str]:
    found = increment.affected_namespaces(increment.renamed_from({}), known, lambda _db, name: name in captured)
    return {name.collection for name in found}


def test_changes_drops_and_renames_affect_the_tables_of_their_names() -> None:
    drop, rename = NamespaceEvent("10", A, "u1"), NamespaceEvent("20", A, "u1", B)
    assert affected_namespaces(BronzeIncrement(0, {A: {"u1": "05"}}), set()) == {"a"}
    assert affected_namespaces(BronzeIncrement(0, {}, (drop,)), {A}) == {"a"}
    assert affected_namespaces(BronzeIncrement(0, {}, (drop,)), set()) == set(), "a drop makes no table"
    assert affected_namespaces(BronzeIncrement(0, {}, (rename,)), {A}) == {"a", "b"}
    assert affected_namespaces(BronzeIncrement(0, {}, (rename,)), {A}, captured="a") == {"a"}, (
        "renamed out of what is captured"
    )
    out = Namespace("db", "tmp.agg_out.1")
    assert affected_namespaces(
        BronzeIncrement(0, {out: {"u4": "25"}}, (NamespaceEvent("30", out, "u4", A, "u1"),)), {A}
    ) == {"a"}


# scenario: H03: a chunk that was read under the old name lands after the rename
def test_late_rows_of_a_renamed_collection_concern_the_table_of_its_new_name() -> None:
    renamed = BronzeIncrement(0, {}, (NamespaceEvent("20", A, "u1", B),)).renamed_from({})
    assert renamed == {B: {A: "20"}}

    def affected(first: str) -> set[Namespace]:
        return BronzeIncrement(5, {A: {"u1": first}}).affected_namespaces(renamed, {A, B}, lambda *_: True)

    assert affected("19") == {A, B}
    assert affected("21") == {A}, "another collection has the name now"
    back = BronzeIncrement(5, {}, (NamespaceEvent("30", B, "u1", A),)).renamed_from(renamed)
    assert back == {A: {A: "20", B: "30"}}


# scenario: H07
def test_renames_of_what_no_event_has_shown() -> None:
    def seen(selection: Selection, source: str, **fields: object) -> bool:
        event = encoded("rename", ns={"db": "db", "coll": source}, to={"db": "db", "coll": "b"}, **fields)
        return unseen_renames([encoded("insert"), event], selection) == []

    known = {"collectionUUID": Binary.from_uuid(OLD)}
    everything, one = Selection("database", "db"), Selection("collection", "db", "b")
    assert seen(everything, "a", **known)
    assert seen(everything, "tmp.agg_out.1", **known)
    assert not seen(everything, "tmpjTxiS.convertToCapped.b", **known)
    assert not seen(everything, "a"), "before 6.0 nobody knows what it was"
    assert not seen(one, "tmp.agg_out.1", **known)
    assert not seen(Selection("database", "db", collections=(r"db\.b",)), "a", **known)
    assert seen(Selection("database", "db", collections=(r"db\.a",)), "x", **known), "onto what is not captured"


@pytest.mark.parametrize(("source", "to"), [("system.buckets.b", "b"), ("b", "system.buckets.b")], ids=["E6", "E7"])
def test_a_time_series_that_an_upgrade_renames_is_no_captured_collection(source: str, to: str) -> None:
    to_name = {"db": "db", "coll": to}
    event = encoded(
        "rename",
        ns={"db": "db", "coll": source},
        to=to_name,
        collectionUUID=Binary.from_uuid(OLD),
        operationDescription={"to": to_name},
        clusterTime=Timestamp(7, 1),
    )
    assert namespace_event("p", event) is None
    assert unseen_renames([event], Selection("database", "db")) == []
    assert unseen_renames([event], Selection("deployment")) == []


# scenario: G14
def test_renames_of_what_only_the_filters_of_an_earlier_run_left_out() -> None:
    now, before = Selection("database", "db"), Selection("database", "db", excluded_collections=(r"db\.staging",))
    event = encoded(
        "rename",
        ns={"db": "db", "coll": "staging"},
        to={"db": "db", "coll": "orders"},
        collectionUUID=Binary.from_uuid(OLD),
        clusterTime=Timestamp(7, 1),
    )

    def unseen(until: str) -> list[str]:
        found = unseen_renames([event], now, lambda at: [before] if at <= until else [])
        return [str(rename.to) for rename in found]

    assert unseen(cluster_time_hex(7, 1)) == ["db.orders"]
    assert unseen(cluster_time_hex(7, 0)) == [], "a rename after the filters changed"
    assert unseen_renames([event], now) == []


def event_of(kind: str, uuid_: uuid.UUID, increment: int) -> bytes:
    ns, own = {"db": "db", "coll": "a"}, Binary.from_uuid(uuid_)
    return encoded(kind, ns=ns, collectionUUID=own, clusterTime=Timestamp(101, increment))


@pytest.mark.parametrize(
    "provenance", ["reshardCollection", "moveCollection", "unshardCollection", "rewriteCollection"]
)
def test_a_collection_that_8_0_moves_is_read_again(provenance: str) -> None:
    """E5."""
    description = {"shardKey": {"_id": 1}, "oldShardKey": {"_id": 1}, "unique": False, "provenance": provenance}
    own = {"collectionUUID": Binary.from_uuid(OLD), "operationDescription": description}
    (found,) = unseen_renames([encoded("reshardCollection", **own)], Selection("database", "db"))
    assert (found.to, found.uuid) == (A, None)


def test_a_moved_collection_is_read_as_a_rename_to_the_same_name() -> None:
    event = encoded("reshardCollection", ns={"db": "db", "coll": "a"}, collectionUUID=Binary.from_uuid(OLD))
    (found,) = unseen_renames([event], Selection("database", "db"))
    assert (found.to, found.uuid) == (A, None), "it is looked for by its name: it has another UUID now"
    assert unseen_renames([event], Selection("database", "db", collections=(r"db\.b",))) == []
    moved = [event_of("create", NEW, 1), event_of("drop", OLD, 2)]  # E1, E2
    (found,) = unseen_renames(moved, Selection("database", "db"))
    assert (found.to, found.uuid) == (A, None)
    recreated = [event_of("drop", OLD, 1), event_of("create", NEW, 2), event_of("drop", NEW, 3)]
    assert unseen_renames(recreated, Selection("database", "db")) == []
    stored = encoded("insert", fullDocument=RawBSONDocument(event))
    assert unseen_renames([stored], Selection("database", "db")) == [], "a document that holds such an event"
