"""Settings of the selection: their meaning and their contradictions."""

from __future__ import annotations

from pathlib import Path

import pytest
from configuration import refusal, write

from strandline.settings.configuration import load_settings

_SECRET = "hunter2hunter2"
_DEEP = '{"a":' * 600 + "1" + "}" * 600
_NESTED = '{"$and": [' * 480 + "{}" + "]}" * 480


# scenario: M07
def test_lists_of_the_selection_are_trimmed(conf: Path) -> None:
    write(
        conf,
        "here",
        "capture: {field_exclude_list: ' *.a.b , c.d.e.f ', skipped_operations: ' c , d ', "
        "collection_exclude_list: ' a.b '}",
    )
    capture = load_settings("here", conf).capture
    assert (capture.field_exclude_list, capture.skipped_operations, capture.collection_exclude_list) == (
        ("*.a.b", "c.d.e.f"),
        ("c", "d"),
        ("a.b",),
    )


@pytest.mark.parametrize(
    ("capture", "reason"),
    [
        (
            "{database_include_list: a, database_exclude_list: b}",
            "database_include_list and database_exclude_list exclude each other",
        ),
        ("{collection_include_list: a.b, collection_exclude_list: c.d}", "exclude each other"),
        ("{collection_exclude_list: 'a.b, (%s'}", "collection_exclude_list entry 2 is no regular expression"),
        (
            "{collection_include_list: 'a{99999999999999999999}'}",
            "collection_include_list entry 1 is no regular expression",
        ),
        (
            "{database_exclude_list: '%s{99999999999999999999}'}",
            "database_exclude_list entry 1 is no regular expression",
        ),
        (
            f"{{database_include_list: '{'(' * 5000 + ')' * 5000}'}}",
            "database_include_list entry 1 is nested too deeply",
        ),
        (
            "{snapshot_include_collection_list: 'a.b, (%s'}",
            "snapshot_include_collection_list entry 2 is no regular expression",
        ),
        (
            "{snapshot_include_collection_list: nodot, filters_match_mode: literal}",
            "snapshot_include_collection_list entry 1 is no database.collection",
        ),
        (
            f"{{snapshot_collection_filter_overrides: {{a.b: '{_DEEP}'}}}}",
            "the query of a.b is no JSON of a document",
        ),
        (
            "{collection_include_list: nodot, filters_match_mode: literal}",
            "collection_include_list entry 1 is no database.collection",
        ),
        ("{starts: {shop.logs: nobackfill}}", "the start of shop.logs is neither no_backfill nor {from: TIME}"),
        ("{starts: {shop.logs: {from: '%s'}}}", "the start of shop.logs is neither"),
        ("{starts: {shop.logs: {since: 2026-01-31}}}", "the start of shop.logs is neither"),
        ("{starts: {shop.logs: {from: no_backfill}}}", "the start of shop.logs is neither"),
        ("{starts: {shop.logs: [no_backfill]}}", "the start of shop.logs is neither"),
        ("{starts: {shop: no_backfill}}", "starts: 'shop' is no database.collection"),
        ("{starts: {shop.logs: no_backfill, 'shop.logs': {from: 2026-01-31}}}", "shop.logs"),
        ("{starts: no_backfill}", "capture.starts: "),
        ("{scheduled: {shop.totals: {every: hourly}}}", "every is a number and s, m, h or d, such as 1h"),
        ("{scheduled: {shop.totals: {every: 0h}}}", "every is a number and s, m, h or d, such as 1h"),
        ("{scheduled: {shop.totals: {every: 1h, key: []}}}", "key must name at least one field, each once"),
        ("{scheduled: {shop.totals: {every: 1h, key: [a, a]}}}", "key must name at least one field, each once"),
        ("{scheduled: {shop.totals: {every: 1h, key: [a.]}}}", "key must name at least one field, each once"),
        ("{scheduled: {shop: {every: 1h}}}", "scheduled: 'shop' is no database.collection"),
        ("{scheduled: {shop.totals: 1h}}", "capture.scheduled.shop.totals"),
        ("{skipped_operations: 'c,r'}", "capture.skipped_operations.1: "),
        ("{skipped_operations: 'c,none'}", "none stands beside others"),
        ("{field_exclude_list: 'a.b.c, a.b'}", "field_exclude_list entry 2 is no database.collection.field"),
        ("{field_exclude_list: 'a..c'}", "field_exclude_list entry 1 is no database.collection.field"),
        ("{field_exclude_list: a.b._id}", "field_exclude_list entry 1 names _id"),
        ("{field_mask_list: a.b._id.c}", "field_mask_list entry 1 names _id"),
        ("{field_hash_list: '*.*._id', field_hash_salt: %s}", "field_hash_list entry 1 names _id"),
        ("{field_renames: 'a.b._id:c'}", "field_renames entry 1 names _id"),
        ("{field_renames: 'a.b.c:_id'}", "field_renames entry 1 renames to what is no field name, or to _id"),
        ("{field_renames: 'a.b.c:d.e'}", "renames to what is no field name"),
        ("{field_renames: 'a.b.c:$d'}", "renames to what is no field name"),
        ("{field_renames: a.b.c}", "field_renames entry 1 is no database.collection.field:new_name"),
        ("{field_renames: 'a.b.c:e, a.b.d:e'}", "field_renames gives two fields the same name"),
        ("{field_renames: 'a.b.c:c'}", "field_renames gives a field the name that it has"),
        ("{field_renames: 'a.b.c:d', mode: change_streams}", "field_renames needs whole documents"),
        ("{field_exclude_list: a.b.c, field_mask_list: a.b.c}", "a field stands twice"),
        ("{field_hash_list: a.b.c}", "field_hash_list needs field_hash_salt"),
        ("{field_hash_list: a.b.c, field_hash_salt: short}", "capture.field_hash_salt: "),
        ("{cursor_pipeline: '[%s'}", "cursor_pipeline is not valid JSON"),
        (f"{{cursor_pipeline: '[{{\"$match\": {'[' * 100_000}'}}", "cursor_pipeline is nested too deeply"),
        (f"{{cursor_pipeline: '[{{\"$match\": {_NESTED}}}]'}}", "cursor_pipeline is nested too deeply"),
        ('{cursor_pipeline: \'[{"$match": {"a": 99999999999999999999}}]\'}', "cursor_pipeline is not valid JSON"),
        ('{cursor_pipeline: \'[{"$match": {"a": {"$oid": "%s"}}}]\'}', "cursor_pipeline is not valid JSON"),
        ('{cursor_pipeline: \'[{"$project": {"_id": 0, "x": "%s"}}]\'}', "cursor_pipeline stage 1 would remove _id"),
        ('{cursor_pipeline: \'[{"$set": {"x": "$y"}}]\', field_mask_list: a.b.c}', "could copy one"),
        ("{cursor_pipeline_order: user_only}", "cursor_pipeline_order stands without a cursor_pipeline"),
        (
            '{mode: change_streams, cursor_pipeline: \'[{"$match": {"fullDocument.a": "%s"}}]\'}',
            "cursor_pipeline may leave out changes",
        ),
        ("{mode: snapshot}", "capture.mode: "),
    ],
)
def test_a_contradiction_in_the_selection_is_refused_without_a_value(conf: Path, capture: str, reason: str) -> None:
    write(conf, "here", f"capture: {capture.replace('%s', _SECRET)}")
    message = refusal(conf)
    assert reason in message
    assert _SECRET not in message


def test_a_stage_that_passes_every_change_stands_beside_patches(conf: Path) -> None:
    write(conf, "here", 'capture: {mode: change_streams, cursor_pipeline: \'[{"$set": {"seen": true}}]\'}')
    assert load_settings("here", conf).capture.update_kind == "patch"


def test_all_contradictions_of_the_selection_are_told_at_once(conf: Path) -> None:
    write(
        conf,
        "here",
        "capture: {field_exclude_list: 'a.b, a.b._id', database_include_list: '(', "
        "skipped_operations: 'none,c', cursor_pipeline: x}",
    )
    message = refusal(conf)
    for part in (
        "entry 1 is no database",
        "entry 2 names _id",
        "database_include_list entry 1",
        "none stands",
        "not valid JSON",
    ):
        assert part in message


def test_the_salt_stands_in_no_repr(conf: Path) -> None:
    write(conf, "here", f"capture: {{field_hash_list: a.b.c, field_hash_salt: {_SECRET}}}")
    settings = load_settings("here", conf)
    assert settings.capture.field_policy.salt == _SECRET.encode()
    for text in (repr(settings), settings.model_dump_json(), repr(settings.capture.field_policy)):
        assert _SECRET not in text


def test_rules_keep_the_order_of_their_lists(conf: Path) -> None:
    write(conf, "here", "capture: {field_renames: 'a.b.c:d, a.b.d:e', field_exclude_list: r.s.t.u}")
    assert [str(rule) for rule in load_settings("here", conf).capture.field_policy.rules] == [
        "r.s.t.u",
        "a.b.c",
        "a.b.d",
    ]


def test_the_selection_may_come_from_the_environment(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "CURSOR_PIPELINE": '[{"$match": {"fullDocument.a": 1}}]',
        "SKIPPED_OPERATIONS": "u, d",
        "COLLECTION_EXCLUDE_LIST": "[a-c].*, shop.x",
        "FIELD_HASH_LIST": "*.*.mail",
        "FIELD_HASH_SALT": _SECRET,
    }.items():
        monkeypatch.setenv(f"STRANDLINE_CAPTURE__{name}", value)
    capture = load_settings("here", conf).capture
    assert capture.user_pipeline.stages == ({"$match": {"fullDocument.a": 1}},)
    assert (capture.skipped_operations, capture.collection_exclude_list) == (("u", "d"), ("[a-c].*", "shop.x"))
    assert capture.field_policy.salt == _SECRET.encode()
