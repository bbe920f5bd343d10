"""Documents of a batch that are read together have the same columns and the same census as documents read alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from decoding import decoded_alone, decoded_together
from hypothesis import given
from random_bson import damaged, random_batch
from seeds import SEEDS

from strandline.model.bson import raw as rb
from strandline.model.bson.raw import MalformedBson
from strandline.model.shape import Shape
from strandline.silver.decode.batch_documents import documents_in
from strandline.silver.decode.document import document_in
from strandline.silver.schema.batch_census import count_batch
from strandline.silver.schema.census import Census, CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, ColumnPlan, evolve

_DAMAGED = "damaged"


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except MalformedBson:
        return _DAMAGED


def random_shape(chance: Random, documents: list[bytes]) -> Shape:
    """Return the shape of some documents of the batch, or of others."""
    some = chance.choice((documents, documents[:5], random_batch(chance), []))
    limits = ColumnLimits(max_depth=chance.randint(1, 5), compatibility=chance.choice(("native", "portable")))
    taker = CensusTaker(limits.max_depth)
    for document in some:
        outcome(partial(taker.count, [document]))
    plan = ColumnPlan(chance.choice(("infer", "infer", "variant")))
    return evolve(Shape("struct"), taker.census, limits, plan)[0]


def compare_columns(seed: int) -> None:
    chance = Random(seed)
    documents = random_batch(chance)
    shape = random_shape(chance, documents)
    rows: list[bytes | None] = [*documents]
    if chance.random() < 0.3:
        rows.insert(chance.randrange(len(rows)), None)
    alone, together = (outcome(partial(read, shape, rows)) for read in (decoded_alone, decoded_together))
    assert repr(together) == repr(alone)  # NaN is not equal to NaN, and 0.0 is equal to -0.0


def names_in_order(census: Census) -> list[Any]:
    below = [names_in_order(census.element)] if census.element is not None else []
    return [[(name, names_in_order(inner)) for name, inner in census.fields.items()], *below]


def compare_census(seed: int) -> None:
    chance = Random(seed)
    documents, depth = random_batch(chance), chance.randint(1, 5)
    together = CensusTaker(depth)
    alone = outcome(lambda: CensusTaker(depth).count(documents))
    left = outcome(lambda: count_batch(together, pa.array(documents, pa.binary())))
    assert (left == _DAMAGED) == (alone == _DAMAGED)
    if left != _DAMAGED:
        assert together.census == alone
    if left == 0:
        assert names_in_order(together.census) == names_in_order(alone)


@given(SEEDS)
def test_columns_of_documents_read_together_are_those_of_documents_read_alone(seed: int) -> None:
    compare_columns(seed)


@given(SEEDS)
def test_the_census_of_documents_read_together_is_that_of_documents_read_alone(seed: int) -> None:
    compare_census(seed)


def random_envelopes(chance: Random) -> list[tuple[str | None, bytes | None]]:
    """Return events and READs, with and without a document, and some that are damaged."""

    def envelope(document: bytes) -> tuple[str | None, bytes | None]:
        op = chance.choice(("r", "c", "u", "u", None))
        kind = chance.choice((rb.DOCUMENT, rb.DOCUMENT, rb.DOCUMENT, rb.NULL, rb.ARRAY))
        whole = rb.element(b"fullDocument", kind, b"" if kind == rb.NULL else document)
        fields = [rb.element(b"_id", rb.INT32, b"1234"), *[whole] * chance.choice((1, 1, 1, 1, 0, 2))]
        event = rb.document_of([*fields, rb.element(b"operationType", rb.STRING, rb.string_value(b"insert"))])
        text = document if op == "r" else damaged(event, chance) if chance.random() < 0.02 else event
        return op, None if chance.random() < 0.05 else text

    return [envelope(document) for document in random_batch(chance)]


def compare_documents(seed: int) -> None:
    envelopes = random_envelopes(Random(seed))
    ops, texts = zip(*envelopes, strict=True)
    alone = outcome(lambda: [document_in(op, text) for op, text in envelopes])
    arrays = pa.array(ops, pa.string()), pa.array(texts, pa.binary())
    assert outcome(lambda: documents_in(*arrays).to_pylist()) == alone


@given(SEEDS)
def test_documents_are_found_in_many_envelopes_as_in_one(seed: int) -> None:
    compare_documents(seed)


@pytest.mark.long
def test_an_hour_of_random_batches() -> None:
    """New seeds in each run. A failure names its seed."""
    chance, end = Random(), time.monotonic() + 3_600
    while time.monotonic() < end:
        seed = chance.randrange(2**32)
        for compare in (compare_columns, compare_census, compare_documents):
            try:
                compare(seed)
            except Exception as error:
                raise AssertionError(f"{compare.__name__}({seed})") from error
