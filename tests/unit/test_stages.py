"""Pipeline of the change stream against literal stages, and rejection of user stages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.model.field_rules import FieldPolicy, parse_field_rules
from strandline.model.namespaces import Namespace
from strandline.model.user_pipeline import UserPipeline, parse_user_pipeline
from strandline.source.field_stages import exclusion_projection, exclusion_stages
from strandline.source.stages import Images, Selection, stream_stages

CONTROL = {"operationType": {"$in": ["create", "drop", "rename", "dropDatabase", "invalidate", "reshardCollection"]}}

IS_CONTROL = {"$and": [{"$in": ["$operationType", {"$literal": CONTROL["operationType"]["$in"]}]}]}


def policy(**lists: Any) -> FieldPolicy:
    return FieldPolicy(parse_field_rules(**lists)[0])


def admitted(selection: Selection) -> Any:
    (stage,) = stream_stages(selection)
    control, condition = stage["$match"]["$or"]
    assert control == CONTROL
    return condition["$and"]


# scenario: M01, M02, M08
def test_regular_expressions_are_anchored_on_both_sides() -> None:
    full_name = {"$concat": ["$ns.db", ".", "$ns.coll"]}
    selection = Selection(databases=("a|b",), excluded_collections=("c.d", "e"))
    assert admitted(selection) == [
        {"ns.db": {"$regex": "^(?:(?:a|b))\\z"}},
        {"$nor": [{"$expr": {"$regexMatch": {"input": full_name, "regex": "^(?:(?:c.d)|(?:e))\\z"}}}]},
    ]
    assert admitted(Selection(excluded_databases=("a",), collections=("c",))) == [
        {"$nor": [{"ns.db": {"$regex": "^(?:(?:a))\\z"}}]},
        {"$expr": {"$regexMatch": {"input": full_name, "regex": "^(?:(?:c))\\z"}}},
    ]


# scenario: M01, M10
def test_literal_names_are_compared_as_they_are() -> None:
    selection = Selection(databases=("a.*",), collections=("shop.a.b", "shop.c"), match_mode="literal")
    assert admitted(selection) == [
        {"ns.db": {"$in": ["a.*"]}},
        {"$or": [{"ns.db": "shop", "ns.coll": "a.b"}, {"ns.db": "shop", "ns.coll": "c"}]},
    ]
    assert admitted(Selection(excluded_databases=("a",), excluded_collections=("s.c",), match_mode="literal")) == [
        {"$nor": [{"ns.db": {"$in": ["a"]}}]},
        {"$nor": [{"$or": [{"ns.db": "s", "ns.coll": "c"}]}]},
    ]


# scenario: M10
@pytest.mark.parametrize(
    ("mode", "entry", "name", "expected"),
    [
        ("literal", "shop.a.b", ("shop", "a.b"), True),
        ("literal", "shop.a.b", ("shop", "aXb"), False),
        ("literal", "shop.*", ("shop", "a"), False),
        ("literal", "shop.*", ("shop", "*"), True),
        ("literal", "shop.A", ("shop", "a"), False),
        ("regex", "shop.a.b", ("shop", "aXb"), True),
        ("regex", "shop.a", ("shop", "a\n"), False),
        ("regex", r"shop.\w", ("shop", "é"), False),
        ("regex", "shop.a|shop.b", ("shop", "bc"), False),
    ],
)
def test_an_entry_of_a_list_means_a_collection(mode: Any, entry: str, name: tuple[str, str], expected: bool) -> None:
    assert Selection(collections=(entry,), match_mode=mode).admits(*name) is expected
    assert Selection(excluded_collections=(entry,), match_mode=mode).admits(*name) is not expected


# scenario: B14
def test_skipped_operations_are_debeziums_letters() -> None:
    assert admitted(Selection.of("deployment", None, skipped_operations=("c", "u", "d", "t"))) == [
        {"operationType": {"$nin": ["insert", "update", "replace", "delete"]}}
    ]
    assert stream_stages(Selection.of("deployment", None, skipped_operations=("none",))) == []
    assert stream_stages(Selection.of("deployment", None, skipped_operations=("t",))) == []


def test_the_event_of_the_resume_token_passes_every_match() -> None:
    users = UserPipeline(({"$match": {"fullDocument.a": 1}},))
    assert stream_stages(Selection(databases=("a",), match_mode="literal", user_pipeline=users), "82AB") == [
        {"$match": {"$or": [CONTROL, {"_id._data": "82AB"}, {"$and": [{"ns.db": {"$in": ["a"]}}]}]}},
        {"$match": {"$or": [CONTROL, {"_id._data": "82AB"}, {"fullDocument.a": 1}]}},
    ]
    assert stream_stages(Selection(), "82AB") == []


# scenario: H06, B15
@pytest.mark.parametrize(("order", "places"), [("internal_first", "IU"), ("user_first", "UI"), ("user_only", "U")])
def test_user_stages_are_placed_by_the_order_setting(order: Any, places: str) -> None:
    internal = {"$match": {"$or": [CONTROL, {"$and": [{"ns.db": {"$in": ["a"]}}]}]}}
    users = [
        {"$match": {"$or": [CONTROL, {"x": 1}]}},
        {"$redact": {"$cond": [{"$or": [IS_CONTROL]}, "$$KEEP", "$$PRUNE"]}},
        {"$unset": "wallTime"},
    ]
    given = UserPipeline(({"$match": {"x": 1}}, {"$redact": "$$PRUNE"}, {"$unset": "wallTime"}), order)
    parts = {"I": [internal], "U": users}
    assert stream_stages(Selection(databases=("a",), match_mode="literal", user_pipeline=given)) == [
        stage for place in places for stage in parts[place]
    ]


# scenario: M09
def test_signals_and_the_event_of_the_token_pass_a_users_redact() -> None:
    users = UserPipeline(({"$redact": "$$PRUNE"},))
    selection = Selection.of("database", "shop", user_pipeline=users, signals=Namespace("shop", "$signals"))
    values = {"operationType": "insert", "ns.db": "shop", "ns.coll": "$signals"}
    is_signal = {"$and": [{"$in": [f"${name}", {"$literal": [value]}]} for name, value in values.items()]}
    is_last = {"$and": [{"$in": ["$_id._data", {"$literal": ["82AB"]}]}]}
    assert stream_stages(selection, "82AB") == [
        {"$redact": {"$cond": [{"$or": [IS_CONTROL, is_last, is_signal]}, "$$KEEP", "$$PRUNE"]}}
    ]


# scenario: M04
def test_an_excluded_field_is_removed_for_its_collections_only() -> None:
    here = [{"$eq": ["$ns.db", {"$literal": "shop"}]}, {"$eq": ["$ns.coll", {"$literal": "people"}]}]
    is_document = {"$eq": [{"$type": "$fullDocument"}, "object"]}
    kept = "^(?:ssn)(?:\\.|\\z)"
    (stage,) = exclusion_stages(policy(exclude=["shop.people.ssn"], mask=["shop.people.b"]), pre_image=False)
    assert stage == {
        "$set": {
            "fullDocument": {
                "$cond": [
                    {"$and": [*here, is_document]},
                    {"$unsetField": {"field": {"$literal": "ssn"}, "input": "$fullDocument"}},
                    "$fullDocument",
                ]
            },
            "updateDescription": {
                "$cond": [
                    {"$and": [*here, {"$eq": [{"$type": "$updateDescription"}, "object"]}]},
                    {
                        "$mergeObjects": [
                            "$updateDescription",
                            {
                                "updatedFields": {
                                    "$arrayToObject": {
                                        "$filter": {
                                            "input": {"$objectToArray": "$updateDescription.updatedFields"},
                                            "as": "item",
                                            "cond": {"$not": [{"$regexMatch": {"input": "$$item.k", "regex": kept}}]},
                                        }
                                    }
                                },
                                "removedFields": {
                                    "$filter": {
                                        "input": "$updateDescription.removedFields",
                                        "as": "item",
                                        "cond": {"$not": [{"$regexMatch": {"input": "$$item", "regex": kept}}]},
                                    }
                                },
                                "truncatedArrays": {
                                    "$filter": {
                                        "input": "$updateDescription.truncatedArrays",
                                        "as": "item",
                                        "cond": {"$not": [{"$regexMatch": {"input": "$$item.field", "regex": kept}}]},
                                    }
                                },
                            },
                        ]
                    },
                    "$updateDescription",
                ]
            },
        }
    }


def test_a_nested_field_is_removed_through_documents_and_arrays() -> None:
    (stage,) = exclusion_stages(policy(exclude=["*.p*.a.b"]), pre_image=True)
    condition, then, otherwise = stage["$set"]["fullDocumentBeforeChange"]["$cond"]
    assert otherwise == "$fullDocumentBeforeChange"
    assert condition == {
        "$and": [
            {"$regexMatch": {"input": "$ns.coll", "regex": "(?s)^p.*\\z"}},
            {"$eq": [{"$type": "$fullDocumentBeforeChange"}, "object"]},
        ]
    }
    b = {"$literal": "b"}
    is_document = {"$eq": [{"$type": "$$element0"}, "object"]}
    each = {"$cond": [is_document, {"$unsetField": {"field": b, "input": "$$element0"}}, "$$element0"]}
    child = {
        "$switch": {
            "branches": [
                {
                    "case": {"$eq": [{"$type": "$$child0"}, "object"]},
                    "then": {"$unsetField": {"field": b, "input": "$$child0"}},
                },
                {
                    "case": {"$isArray": ["$$child0"]},
                    "then": {"$map": {"input": "$$child0", "as": "element0", "in": each}},
                },
            ],
            "default": "$$child0",
        }
    }
    a = {"$literal": "a"}
    value = {"$let": {"vars": {"child0": {"$getField": {"field": a, "input": "$$document0"}}}, "in": child}}
    assert then == {
        "$let": {
            "vars": {"document0": "$fullDocumentBeforeChange"},
            "in": {"$setField": {"field": a, "input": "$$document0", "value": value}},
        }
    }
    assert '"^(?:a(?:\\\\.[0-9]+)*\\\\.b)(?:\\\\.|\\\\z)"' in json.dumps(stage["$set"]["updateDescription"])


def test_exclusion_stages_come_after_the_namespace_filter_and_never_touch_the_token() -> None:
    fields = policy(exclude=["shop.people.ssn", "shop.people.a", "*.orders.b"])
    stages = stream_stages(Selection(databases=("shop",), fields=fields))
    assert [next(iter(stage)) for stage in stages] == ["$match", "$set", "$set"]
    assert {name for stage in stages[1:] for name in stage["$set"]} == {"fullDocument", "updateDescription"}
    assert [
        next(iter(stage)) for stage in stream_stages(Selection(databases=("shop",), fields=fields), excluding=False)
    ] == ["$match"]
    assert stream_stages(Selection(fields=policy(mask=["a.b.c"], hashed=["a.b.d"], renames=["a.b.e:f"]))) == []


def test_a_snapshot_projection_leaves_out_excluded_fields() -> None:
    rules = policy(
        exclude=["shop.people.a.b", "*.people.a", "shop.*.c.d", "shop.people.$x", "crm.people.e"],
        mask=["shop.people.m"],
    )
    assert exclusion_projection(rules, "shop", "people") == {"a": 0, "c.d": 0}
    assert exclusion_projection(rules, "crm", "orders") == {}


def test_capture_modes_become_options_of_watch() -> None:
    assert Images.of("change_streams").watch_options == {}
    assert (
        Images.of("change_streams_update_full").watch_options
        == {"full_document": "updateLookup"}
        == Images().watch_options
    )
    assert Images.of("change_streams_with_pre_image", "post_image").watch_options == {
        "full_document_before_change": "whenAvailable"
    }
    assert Images.of("change_streams_update_full_with_pre_image", "post_image").watch_options == {
        "full_document": "whenAvailable",
        "full_document_before_change": "whenAvailable",
    }
    recorded = [
        Images.of("change_streams", "post_image"),
        Images(),
        Images.of("change_streams_update_full", "post_image"),
    ]
    assert [images.recorded for images in recorded] == [False, False, True]


FIXED = "operationType, clusterTime, ns, to, documentKey, collectionUUID"
_ALL_KEPT = dict.fromkeys((*FIXED.split(", "), "fullDocument", "updateDescription"), 1)


# scenario: B09
@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        ({"$project": {"_id": 0}}, "would remove _id"),
        ({"$project": {"_id": 0, **_ALL_KEPT}}, "would remove _id"),
        ({"$project": {"_id._data": False}}, "would remove _id._data"),
        ({"$project": {"_id": "$documentKey"}}, "would change _id"),
        ({"$project": {"fullDocument": 1}}, f"would remove {FIXED}, updateDescription"),
        ({"$project": {"ns.coll": 0}}, "would remove ns.coll"),
        ({"$project": {"updateDescription": 0}}, "would remove updateDescription"),
        ({"$unset": "_id"}, "would remove _id"),
        ({"$unset": ["wallTime", "documentKey._id", "fullDocument"]}, "would remove documentKey._id, fullDocument"),
        ({"$set": {"_id": 1}}, "would change _id"),
        ({"$addFields": {"ns.db": "x"}}, "would change ns.db"),
        ({"$replaceWith": "$fullDocument"}, "cannot be shown to keep _id"),
        ({"$replaceRoot": {"newRoot": {"$mergeObjects": ["$$ROOT", {"_id": 1}]}}}, "would change _id"),
        ({"$replaceWith": {"$mergeObjects": ["$$ROOT", "$fullDocument"]}}, "adds what is no document"),
        ({"$group": {"_id": 1}}, "is not allowed in a change stream"),
        ({"$changeStreamSplitLargeEvent": {}}, "is not allowed in a change stream"),
        ({"$match": {"operationType": "insert"}}, f"control events {', '.join(CONTROL['operationType']['$in'])}"),
        (
            {"$match": {"operationType": {"$in": ["insert", "drop", "rename"]}}},
            "control events create, dropDatabase, invalidate, reshardCollection",
        ),
        (
            {"$match": {"operationType": {"$in": ["insert", "drop", "rename", "dropDatabase", "invalidate"]}}},
            "control events create, reshardCollection",  # E1, E5
        ),
        ({"$match": {"operationType": {"$nin": ["invalidate"]}}}, "control events invalidate"),
        ({"$match": {"operationType": {"$ne": "drop"}}}, "control events drop"),
        ({"$match": {"operationType": {"$not": {"$eq": "drop"}}}}, "control events drop"),
        ({"$match": {"operationType": {"$regex": "^drop"}}}, "control events create, rename, invalidate"),
        ({"$match": {"$and": [{"fullDocument.a": 1}, {"operationType": "update"}]}}, "control events"),
        ({"$match": {"$or": [{"operationType": "insert"}, {"operationType": "update"}]}}, "control events"),
        ({"$match": {"$nor": [{"operationType": "rename"}]}}, "control events rename"),
        ({"$match": {}, "$set": {}}, "is no document with one key"),
        ("$match", "is no document with one key"),
        ({"$project": 1}, "is no projection"),
        ({"$redact": {"$cond": [{"$eq": ["$level", 5]}, "$$PRUNE", "$$DESCEND"]}}, "could prune _id"),
    ],
    ids=str,
)
def test_a_stage_that_would_break_the_capture_is_rejected(stage: Any, reason: str) -> None:
    _, problems = parse_user_pipeline(json.dumps([stage]))
    assert problems
    assert problems[0].startswith("cursor_pipeline stage 1 ")
    assert reason in problems[0]


@pytest.mark.parametrize(
    "stage",
    [
        {"$match": {"fullDocument.city": "Paris"}},
        {"$match": {"operationType": {"$nin": ["delete"]}}},
        {"$match": {"operationType": {"$ne": "delete"}, "ns.coll": "a"}},
        {"$match": {"$or": [{"operationType": "insert"}, {"fullDocument.x": 1}]}},
        {"$match": {"$expr": {"$eq": ["$operationType", "insert"]}}},
        {"$project": {"wallTime": 0, "fullDocument.big": 0}},
        {"$project": {**_ALL_KEPT, "fullDocument": {"a": 1}}},
        {"$project": {"_id": 1, **_ALL_KEPT}},
        {"$unset": ["fullDocument.big", "wallTime"]},
        {"$set": {"fullDocument.seen": True}},
        {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"seen": True}]}},
        {"$redact": "$$KEEP"},
    ],
    ids=str,
)
def test_an_allowed_stage_is_parsed_unchanged(stage: Any) -> None:
    assert parse_user_pipeline(json.dumps([stage])) == ((stage,), [])


# promise 3; scenario: H06
@pytest.mark.parametrize(
    ("stage", "passes"),
    [
        ({"$set": {"seen": True}}, True),
        ({"$unset": "wallTime"}, True),
        ({"$unset": ["wallTime", "lsid"]}, True),
        ({"$project": {"wallTime": 0}}, True),
        ({"$match": {"ns.coll": "orders"}}, False),
        ({"$redact": "$$KEEP"}, False),
        ({"$set": {"fullDocument.seen": True}}, False),
        ({"$unset": "fullDocument.big"}, False),
        ({"$unset": ["wallTime", "updateDescription.updatedFields.big"]}, False),
        ({"$project": {"fullDocumentBeforeChange.big": 0}}, False),
        ({"$project": {"_id": 1, **_ALL_KEPT}}, False),
        ({"$replaceWith": {"$mergeObjects": ["$$ROOT", {"seen": True}]}}, False),
    ],
    ids=str,
)
def test_passes_all_is_false_for_stages_that_may_hide_a_change(stage: Any, passes: bool) -> None:
    assert UserPipeline((stage,)).passes_all is passes
    assert UserPipeline().passes_all


def test_with_protected_fields_no_stage_may_copy_a_value() -> None:
    copying = [{"$set": {"x": "$fullDocument.ssn"}}, {"$project": {"x": "$fullDocument.ssn", **_ALL_KEPT}}]
    copying.append({"$replaceWith": {"$mergeObjects": ["$$ROOT", {"x": "$fullDocument.ssn"}]}})
    for stage in copying:
        assert parse_user_pipeline(json.dumps([stage]))[1] == []
        assert "could copy one" in parse_user_pipeline(json.dumps([stage]), protects=True)[1][0]
    for stage in ({"$match": {"a": 1}}, {"$unset": "wallTime"}, {"$project": {"wallTime": 0}}):
        assert parse_user_pipeline(json.dumps([stage]), protects=True)[1] == []


@pytest.mark.parametrize("text", ["[", "{}", '"$match"', "null", "5"])
def test_a_pipeline_is_a_json_list(text: str) -> None:
    assert len(parse_user_pipeline(text)[1]) == 1


def test_a_pipeline_may_hold_extended_json() -> None:
    ((stage,), problems) = parse_user_pipeline(
        '[{"$match": {"clusterTime": {"$gt": {"$timestamp": {"t": 5, "i": 1}}}}}]'
    )
    assert problems == []
    assert stage["$match"]["clusterTime"]["$gt"].time == 5
