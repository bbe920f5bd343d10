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
from strandline.model.namespaces import Namespace, NamespaceEvent, namespace_event
from strandline.model.position import cluster_time_hex
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.incarnations import IncarnationEnds, Incarnations
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
    for other in ("insert", "create", "modify", "createIndexes"):
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


HISTORY = [
    NamespaceEvent("10", A, "u1"),
    NamespaceEvent("20", A, "u2", B, "u3"),
    NamespaceEvent("30", B, "u2", A),
    NamespaceEvent("40", A, "u2"),
    NamespaceEvent("50", A, None),
]


# scenario: D06, H03: any order and any repetition
def test_lives_are_known_whatever_the_order_of_the_events() -> None:
    for order in itertools.permutations(HISTORY):
        lives = Incarnations()
        for event in (*order, order[0]):
            lives = lives.after([event], A, drops=True, renames=True)
        assert lives == Incarnations({"u2": "30"}, {"u1": "10", "u2": "40", "": "50"})
    assert Incarnations().after(HISTORY, B, drops=True, renames=True) == Incarnations(
        {"u2": "20"}, {"u2": "30", "u3": "20"}
    )
    assert Incarnations().after(HISTORY, A, drops=False, renames=False) == Incarnations({"u2": "30"}, {})
    assert Incarnations().after(HISTORY, B, drops=True, renames=False) == Incarnations({"u2": "20"}, {"u3": "20"})


def test_the_newest_lives_are_kept() -> None:
    lives = Incarnations({}, {f"u{n}": f"{n:03}" for n in range(100)})
    kept = Incarnations.from_json(lives.to_json())
    assert len(kept.ended_at) < 50
    assert kept.ended_at["u99"] == "099"
    assert lives.newer_than(kept).ended_at.keys() == lives.ended_at.keys() - kept.ended_at.keys()
    assert Incarnations.from_json(None) == Incarnations()


def affected_namespaces(increment: BronzeIncrement, known: set[Namespace], *, captured: str = "ab") -> set[str]:
    found = increment.affected_namespaces(increment.current_names({}), known, lambda _db, name: name in captured)
    return {name.collection for name in found}


def test_a_run_uses_all_ends_of_a_name_and_stores_the_newest() -> None:
    """As a history does that is filled anew: $out has replaced the collection each night."""
    drops = [NamespaceEvent(f"{number:02}", A, f"u{number}") for number in range(30)]
    ends = IncarnationEnds().after(drops, A, drops=True, renames=True)
    assert ends.first_after("00", "u3") == "03"
    assert [end for end, _ in IncarnationEnds.from_json(ends.to_json()).known] == [f"{n:02}" for n in range(10, 30)]


def test_tables_that_are_concerned() -> None:
    drop, rename = NamespaceEvent("10", A, "u1"), NamespaceEvent("20", A, "u1", B)
    assert affected_namespaces(BronzeIncrement(0, {A: frozenset({"u1"})}), set()) == {"a"}
    assert affected_namespaces(BronzeIncrement(0, {}, (drop,)), {A}) == {"a"}
    assert affected_namespaces(BronzeIncrement(0, {}, (drop,)), set()) == set(), "a drop makes no table"
    assert affected_namespaces(BronzeIncrement(0, {}, (rename,)), {A}) == {"a", "b"}
    assert affected_namespaces(BronzeIncrement(0, {}, (rename,)), {A}, captured="a") == {"a"}, (
        "renamed out of what is captured"
    )
    out = Namespace("db", "tmp.agg_out.1")
    assert affected_namespaces(
        BronzeIncrement(0, {out: frozenset({"u4"})}, (NamespaceEvent("30", out, "u4", A, "u1"),)), {A}
    ) == {"a"}


# scenario: H03: a chunk that was read under the old name lands after the rename
def test_late_rows_of_a_renamed_collection_concern_the_table_of_its_new_name() -> None:
    rename = NamespaceEvent("20", A, "u1", B)
    moved = BronzeIncrement(0, {}, (rename,)).current_names({})
    assert moved == {"u1": B}
    assert BronzeIncrement(5, {A: frozenset({"u1"})}).affected_namespaces(moved, {A, B}, lambda *_: True) == {A, B}
    assert BronzeIncrement(5, {}, (NamespaceEvent("30", B, "u1"),)).current_names(moved) == {}
    assert BronzeIncrement(5, {}, (NamespaceEvent("30", A, "u9", B, "u1"),)).current_names(moved) == {"u9": B}


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


def test_a_resharding_is_read_as_a_rename_to_the_same_name() -> None:
    event = encoded("reshardCollection", ns={"db": "db", "coll": "a"}, collectionUUID=Binary.from_uuid(OLD))
    (found,) = unseen_renames([event], Selection("database", "db"))
    assert (found.to, found.uuid) == (A, None), "it is looked for by its name: it has another UUID now"
    assert unseen_renames([event], Selection("database", "db", collections=(r"db\.b",))) == []
    stored = encoded("insert", fullDocument=RawBSONDocument(event))
    assert unseen_renames([stored], Selection("database", "db")) == [], "a document that holds such an event"
