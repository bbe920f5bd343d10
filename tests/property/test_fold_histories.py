"""Random updates on a real mongod: each event, folded onto the document before it, gives the exact document after it.

Any failure replays with the seed that it prints: ``pytest tests/property/test_fold_histories.py --hypothesis-seed=…``.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import errors
from pymongo.change_stream import CollectionChangeStream
from pymongo.collection import Collection
from pymongo.database import Database
from random_updates import HOSTILE, PLAIN, Document, Update, bulky, random_document, random_operators, random_pipeline

from strandline.model.bson import raw as rb
from strandline.silver.fold.document import CannotFold, fold_with_certainty

Db = Database[dict[str, Any]]
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


class History:
    """One collection and its change stream: raw events, without full documents."""

    def __init__(self, database: Db) -> None:
        self.written: Collection[dict[str, Any]] = database.get_collection("c")
        self.raw: Collection[RawBSONDocument] = database.get_collection("c", codec_options=_RAW)
        self.seen: Counter[str] = Counter()
        database.create_collection("c")
        self.stream: CollectionChangeStream[RawBSONDocument] = self.raw.watch()

    def state(self) -> bytes:
        found = self.raw.find_one({"_id": 1})
        assert found is not None
        return bytes(found.raw)

    def insert(self, document: Document) -> bytes:
        self.written.delete_many({})
        self.written.insert_one({"_id": 1, **document})
        self.event("insert")
        return self.state()

    def event(self, *kinds: str) -> bytes:
        """Return the next event of one of these kinds."""
        while True:
            raw = bytes(next(self.stream).raw)
            _, value, end = rb.field(raw, b"operationType") or (0, 0, 0)
            if raw[value + 4 : end - 1].decode() in kinds:
                return raw

    def change(self, update: Update, options: dict[str, Any]) -> bytes | None:
        """Run an update and return its event. None: the server refused it, or nothing changed."""
        try:
            if self.written.update_one({"_id": 1}, update, **options).modified_count == 0:
                return None
        except errors.WriteError:
            self.seen["refused by the server"] += 1
            return None
        return self.event("update", "replace")


def judge(base: bytes, event: bytes, stored: bytes, seen: Counter[str]) -> None:
    """Check that a fold is right, is wrong only in a part that it reports as uncertain, or refuses names with dots."""
    span = rb.field(event, b"updateDescription")
    if span is None or span[0] != rb.DOCUMENT:
        seen["replaced"] += 1
        return
    description = event[span[1] : span[2]]
    told = (bson.decode(base), bson.decode(description), bson.decode(stored))
    try:
        folded = fold_with_certainty(base, description)
    except CannotFold:
        seen["cannot fold"] += 1
        assert holds_dotted_name(told[0]) or holds_dotted_name(told[2]), told
        return
    seen["folded"] += 1
    if folded.document == stored:
        seen["certain"] += folded.order_is_certain and folded.paths_are_certain
        return
    assert not (folded.order_is_certain and folded.paths_are_certain), told
    if unordered(folded.document) == unordered(stored):
        seen["order differs"] += 1
        assert not folded.order_is_certain, told
    else:
        seen["path differs"] += 1
        assert not folded.paths_are_certain, told
        assert holds_dotted_name(told[2]), told


def unordered(raw: bytes, start: int = 0, kind: int = rb.DOCUMENT) -> Any:
    """Content without the order of fields, but with the order of array elements."""
    found: list[tuple[bytes, int, Any]] = []
    for inner, name, value, end in rb.elements(raw, start):
        nested = inner in (rb.DOCUMENT, rb.ARRAY)
        found.append((name, inner, unordered(raw, value, inner) if nested else raw[value:end]))
    return found if kind == rb.ARRAY else sorted(found, key=lambda element: element[0])


def holds_dotted_name(value: Any) -> bool:
    if isinstance(value, list):
        return any(holds_dotted_name(inner) for inner in value)
    return isinstance(value, dict) and any("." in name or holds_dotted_name(inner) for name, inner in value.items())


def assert_histories_fold(database: Db, names: tuple[str, ...], sequences: int, pipelines: bool) -> Counter[str]:
    history = History(database)

    @settings(
        max_examples=sequences,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.integers(0, 2**64))
    def one(seed: int) -> None:
        chance = Random(seed)
        base = history.insert(bulky(chance, random_document(chance, names, 3)))
        for _ in range(chance.randint(2, 8)):
            document = bson.decode(base)
            if pipelines and chance.random() < 0.6:
                update, options = random_pipeline(chance, document, names)
            else:
                update, options = random_operators(chance, document)
            event = history.change(update, options)
            if event is not None:
                stored = history.state()
                judge(base, event, stored, history.seen)
                base = stored

    with history.stream:
        one()
    return history.seen


# scenario: B11, K07
@pytest.mark.parametrize("names", [PLAIN, HOSTILE], ids=["plain names", "hostile names"])
def test_update_operators_fold_byte_for_byte(database: Db, names: tuple[str, ...]) -> None:
    seen = assert_histories_fold(database, names, sequences=75, pipelines=False)
    assert seen["folded"] > 75
    assert seen["order differs"] == seen["path differs"] == 0


# scenario: B11, K07
@pytest.mark.parametrize("names", [PLAIN, HOSTILE], ids=["plain names", "hostile names"])
def test_pipelines_and_operators_fold_byte_for_byte_or_say_what_is_open(database: Db, names: tuple[str, ...]) -> None:
    seen = assert_histories_fold(database, names, sequences=75, pipelines=True)
    assert seen["folded"] > 75


@pytest.mark.long
@pytest.mark.parametrize("pipelines", [False, True])
@pytest.mark.parametrize("names", [PLAIN, HOSTILE], ids=["plain names", "hostile names"])
def test_thousands_of_histories_fold(database: Db, names: tuple[str, ...], pipelines: bool) -> None:
    seen = assert_histories_fold(database, names, sequences=1250, pipelines=pipelines)
    assert pipelines or seen["order differs"] == seen["path differs"] == 0
