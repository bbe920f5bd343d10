"""Folding of an update description onto the document before the update.

Events come from a real server unless a test says so.

Random updates on a real mongod: ``tests/property/test_fold_histories.py``.
"""

from __future__ import annotations

import struct
from typing import Any

import bson
import pytest

from strandline.model.bson import raw as rb
from strandline.silver.fold.document import CannotFold, fold, fold_with_certainty

_SIX: dict[str, Any] = {"_id": 1, "m": 1, "a": 1, "arr": [1, 2, 3], "o": {"x": 1, "y": 2}, "z": 9}
_BIG: dict[str, Any] = {"_id": 1, "x": 1, "d": {"x": 1, "y": 2, "p": "p" * 90}}


def description(
    updated: dict[str, Any] | None = None,
    removed: list[str] | None = None,
    truncated: dict[str, int] | None = None,
    paths: dict[str, list[str | int]] | None = None,
) -> bytes:
    """Update description as MongoDB 6.0 sends it; with *paths*, as 6.1 sends it under ``showExpandedEvents``."""
    whole: dict[str, Any] = {
        "updatedFields": updated or {},
        "removedFields": removed or [],
        "truncatedArrays": [{"field": path, "newSize": size} for path, size in (truncated or {}).items()],
    }
    return bson.encode(whole if paths is None else whole | {"disambiguatedPaths": paths})


def raw(*elements: tuple[int, bytes, bytes]) -> bytes:
    """Document that no driver would write."""
    body = b"".join(bytes((kind,)) + name + b"\0" + payload for kind, name, payload in elements)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def int32(value: int) -> bytes:
    return struct.pack("<i", value)


def string(value: bytes) -> bytes:
    return struct.pack("<i", len(value) + 1) + value + b"\0"


def assert_folds(base: dict[str, Any], patch: bytes, expected: dict[str, Any]) -> None:
    assert fold(bson.encode(base), patch) == bson.encode(expected), bson.decode(fold(bson.encode(base), patch))


# --- updated and removed fields, and their order


def test_new_values_keep_their_place_and_new_fields_come_last_in_the_events_order() -> None:
    """``$set`` of q, b, z, a, 10, 9, o.k, o.c, o.x. The server's order is lexicographic, with numbers by value."""
    updated = {"a": 4, "z": 3, "9": 1, "10": 1, "b": 2, "q": 1, "o.x": 7, "o.c": 2, "o.k": 1}
    expected = {
        "_id": 1,
        "m": 1,
        "a": 4,
        "arr": [1, 2, 3],
        "o": {"x": 7, "y": 2, "c": 2, "k": 1},
        "z": 3,
        "9": 1,
        "10": 1,
        "b": 2,
        "q": 1,
    }
    assert_folds(_SIX, description(updated), expected)


def test_removed_fields_go_and_an_arrays_removed_element_is_null() -> None:
    """``{$unset: {"arr.1": 1, "o.x": 1, m: 1}}``."""
    expected = {"_id": 1, "a": 1, "arr": [1, None, 3], "o": {"y": 2}, "z": 9}
    assert_folds(_SIX, description({"arr.1": None}, ["m", "o.x"]), expected)


def test_a_document_that_is_created_on_the_way_is_one_value() -> None:
    assert_folds({"_id": 1}, description({"n": {"e": {"w": 1}}}), {"_id": 1, "n": {"e": {"w": 1}}})


@pytest.mark.parametrize("target", ["z", "new"])
def test_a_renamed_field_replaces_its_target_in_place_or_comes_last(target: str) -> None:
    expected = {name: value for name, value in _SIX.items() if name != "m"} | {target: 1}
    assert_folds(_SIX, description({target: 1}, ["m"]), expected)


def test_a_renamed_field_that_equals_its_target_leaves_the_target_in_place() -> None:
    """The only operator that logs an unchanged scalar: ``{$rename: {m: "a"}}`` where both are 1."""
    expected = {name: value for name, value in _SIX.items() if name != "m"}
    assert_folds(_SIX, description({"a": 1}, ["m"]), expected)


def test_an_empty_patch_changes_nothing() -> None:
    base = bson.encode(_SIX)
    assert fold_with_certainty(base, description()) == (base, True, True)
    assert fold(base, bson.encode({"updatedFields": None, "removedFields": None, "truncatedArrays": None})) == base


# --- arrays


@pytest.mark.parametrize(
    ("before", "updated", "after"),
    [
        pytest.param([1, 2, 3], {"arr.1": 9}, [1, 9, 3], id="in place"),
        pytest.param([1, 2, 3], {"arr.3": 4}, [1, 2, 3, 4], id="$push"),
        pytest.param([1, 2, 3], {"arr.5": 1}, [1, 2, 3, None, None, 1], id="a gap is filled with nulls"),
        pytest.param([], {"arr.2": 1}, [None, None, 1], id="an empty array, too"),
        pytest.param(
            [1], {"arr.2": 0, "arr.9": 2, "arr.10": 1}, [1, None, 0, *[None] * 6, 2, 1], id="several, by number"
        ),
        pytest.param(
            [[1, 2], [3]], {"arr.3": {"x": {"y": 7}}}, [[1, 2], [3], None, {"x": {"y": 7}}], id="a new document"
        ),
        pytest.param([[1, 2], [3]], {"arr.1.2": {"y": 7}}, [[1, 2], [3, None, {"y": 7}]], id="an array in an array"),
        pytest.param([{"x": 1, "p": 2}], {"arr.0.x": 7}, [{"x": 7, "p": 2}], id="a document in an array"),
        pytest.param([1, 2, 3], {"arr": [3, 2]}, [3, 2], id="$pull, $pop, $sort and $[] log the whole"),
    ],
)
def test_patches_of_arrays_fold_as_the_server_applies_them(
    before: list[Any], updated: dict[str, Any], after: list[Any]
) -> None:
    assert_folds({"_id": 1, "arr": before, "z": 1}, description(updated), {"_id": 1, "arr": after, "z": 1})


def test_a_sorted_array_that_was_sorted_stays_in_place() -> None:
    """``$push`` with ``$sort`` logs an array even where nothing changes."""
    assert_folds(_SIX, description({"arr": [1, 2, 3]}), _SIX)


def test_arrays_are_truncated_before_they_are_written_to() -> None:
    patch = description({"arr.1.n": 1, "arr.0": 5}, ["arr.1.x"], {"arr": 2})
    assert_folds({"_id": 1, "arr": [0, {"x": 1}, 2, 3]}, patch, {"_id": 1, "arr": [5, {"n": 1}]})
    assert_folds(
        {"_id": 1, "arr": [0, 1, 2]}, description({"arr.1": 7}, None, {"arr": 0}), {"_id": 1, "arr": [None, 7]}
    )
    assert_folds({"_id": 1, "arr": [0, [1, 2]]}, description(None, None, {"arr.1": 1}), {"_id": 1, "arr": [0, [1]]})


def test_a_number_is_a_field_name_in_a_document() -> None:
    patch = description({"d.0": 5, "d.07": 6, "d.7": 1})
    assert_folds({"_id": 1, "d": {"0": 1, "y": 2}}, patch, {"_id": 1, "d": {"0": 5, "y": 2, "07": 6, "7": 1}})
    assert_folds({"_id": 1, "0": 1}, description({"0": 2, "1": 3}), {"_id": 1, "0": 2, "1": 3})


# --- the order of fields that a pipeline moved


def test_an_unchanged_field_in_the_event_has_moved_to_the_end() -> None:
    """``[{$replaceWith: {_id: 1, b: "$b", a: 1}}]``."""
    assert_folds({"_id": 1, "a": 1, "b": "bulk"}, description({"a": 1}), {"_id": 1, "b": "bulk", "a": 1})


def test_a_field_after_a_new_one_has_moved_to_the_end() -> None:
    """``[{$replaceWith: {_id: 1, …, z: 7, n: 1, a: 5}}]``: updated fields come before inserted ones."""
    base, expected = {"_id": 1, "a": 1, "z": 9, "b": "bulk"}, {"_id": 1, "z": 7, "b": "bulk", "n": 1, "a": 5}
    assert_folds(base, description({"z": 7, "n": 1, "a": 5}), expected)


def test_a_moved_and_changed_field_cannot_be_told_from_a_changed_one() -> None:
    """``{$set: {a: 5}}`` and ``[{$replaceWith: {_id: 1, b: "$b", a: 5}}]`` send the same event. The result says so."""
    folded = fold_with_certainty(bson.encode({"_id": 1, "a": 1, "b": "bulk"}), description({"a": 5}))
    assert folded == (bson.encode({"_id": 1, "a": 5, "b": "bulk"}), False, True)


@pytest.mark.parametrize(
    ("base", "patch"),
    [
        pytest.param({"_id": 1, "b": 1, "a": 1}, description({"a": 5}), id="the last field"),
        pytest.param({"_id": 1, "a": 1, "b": 1}, description({"n": 5}), id="a new field"),
        pytest.param({"_id": 1, "a": 1, "b": 1}, description(None, ["a"]), id="a removed field"),
        pytest.param({"_id": 1, "a": 1, "b": 1}, description({"a": 5}, ["b"]), id="the last one that is left"),
        pytest.param({"_id": 1, "a": [1, 2], "b": 1}, description({"a.0": 5}, paths={}), id="an element"),
        pytest.param(
            {"_id": 1, "a": 1, "b": 1}, bson.encode({"updatedFields": {"a": 5}, "removedFields": []}), id="4.4: no diff"
        ),
    ],
)
def test_the_order_is_certain_where_a_move_would_look_otherwise(base: dict[str, Any], patch: bytes) -> None:
    assert fold_with_certainty(bson.encode(base), patch).order_is_certain


def test_before_diffs_no_field_moves() -> None:
    """MongoDB 4.4 logs pipelines as replacements, and operators' fields in one sorted list.

    Not tested on a 4.4 server.
    """
    patch = bson.encode({"updatedFields": {"a": 1, "n": 1, "z": 2}, "removedFields": []})
    assert_folds({"_id": 1, "z": 1, "a": 1, "b": 1}, patch, {"_id": 1, "z": 2, "a": 1, "b": 1, "n": 1})


# --- the document's own _id


def test_the_id_stays_although_the_event_removes_it() -> None:
    """``[{$unset: "_id"}]``, ``[{$project: {_id: 0, z: 0}}]``."""
    assert_folds({"_id": 1, "a": 2, "z": 1}, description(None, ["z", "_id"]), {"_id": 1, "a": 2})
    assert_folds({"_id": 1, "a": 2}, description(None, ["_id"]), {"_id": 1, "a": 2})


def test_the_id_stays_first_although_the_event_inserts_it() -> None:
    """``[{$replaceWith: {$mergeObjects: [{default: 1, bulk: 1}, "$$ROOT"]}}]``: z moves behind the inserted _id."""
    base = {"_id": 1, "default": 1, "z": 2, "bulk": "p"}
    assert_folds(base, description({"_id": 1, "z": 5}), {"_id": 1, "default": 1, "bulk": "p", "z": 5})
    assert_folds(base, description({"_id": 1}), base)
    assert_folds(base | {"m": 1}, description({"_id": 1, "z": 5}, ["m"]), {"_id": 1, "default": 1, "bulk": "p", "z": 5})


# scenario: L10
def test_the_id_may_change_its_type() -> None:
    assert_folds({"_id": 1, "a": 1}, description({"_id": 1.0}), {"_id": 1.0, "a": 1})


def test_an_id_deeper_down_is_a_field_like_any_other() -> None:
    assert_folds(
        {"_id": 1, "d": {"_id": 2, "a": 1}}, description({"d.b": 1}, ["d._id"]), {"_id": 1, "d": {"a": 1, "b": 1}}
    )


# --- names with dots and dollars, and empty ones


# scenario: B11, K07
@pytest.mark.parametrize(
    ("base", "updated", "expected"),
    [
        pytest.param({"a": {"x": 1}}, {"a.b": 1}, {"a": {"x": 1, "b": 1}}, id="nested, new"),
        pytest.param({"a.b": 1}, {"a.b": 2}, {"a.b": 2}, id="literal, no parent"),
        pytest.param({"a": 5, "a.b": 1}, {"a.b": 2}, {"a": 5, "a.b": 2}, id="literal, scalar beside it"),
        pytest.param({"d": {"x.y": 1}}, {"d.x.y": 2}, {"d": {"x.y": 2}}, id="literal, deeper"),
        pytest.param({"a.b": {"c": 1}}, {"a.b.c": 2}, {"a.b": {"c": 2}}, id="through a dotted name"),
        pytest.param({"a.b": [1]}, {"a.b.0": 2}, {"a.b": [2]}, id="a dotted array"),
        pytest.param({"z": 1}, {"x.y": 1}, {"z": 1, "x.y": 1}, id="literal, new, nothing else possible"),
        pytest.param(_BIG, {"x": 2, "d.x": 5, "n": 1}, _BIG | {"x": 2, "d.x": 5, "n": 1}, id="top fields come first"),
        pytest.param({"o": {"": 1}}, {"o.": 5}, {"o": {"": 5}}, id="an empty name"),
        pytest.param({"o": {"x": 1}}, {"o.": 1}, {"o": {"x": 1, "": 1}}, id="an empty name, new"),
        pytest.param({"": {"": 1}}, {".": 2, "z": 1}, {"": {"": 1}, ".": 2, "z": 1}, id="a dot is a name"),
        pytest.param({"x": 1}, {"": 1}, {"x": 1, "": 1}, id="an empty name on top"),
        pytest.param(
            {"$a": {"b": 1}, "z": 1}, {"$a.b": 2, "$a.$c": 3}, {"$a": {"b": 2, "$c": 3}, "z": 1}, id="dollars"
        ),
    ],
)
def test_the_base_decides_how_a_dotted_path_reads(
    base: dict[str, Any], updated: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert_folds({"_id": 1} | base, description(updated), {"_id": 1} | expected)


# scenario: B11
@pytest.mark.parametrize(
    ("base", "patch"),
    [
        pytest.param({"a.b": 1, "a": {"b": 1}}, description({"a.b": 2}), id="both are there"),
        pytest.param({"a.b": 1, "a": {}}, description({"a.b": 2}), id="one is there, the other would be new"),
        pytest.param({"a": {"b": {}}, "a.b": {}}, description({"a.b.c": 2}), id="two parents"),
        pytest.param({"a": {}}, description({"a.b.c": 2}), id="two names that would hold a dot"),
        pytest.param({"a.b": 1, "a": {"b": 1}}, description(None, ["a.b"]), id="removed"),
        pytest.param({"a.b": [1], "a": {"b": [1]}}, description(None, None, {"a.b": 0}), id="truncated"),
    ],
)
def test_two_readings_are_one_too_many(base: dict[str, Any], patch: bytes) -> None:
    with pytest.raises(CannotFold, match=r"more than one reading of a path: name\.name"):
        fold(bson.encode({"_id": 1} | base), patch)


def test_removed_and_truncated_paths_resolve_only_to_existing_fields() -> None:
    assert_folds({"_id": 1, "a.b": 1, "a": {"c": 1}}, description(None, ["a.b"]), {"_id": 1, "a": {"c": 1}})
    assert_folds(
        {"_id": 1, "a.b": [1], "a": {"b": 1}}, description(None, None, {"a.b": 0}), {"_id": 1, "a.b": [], "a": {"b": 1}}
    )


def test_a_new_literal_name_looks_as_a_nested_field_does() -> None:
    """``[{$replaceWith: {$setField: {field: "o.x", …}}}]`` on 6.0.5: ambiguous without ``disambiguatedPaths``."""
    base = bson.encode({"_id": 1, "o": {"x": 1}})
    assert fold_with_certainty(base, description({"o.x": 2})) == (bson.encode({"_id": 1, "o": {"x": 2}}), True, False)
    assert fold_with_certainty(base, description({"o.x": 2}, paths={})) == (
        bson.encode({"_id": 1, "o": {"x": 2}}),
        True,
        True,
    )
    assert fold(base, description({"o.x": 2}, paths={"o.x": ["o.x"]})) == bson.encode(
        {"_id": 1, "o": {"x": 1}, "o.x": 2}
    )


_TROLLOPE = {
    "_id": 1,
    "name": "Anthony Trollope",
    "home.town": "Oxford",
    "residences": [{"0": "Oxford"}, {"1": "Sunbury"}],
}
_DEEP = {"_id": 1, "obj": {"sub.obj": {"d.o.t..": [[{"a": {"b.c": 1}}, "cut"]]}}}


# scenario: B11
@pytest.mark.parametrize(
    ("base", "patch", "changed"),
    [
        (_TROLLOPE, description({"home.town": "London"}, paths={"home.town": ["home.town"]}), {"home.town": "London"}),
        (
            _TROLLOPE,
            description({"residences.0.0": "London"}, paths={"residences.0.0": ["residences", 0, "0"]}),
            {"residences": [{"0": "London"}, {"1": "Sunbury"}]},
        ),
        (
            _DEEP,
            description(
                {"obj.sub.obj.d.o.t...0.0.a.b.c": 2},
                truncated={"obj.sub.obj.d.o.t...0": 1},
                paths={
                    "obj.sub.obj.d.o.t...0": ["obj", "sub.obj", "d.o.t..", 0],
                    "obj.sub.obj.d.o.t...0.0.a.b.c": ["obj", "sub.obj", "d.o.t..", 0, 0, "a", "b.c"],
                },
            ),
            {"obj": {"sub.obj": {"d.o.t..": [[{"a": {"b.c": 2}}]]}}},
        ),
    ],
    ids=["a dotted name", "a number as a name", "all at once"],
)
def test_a_disambiguated_path_is_folded_into_its_field(
    base: dict[str, Any], patch: bytes, changed: dict[str, Any]
) -> None:
    """Document and first event: MongoDB manual, change events, update, "Path Disambiguation".

    The other events have the form that MongoDB's own tests of 6.1 expect. The embedded server is older.
    """
    assert_folds(base, patch, base | changed)


# scenario: B11
def test_disambiguated_paths_decide_where_the_base_cannot() -> None:
    """Made-up event: both readings of every path exist."""
    base = {"_id": 1, "a.b": [1, 2], "a": {"b": [3, 4], "0": {"1.2": 5}, "b.0": 1}}
    truncated = base | {"a.b": [1]}
    assert_folds(base, description(None, None, {"a.b": 1}, {"a.b": ["a.b"]}), truncated)
    assert_folds(base, description({"a.b.0": 9}, paths={"a.b.0": ["a.b", 0]}), base | {"a.b": [9, 2]})
    assert_folds(
        base,
        description({"a.b.0": 9}, paths={"a.b.0": ["a", "b.0"]}),
        base | {"a": {"b": [3, 4], "0": {"1.2": 5}, "b.0": 9}},
    )
    assert_folds(base, description({"a.b.0": 9}, paths={}), base | {"a": {"b": [9, 4], "0": {"1.2": 5}, "b.0": 1}})
    removed = base | {"a": {"b": [3, 4], "0": {}, "b.0": 1}}
    assert_folds(base, description(None, ["a.0.1.2"], paths={"a.0.1.2": ["a", "0", "1.2"]}), removed)


@pytest.mark.parametrize(
    "paths",
    [
        {"a.0": ["a", "0"]},
        {"a.0": ["a.1"]},
        {"a.0": ["b", 0]},
        {"a.0": [2.5]},
        {"a.0": ["a.0", ""]},
        {"a.0": ["a", 0, 0]},
    ],
)
def test_a_disambiguated_path_that_does_not_fit_is_refused(paths: dict[str, Any]) -> None:
    """Made-up event."""
    with pytest.raises(CannotFold):
        fold(bson.encode({"_id": 1, "a": [1]}), description({"a.0": 2}, paths=paths))


# --- what cannot be applied


@pytest.mark.parametrize(
    ("base", "patch"),
    [
        pytest.param({"a": 5}, description({"a.b": 1}), id="through a scalar"),
        pytest.param({"a": [1]}, description({"a.0.b": 1}), id="through an array's scalar"),
        pytest.param({"a": [1]}, description({"a.1.b": 1}), id="through an index that is not there"),
        pytest.param({"a": [1]}, description({"a.b": 1}), id="a name in an array"),
        pytest.param({"a": [1]}, description({"a.01": 1}), id="a number with a leading zero in an array"),
        pytest.param({"a": [1]}, description({"a." + "9" * 5000: 1}), id="a number beyond all arrays"),
        pytest.param({"a": [1]}, description({"a.999999999": 1}), id="more nulls than the server would write"),
        pytest.param({}, description(None, ["secret"]), id="removes what is not there"),
        pytest.param({"a": [1]}, description(None, ["a.0"]), id="removes an element"),
        pytest.param({"a": [1]}, description(None, None, {"a": 2}), id="truncates to a longer array"),
        pytest.param({"a": [1]}, description(None, None, {"a": -1}), id="truncates to less than nothing"),
        pytest.param({"a": 1}, description(None, None, {"a": 0}), id="truncates a scalar"),
        pytest.param({"a": {"b": 1}}, description({"a": 1, "a.b": 2}), id="replaces and changes"),
        pytest.param({"a": {"b": 1}}, description({"a.b": 2}, ["a"]), id="removes and changes"),
        pytest.param({"a": 1}, description({"a": 2}, ["a"]), id="removes and sets"),
        pytest.param({"a": [{}, {}]}, description({"a.1.b": 2}, None, {"a": 1}), id="truncates and changes"),
        pytest.param({}, bson.encode({"truncatedArrays": [{"field": "a"}]}), id="no new size"),
        pytest.param({}, bson.encode({"updatedFields": {"x.y": 1}}), id="4.4: nothing creates a dotted name"),
    ],
)
def test_a_patch_that_does_not_fit_its_base_is_refused(base: dict[str, Any], patch: bytes) -> None:
    with pytest.raises(CannotFold):
        fold(bson.encode({"_id": 1} | base), patch)


def test_the_refusal_tells_the_paths_shape_and_neither_names_nor_values() -> None:
    with pytest.raises(CannotFold) as refused:
        fold(bson.encode({"_id": "key", "patients": ["flu"]}), description({"patients.0.smith": "cancer"}))
    assert str(refused.value) == "a path leads through a scalar or through nothing: name.#.name"


def test_names_that_stand_twice_survive_but_are_not_changed() -> None:
    """The primary changes the first field (``$set`` on 6.0.5). Secondaries change both (read in MongoDB's source)."""
    twice = ((rb.INT32, b"d", int32(1)), (rb.INT32, b"z", int32(1)), (rb.DOCUMENT, b"d", raw()))
    base = raw((rb.INT32, b"a", int32(1)), (rb.DOCUMENT, b"o", raw(*twice)))
    assert fold(base, description({"a": 2})) == raw((rb.INT32, b"a", int32(2)), (rb.DOCUMENT, b"o", raw(*twice)))
    beside = raw(twice[0], (rb.INT32, b"z", int32(9)), twice[2], (rb.INT32, b"n", int32(3)))
    assert fold(base, description({"o.z": 9, "o.n": 3})) == raw((rb.INT32, b"a", int32(1)), (rb.DOCUMENT, b"o", beside))
    for patch in (description({"o.d": 2}), description({"o.d.x": 2}), description(None, ["o.d"])):
        with pytest.raises(CannotFold, match="stands twice"):
            fold(base, patch)


def test_a_path_that_the_event_names_twice_is_refused() -> None:
    """A literal name and a nested field of one path, without ``disambiguatedPaths``."""
    twice = raw((rb.INT32, b"d", int32(1)), (rb.INT32, b"d", int32(2)))
    for base in ({"_id": 1}, {"_id": 1, "d": 0}):
        with pytest.raises(CannotFold, match="names a field twice"):
            fold(bson.encode(base), raw((rb.DOCUMENT, b"updatedFields", twice), (rb.ARRAY, b"truncatedArrays", raw())))


def test_an_array_with_odd_numbers_survives_but_is_not_changed() -> None:
    """MongoDB 6.0.5 renumbers the array, unless the new value has the size of the old one."""
    odd = raw((rb.INT32, b"5", int32(1)), (rb.INT32, b"", int32(2)))
    base = raw((rb.INT32, b"a", int32(1)), (rb.ARRAY, b"o", odd))
    assert fold(base, description({"a": 2})) == raw((rb.INT32, b"a", int32(2)), (rb.ARRAY, b"o", odd))
    with pytest.raises(CannotFold, match="not numbered from 0"):
        fold(base, description({"o.1": 2}))


# --- bytes


# scenario: K03, L13, L14
def test_every_value_passes_as_bytes() -> None:
    """Invalid UTF-8 in names and values, deprecated types, a NaN with a payload."""
    strange = [
        (rb.STRING, b"s\xff", string(b"\xff\xfe")),
        (rb.SYMBOL, b"sym", string(b"x")),
        (rb.UNDEFINED, b"u", b""),
        (rb.DB_POINTER, b"p", string(b"c") + b"0" * 12),
        (rb.CODE_WITH_SCOPE, b"w", int32(4 + 6 + 5) + string(b"f") + raw()),
        (rb.REGEX, b"r", b"a\0xmim\0"),
        (rb.DOUBLE, b"n", b"\x01\0\0\0\0\0\xf8\x7f"),
    ]
    base = raw((rb.INT32, b"_id", int32(1)), *strange, (rb.DOCUMENT, b"o\xff", raw(*strange)))
    updated = raw(*[(kind, b"new" + name, payload) for kind, name, payload in strange], (rb.NULL, b"o\xff.s\xff", b""))
    patch = raw((rb.DOCUMENT, b"updatedFields", updated), (rb.ARRAY, b"truncatedArrays", raw()))
    nested = raw((rb.NULL, b"s\xff", b""), *strange[1:])
    added = [(kind, b"new" + name, payload) for kind, name, payload in strange]
    assert fold(base, patch) == raw((rb.INT32, b"_id", int32(1)), *strange, (rb.DOCUMENT, b"o\xff", nested), *added)


# scenario: K09
def test_the_deepest_document_that_a_server_stores() -> None:
    base: dict[str, Any] = {"v": 1}
    expected: dict[str, Any] = {"v": 2}
    for _ in range(178):
        base, expected = {"n": base}, {"n": expected}
    assert_folds({"_id": 1} | base, description({"n." * 178 + "v": 2}), {"_id": 1} | expected)


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_damaged_bytes_are_an_error(cut: int) -> None:
    base, patch = bson.encode(_SIX), description({"a": 4, "o.x": 7}, ["m"])
    with pytest.raises(rb.MalformedBson):
        fold(base[:-cut], patch)
    with pytest.raises(rb.MalformedBson):
        fold(base, patch[:-cut])
