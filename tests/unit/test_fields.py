"""Field rules on raw BSON, for every place of a field in a change event."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from hashlib import sha256
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import ConfigurationError
from strandline.model.bson.raw import MalformedBson
from strandline.model.field_rules import FieldPolicy, parse_field_rules
from strandline.source.fields import FieldRewriter, FieldRules

SALT = b"a pinch of salt"
SECRET = "s3cr3t-value"


def policy(**lists: Any) -> FieldPolicy:
    rules, problems = parse_field_rules(**lists)
    assert problems == []
    return FieldPolicy(rules, SALT)


def excluding(*paths: str) -> FieldRules:
    return FieldRules(policy(exclude=[f"shop.people.{path}" for path in paths]))


def document(rules: FieldRules, content: Any) -> Any:
    return bson.decode(rules.rewrite_document(bson.encode(content)))


def event(rules: FieldRules, **content: Any) -> Any:
    whole = {
        "_id": {"_data": "82AB"},
        "operationType": "update",
        "ns": {"db": "shop", "coll": "people"},
        "documentKey": {"_id": 1},
    }
    return bson.decode(rules.rewrite_event(bson.encode(whole | content)))


def update(rules: FieldRules, **description: Any) -> Any:
    return event(rules, updateDescription=description)["updateDescription"]


# scenario: M04
@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("ssn", {"_id": 1, "ssn": 1, "a": 2}, {"_id": 1, "a": 2}),
        ("a.ssn", {"a": {"ssn": 1, "b": 2}, "ssn": 3}, {"a": {"b": 2}, "ssn": 3}),
        ("a.b.ssn", {"a": {"b": {"ssn": {"x": 1}}}}, {"a": {"b": {}}}),
        ("a.ssn", {"a": [{"ssn": 1, "b": 2}, {"ssn": 3}, 4, None]}, {"a": [{"b": 2}, {}, 4, None]}),
        ("a.b.ssn", {"a": [{"b": [{"ssn": 1, "c": 1}]}]}, {"a": [{"b": [{"c": 1}]}]}),
        ("a.ssn", {"a": [[{"ssn": 1}], [[{"ssn": 2, "b": 1}]]]}, {"a": [[{}], [[{"b": 1}]]]}),
        ("a.ssn", {"a.ssn": 1, "a": {"c": 1}}, {"a": {"c": 1}}),
        ("a.b.ssn", {"a.b": {"ssn": 1, "c": 2}, "a": {"b.ssn": 1}}, {"a.b": {"c": 2}, "a": {}}),
        ("a.ssn", {"a": {"0": {"ssn": 1, "b": 1}}}, {"a": {"0": {"b": 1}}}),
        ("a.0.ssn", {"a": [{"ssn": 1}, {"ssn": 2}], "b": 1}, {"a": [{}, {"ssn": 2}], "b": 1}),
        ("a.0", {"a": [1, 2, 3]}, {"a": [None, 2, 3]}),
        ("b", {"0": {"b": 1}}, {"0": {"b": 1}}),
        ("a.b", {"a": 1}, {"a": 1}),
        ("a.$x", {"a": {"$x": 1, "y": 2}}, {"a": {"y": 2}}),
        ("ssn", {"SSN": 1, "ssn2": 2, "s.sn": 3, "x": {"ssn": 4}}, {"SSN": 1, "ssn2": 2, "s.sn": 3, "x": {"ssn": 4}}),
    ],
)
def test_an_excluded_field_is_removed_wherever_its_path_matches(path: str, before: Any, after: Any) -> None:
    assert document(excluding(path), before) == after
    assert event(excluding(path), fullDocument=before)["fullDocument"] == after
    assert event(excluding(path), fullDocumentBeforeChange=before)["fullDocumentBeforeChange"] == after
    assert update(excluding(path), updatedFields=before)["updatedFields"] == after


# scenario: M04
@pytest.mark.parametrize(
    ("path", "updated", "left"),
    [
        ("a.ssn", {"a.ssn": 1, "a.b": 2}, {"a.b": 2}),
        ("a.ssn", {"a.ssn.x.y": 1, "a.ssnx": 2}, {"a.ssnx": 2}),
        ("a.ssn", {"a": {"ssn": 1, "b": 2}}, {"a": {"b": 2}}),
        ("a.ssn", {"a.0.ssn": 1, "a.10.3.ssn": 2, "a.0.b": 3}, {"a.0.b": 3}),
        ("a.ssn", {"a.1": {"ssn": 1, "b": 2}, "a.2": [{"ssn": 1}]}, {"a.1": {"b": 2}, "a.2": [{}]}),
        ("a.b.ssn", {"a.0.b.1": {"ssn": 1, "c": 1}, "a.0.b": [{"ssn": 1}]}, {"a.0.b.1": {"c": 1}, "a.0.b": [{}]}),
        ("a", {"a.0": 1, "a.b.c": 2, "ab": 3}, {"ab": 3}),
        ("a.0.b", {"a.0.b": 1, "a.1.b": 2}, {"a.1.b": 2}),
    ],
)
def test_a_patch_loses_the_field_as_path_parent_and_child(path: str, updated: Any, left: Any) -> None:
    assert update(excluding(path), updatedFields=updated)["updatedFields"] == left


# scenario: M04
def test_lists_of_paths_lose_paths_at_or_below_an_excluded_field() -> None:
    changed = update(
        excluding("a.ssn", "list"),
        updatedFields={},
        removedFields=["x", "a.ssn", "a.3.ssn.deep", "a", "y"],
        truncatedArrays=[
            {"field": "list", "newSize": 1},
            {"field": "other", "newSize": 2},
            {"field": "a.0.ssn.l", "newSize": 3},
        ],
        disambiguatedPaths={"a.0.ssn": ["a", 0, "ssn"], "a.0.b": ["a", "0", "b"]},
    )
    assert changed == {
        "updatedFields": {},
        "removedFields": ["x", "a", "y"],
        "truncatedArrays": [{"field": "other", "newSize": 2}],
        "disambiguatedPaths": {"a.0.b": ["a", "0", "b"]},
    }


@pytest.mark.parametrize("rules", [excluding("a.ssn"), FieldRules(policy(hashed=["shop.people.a.ssn"]))])
def test_indexes_and_validators_that_name_a_protected_field_are_removed_whole(rules: FieldRules) -> None:
    kept = {"v": 2, "key": {"a.city": 1}, "name": "a.city_1"}
    gone = [
        {"v": 2, "key": {"a.ssn": 1}, "name": "mine"},
        {"v": 2, "key": {"city": 1}, "name": "by ssn"},
        {"v": 2, "key": {"city": 1}, "name": "i", "partialFilterExpression": {"a": {"ssn": {"$gt": SECRET}}}},
        {"v": 2, "key": {"$**": 1}, "name": "j", "wildcardProjection": {"a.0.ssn": 1}},
    ]
    created = event(rules, operationType="createIndexes", operationDescription={"indexes": [gone[0], kept, *gone[1:]]})
    assert created["operationDescription"] == {"indexes": [kept]}
    uuid = bson.Binary(b"0" * 16, 4)
    options = {"validator": {"$or": [{"$expr": {"$eq": ["$a.ssn", SECRET]}}]}, "uuid": uuid, "size": 5}
    schema = {"validator": {"$jsonSchema": {"properties": {"a": {"properties": {"ssn": {"enum": [SECRET]}}}}}}}
    modified = event(
        rules, operationType="modify", operationDescription=schema, stateBeforeChange={"collectionOptions": options}
    )
    assert (modified["operationDescription"], modified["stateBeforeChange"]) == ({}, {})
    made = event(rules, operationType="create", operationDescription=options)
    assert made["operationDescription"] == {"uuid": uuid, "size": 5}


@pytest.mark.parametrize("name", ["name", "key", "v", "index", "indexes", "collectionOptions", "hidden"])
def test_a_field_that_has_the_name_of_a_part_of_a_definition_removes_only_what_names_it(name: str) -> None:
    rules = excluding(name)
    other, own = {"v": 2, "key": {"city": 1}, "name": "city_1", "hidden": False}, {"key": {name: 1}, "name": "i"}
    created = event(rules, operationType="createIndexes", operationDescription={"indexes": [other, own]})
    assert created["operationDescription"] == {"indexes": [other]}
    modified = event(rules, operationType="modify", operationDescription={"index": other, "uuid": 1})
    assert modified["operationDescription"] == {"index": other, "uuid": 1}


def test_definitions_of_other_fields_and_names_of_collections_stay() -> None:
    rules = FieldRules(policy(exclude=["shop.people.ssn"], renames=["shop.people.city:town"]))
    to = {"db": "shop", "coll": "ssn"}
    renamed = event(rules, operationType="rename", to=to, operationDescription={"to": to, "dropTarget": "x"})
    assert renamed["operationDescription"] == {"to": to, "dropTarget": "x"}
    indexes = {"indexes": [{"key": {"city": 1, "ssn2": 1}, "name": "one"}]}
    assert event(rules, operationType="createIndexes", operationDescription=indexes)["operationDescription"] == indexes


def test_an_array_of_paths_is_renumbered() -> None:
    raw = bson.encode({"ns": {"db": "shop", "coll": "people"}, "updateDescription": {"removedFields": ["ssn", "x"]}})
    assert b"\x020\x00\x02\x00\x00\x00x\x00" in excluding("ssn").rewrite_event(raw)


@pytest.mark.parametrize(
    "value", [1, 2.5, True, "text", b"bytes", bson.ObjectId(), bson.Int64(5), bson.Decimal128("1.10"), bson.MinKey()]
)
def test_hashes_and_masks_replace_any_scalar(value: Any) -> None:
    masked = document(FieldRules(policy(mask=["shop.people.v"])), {"v": value, "w": 1})
    hashed = document(FieldRules(policy(hashed=["shop.people.v"])), {"v": value, "w": 1})
    assert masked == {"v": "****", "w": 1}
    assert set(hashed) == {"v", "w"}
    assert len(hashed["v"]) == 64


def test_a_text_is_hashed_as_sql_would() -> None:
    rules = FieldRules(policy(hashed=["shop.people.mail"]))
    assert document(rules, {"mail": "ä@b.example"}) == {"mail": sha256(SALT + "ä@b.example".encode()).hexdigest()}
    assert document(rules, {"mail": "1"}) != document(rules, {"mail": 1})
    other = FieldRules(FieldPolicy(policy(hashed=["shop.people.mail"]).rules, b"another"))
    assert document(other, {"mail": "x"}) != document(rules, {"mail": "x"})


def test_each_leaf_is_hashed_so_that_patches_agree_with_documents() -> None:
    rules = FieldRules(policy(hashed=["shop.people.p"]))
    whole = document(rules, {"p": {"tags": ["a", "b"], "name": "n", "none": None, "empty": []}})
    patch = update(rules, updatedFields={"p.tags.1": "b", "p.name": "n", "p.none": None, "p.empty": []})[
        "updatedFields"
    ]
    assert whole["p"]["tags"][1] == patch["p.tags.1"] != "b"
    assert whole["p"]["name"] == patch["p.name"] != "n"
    assert (whole["p"]["none"], whole["p"]["empty"]) == (patch["p.none"], patch["p.empty"]) == (None, [])
    kept = update(rules, removedFields=["p.name"], truncatedArrays=[{"field": "p.tags", "newSize": 1}])
    assert kept == {"removedFields": ["p.name"], "truncatedArrays": [{"field": "p.tags", "newSize": 1}]}


def test_the_strongest_of_overlapping_field_rules_wins() -> None:
    rules = FieldRules(policy(exclude=["shop.people.a.b.c"], mask=["shop.people.a.b"], hashed=["shop.people.a"]))
    found = document(rules, {"a": {"b": {"c": 1, "d": 2}, "e": "x"}})
    assert found == {"a": {"b": {"d": "****"}, "e": sha256(SALT + b"x").hexdigest()}}


@pytest.mark.parametrize("key", [{"mail": "x", "_id": 1}, {"a.mail": "x", "_id": 1}, {"a": {"mail": "x"}, "_id": 1}])
def test_a_protected_shard_key_is_rejected_because_the_token_holds_it(key: Any) -> None:
    rules = FieldRules(policy(hashed=["shop.people.mail", "shop.people.a.mail"]))
    with pytest.raises(ConfigurationError, match="every resume token"):
        event(rules, operationType="delete", documentKey=key)


def test_bytes_that_no_rule_matches_stay_the_same() -> None:
    raw = bson.encode(
        {
            "_id": {"_data": "1"},
            "ns": {"db": "shop", "coll": "people"},
            "documentKey": {"_id": 1},
            "fullDocument": {"a": 1},
        }
    )
    rules = excluding("ssn")
    assert rules.rewrite_event(raw) is raw
    assert FieldRewriter(FieldPolicy()).rewrite_event(raw) is raw
    twice = b"\x13\x00\x00\x00\x10a\x00\x01\x00\x00\x00\x10a\x00\x02\x00\x00\x00\x00"
    assert rules.rewrite_document(twice) == twice


def test_both_fields_of_the_same_name_are_removed() -> None:
    inner = bson.encode({"ssn": 1})[4:-1]
    twice = (4 + 2 * len(inner) + 1).to_bytes(4, "little") + inner * 2 + b"\0"
    assert excluding("ssn").rewrite_document(twice) == bson.encode({})


def test_text_that_is_not_utf8_is_removed_too() -> None:
    broken = bson.encode({"ssn": "xx", "b": 1}).replace(b"xx", b"\xff\xfe")
    assert excluding("ssn").rewrite_document(broken) == bson.encode({"b": 1})
    assert b"\xff\xfe" not in FieldRules(policy(hashed=["d.c.ssn"])).rewrite_document(broken)


def test_rules_apply_to_documents_that_a_newer_server_adds() -> None:
    assert event(excluding("ssn"), somethingNew={"ssn": 1, "b": 2})["somethingNew"] == {"b": 2}


def test_damaged_bytes_are_an_error_that_does_not_quote_them() -> None:
    raw = bson.encode({"a": SECRET})
    for damaged in (raw[:-3], raw[:4] + b"\x77" + raw[5:]):
        with pytest.raises(MalformedBson) as caught:
            excluding("a").rewrite_document(damaged)
        assert SECRET not in str(caught.value)


# scenario: M10
@pytest.mark.parametrize(
    ("rule", "namespace", "applies"),
    [
        ("shop.people.ssn", ("shop", "people"), True),
        ("shop.people.ssn", ("shop", "people2"), False),
        ("shop.people.ssn", ("Shop", "people"), False),
        ("*.people.ssn", ("crm", "people"), True),
        ("shop.*.ssn", ("shop", "a.b.c"), True),
        ("*.*.ssn", ("x", "y"), True),
        ("sh*.peo*e.ssn", ("shop", "people"), True),
        (r"shop.a\.b.ssn", ("shop", "a.b"), True),
        (r"shop.a\.b.ssn", ("shop", "a"), False),
        ("sh+p.people.ssn", ("shhp", "people"), False),
    ],
)
def test_a_rule_applies_to_the_collections_that_it_names(rule: str, namespace: tuple[str, str], applies: bool) -> None:
    rewriter = FieldRewriter(policy(exclude=[rule]))
    db, coll = namespace
    raw = bson.encode({"ns": {"db": db, "coll": coll}, "fullDocument": {"ssn": 1, "a": 1}})
    assert ("ssn" not in bson.decode(rewriter.rewrite_event(raw))["fullDocument"]) is applies
    assert (rewriter.rules_for(db, coll) is not None) is applies


def test_an_event_without_a_namespace_cannot_pass_with_a_document() -> None:
    rewriter = FieldRewriter(policy(exclude=["*.*.ssn"]))
    control = bson.encode({"_id": {"_data": "1"}, "operationType": "invalidate"})
    assert rewriter.rewrite_event(control) is control
    dropped = bson.encode({"operationType": "dropDatabase", "ns": {"db": "shop"}})
    assert rewriter.rewrite_event(dropped) is dropped
    with pytest.raises(ConfigurationError, match="names no collection"):
        rewriter.rewrite_event(bson.encode({"operationType": "insert", "fullDocument": {"ssn": 1}}))


def test_rules_can_be_pickled_and_do_not_show_the_salt() -> None:
    rules = policy(hashed=["shop.people.a"])
    assert pickle.loads(pickle.dumps(rules)) == rules
    assert "salt" not in repr(rules)


# scenario: A17, U03
def test_rules_are_noted_without_their_secrets_and_differ_where_what_they_do_differs() -> None:
    rules = policy(exclude=["shop.people.a"], mask=["shop.*.b"], hashed=["shop.people.c"])
    noted = rules.as_stored()
    assert [(rule.applies_to("shop", "people"), rule.applies_to("shop", "orders")) for rule in noted] == [
        (True, False),
        (True, True),
        (True, False),
    ]
    assert SALT.decode() not in json.dumps(noted)
    other_salt, other_mask = replace(rules, salt=b"another salt").as_stored(), replace(rules, mask="?").as_stored()
    assert [one == other for one, other in zip(noted, other_salt, strict=True)] == [True, True, False]
    assert [one == other for one, other in zip(noted, other_mask, strict=True)] == [True, False, True]
    assert noted == policy(exclude=["shop.people.a"], mask=["shop.*.b"], hashed=["shop.people.c"]).as_stored()


# scenario: M06
def test_a_field_is_renamed_wherever_its_path_matches() -> None:
    rules = FieldRules(policy(renames=["shop.people.a.b:c", "shop.people.x:y"]))
    assert document(rules, {"a": [{"b": 1}, {"z": 1}], "x": 2, "b": 3}) == {"a": [{"c": 1}, {"z": 1}], "y": 2, "b": 3}
    changed = event(
        rules,
        fullDocument={"a": {"b": 1}},
        updateDescription={
            "updatedFields": {"a.b": 1, "a.0.b.q": 2, "a": {"b": 1}, "x": 3, "a.1": {"b": 2}},
            "removedFields": ["x.z", "a.b"],
            "truncatedArrays": [{"field": "a.2.b", "newSize": 3}],
            "disambiguatedPaths": {"a.0.b": ["a", 0, "b"]},
        },
    )
    assert changed["fullDocument"] == {"a": {"c": 1}}
    assert changed["updateDescription"] == {
        "updatedFields": {"a.c": 1, "a.0.c.q": 2, "a": {"c": 1}, "y": 3, "a.1": {"c": 2}},
        "removedFields": ["y.z", "a.c"],
        "truncatedArrays": [{"field": "a.2.c", "newSize": 3}],
        "disambiguatedPaths": {"a.0.c": ["a", 0, "c"]},
    }


# scenario: M06
def test_a_rename_never_overwrites_both_values_stay() -> None:
    rules = FieldRules(policy(renames=["shop.people.a.b:c"]))
    assert document(rules, {"a": {"b": 1, "c": 2}}) == {"a": {"b": 1, "c": 2}}
    assert document(rules, {"a": [{"b": 1, "c": 2}, {"b": 3}]}) == {"a": [{"b": 1, "c": 2}, {"c": 3}]}
    taken = event(
        rules,
        fullDocument={"a": {"b": 1, "c": 2}},
        updateDescription={"updatedFields": {"a.b": 1}, "removedFields": ["a.b.x"]},
    )
    assert taken["updateDescription"] == {"updatedFields": {"a.b": 1}, "removedFields": ["a.b.x"]}
    elsewhere = event(
        rules,
        fullDocument={"a": [{"b": 1, "c": 2}, {"b": 1}]},
        updateDescription={"updatedFields": {"a.0.b": 1, "a.1.b": 1}},
    )
    assert elsewhere["updateDescription"] == {"updatedFields": {"a.0.b": 1, "a.1.c": 1}}
    both_set = event(rules, fullDocument=None, updateDescription={"updatedFields": {"a.b": 1, "a.c": 2}})
    assert both_set["updateDescription"] == {"updatedFields": {"a.b": 1, "a.c": 2}}


def test_renames_apply_one_after_the_other_and_after_masks() -> None:
    rules = FieldRules(policy(renames=["d.c.a:b", "d.c.b:e"], mask=["d.c.a"]))
    assert document(rules, {"a": 1}) == {"e": "****"}


_NAMES = st.sampled_from(["a", "b", "0", "1", "a.b", "ssn", "x"])
_PLAIN = st.one_of(st.integers(-5, 5), st.text(max_size=3), st.none())


def _documents(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    values = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3), max_leaves=8
    )
    return st.dictionaries(_NAMES, values, max_size=4)


def _marked(value: Any, path: tuple[str, ...], excluded: tuple[str, ...]) -> Any:
    """Return the document with the secret at every leaf that the path *excluded* matches in MongoDB."""
    if path[: len(excluded)] == excluded:
        return SECRET if not isinstance(value, dict | list) else {"deep": [SECRET]}
    if isinstance(value, dict):
        return {name: _marked(inner, (*path, *name.split(".")), excluded) for name, inner in value.items()}
    if isinstance(value, list):
        return [_marked(inner, path, excluded) for inner in value]
    return value


@given(
    _documents(_PLAIN),
    st.sampled_from([("ssn",), ("a", "ssn"), ("a", "b"), ("x", "0", "a")]),
    st.sampled_from(["exclude", "hash", "mask"]),
)
def test_a_protected_value_is_in_no_byte_of_the_result(content: Any, path: tuple[str, ...], action: str) -> None:
    marked = _marked(content, (), path)
    entry = [f"shop.people.{'.'.join(path)}"]
    lists = {"exclude": {"exclude": entry}, "hash": {"hashed": entry}, "mask": {"mask": entry}}[action]
    rules = FieldRules(policy(**lists))
    whole = {
        "_id": {"_data": "82AB"},
        "ns": {"db": "shop", "coll": "people"},
        "documentKey": {"_id": 1},
        "fullDocument": marked,
        "fullDocumentBeforeChange": marked,
        "updateDescription": {"updatedFields": _flattened(marked) | marked, "removedFields": [], "truncatedArrays": []},
    }
    assert SECRET.encode() not in rules.rewrite_event(bson.encode(whole))
    assert SECRET.encode() not in rules.rewrite_document(bson.encode(marked))


def _flattened(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return all values by the dotted path that an update would use."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: dict[str, Any] = {}
    for name, inner in items:
        found |= {f"{prefix}{name}": inner} | _flattened(inner, f"{prefix}{name}.")
    return found


@given(_documents(_PLAIN))
def test_rewriting_is_idempotent_and_leaves_valid_bson(content: Any) -> None:
    rules = FieldRules(policy(exclude=["d.c.a.ssn"], mask=["d.c.x"], renames=["d.c.b:nb"]))
    once = rules.rewrite_document(bson.encode(content))
    assert bson.encode(bson.decode(once)) == once
    assert rules.rewrite_document(once) == once
    assert RawBSONDocument(once).raw == once
