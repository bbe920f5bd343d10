"""The check of a snapshot certificate against bronze."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Row

from strandline.jobs.snapshot.plan import Chunk, Plan
from strandline.jobs.snapshot.report import check_certificate
from strandline.source.client import Collection
from strandline.source.ranges import Range, ranges_between

SHOP = Collection("shop", "a", "00")
LEFT, RIGHT = ranges_between([b"\x0e\0\0\0\x10_id\0\x05\0\0\0\0"])


def row(kind: str, chunk: int, content: Any) -> Row:
    return Row(operation_type=kind, chunk=chunk, after=json.dumps(content))


def control(ranges: list[Range], *landed: int) -> list[Row]:
    plan = Plan(tuple(Chunk(number, SHOP, part) for number, part in enumerate(ranges)), 1)
    return [
        Row(operation_type="plan", chunk=-1, after=plan.to_json()),
        *(row("chunk", n, {"documents": 3}) for n in landed),
    ]


# scenario: A15, A20
def test_a_certificate_holds_when_the_chunks_tile_and_all_documents_are_there() -> None:
    (check,) = check_certificate(control([LEFT, RIGHT], 0, 1), {0: 3, 1: 3})
    assert check.holds
    assert (check.collection, check.chunks, check.documents, check.rows) == ("shop.a", 2, 6, 6)


def test_a_stopped_chunk_breaks_the_certificate_and_a_discarded_one_does_not() -> None:
    for reason, holds in (({"stopped_by": "s1"}, False), ({"namespace": "shop.a", "selected": None}, True)):
        (check,) = check_certificate([*control([LEFT, RIGHT], 0), row("discarded", 1, reason)], {0: 3})
        assert (check.holds, check.stopped, check.discarded) == (holds, int(not holds), int(holds))


def test_a_hole_a_missing_chunk_or_a_missing_row_breaks_it() -> None:
    for rows, counts in (
        (control([LEFT], 0), {0: 3}),
        (control([LEFT, RIGHT], 0), {0: 3}),
        (control([LEFT, RIGHT], 0, 1), {0: 3, 1: 2}),
    ):
        (check,) = check_certificate(rows, counts)
        assert not check.holds
