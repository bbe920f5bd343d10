"""Tokens of a server name the documents that `IdsInTokens` finds in them."""

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import PyMongoError
from test_document_keys import IDS

from strandline.model.bson.merge_key import document_merge_key
from strandline.model.ids_in_tokens import IdsInTokens

_EDGES = [0, -0.0, 1, 1.5, -1, -1.5, 127, 128, -128, 0.5, -0.5, 2**31, 2**53, 2**62, -(2**62), 1e300, float("-inf")]
_EDGES += [bson.Int64(2**63 - 1), bson.Int64(-(2**63)), bson.Decimal128("0.1"), bson.Decimal128("7.25"), 7.25]
_OTHERS: list[Any] = ["", "a\0b", "é", "a", "ab", b"x" * 254, b"x" * 255, {"_id": "a"}, {"_id": {"_id": 1}}, {"b": 1}]
_EXACT = (str, bson.ObjectId, bool, bytes, datetime.datetime, type(None))


def tokens_of(collection: Collection[dict[str, Any]], ids: list[Any]) -> dict[str, tuple[Any, str]]:
    """Insert documents. Return the `_id` and the token of each, by its key. The server refuses some."""
    raw = collection.with_options(bson.CodecOptions(document_class=RawBSONDocument))
    found = {}
    with raw.watch() as stream:
        for one in ids:
            with suppress(PyMongoError, bson.errors.BSONError):
                collection.insert_one({"_id": one})
        collection.insert_one({"_id": "the last one"})
        for event in stream:
            if event["documentKey"]["_id"] == "the last one":
                return found
            key = document_merge_key(event["documentKey"].raw)
            found[key] = (event["documentKey"]["_id"], str(event["_id"]["_data"]))
    raise AssertionError("the stream ended")


# promise 7
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(ids=st.lists(IDS, min_size=30, max_size=100))
def test_a_token_is_found_by_its_document_and_by_no_other(database: Database[dict[str, Any]], ids: list[Any]) -> None:
    database.a.delete_many({})
    tokens = tokens_of(database.a, [*ids, *_EDGES, *_OTHERS])
    assert len(tokens) > 30
    for key, (value, token) in tokens.items():
        rule = IdsInTokens([key])
        assert token in rule, key
        others = [other for other, (_, its) in tokens.items() if other != key and its in rule]
        is_exact = isinstance(value, _EXACT) or (isinstance(value, int) and abs(value) < 2**63)
        is_exact = is_exact and not isinstance(value, bson.Code)  # code is a `str` in Python, and a rare type
        if is_exact and not (isinstance(value, bytes) and len(value) > 254):
            inner = [other for other in others if not isinstance(tokens[other][0], RawBSONDocument)]
            assert inner == [], key
    assert all(token in IdsInTokens(tokens) for _, token in tokens.values())
    assert not any(token in IdsInTokens(['"another"']) for _, token in tokens.values())
    assert None not in IdsInTokens(tokens)
