"""Documents that JSON cannot show: silver marks exactly those that a strict capture refuses."""

from __future__ import annotations

from typing import Any

import bson
import pyarrow as pa
import pytest
from lakehouse import without_utf8

from strandline.model.bson import raw as rb
from strandline.model.bson.poison import LONGEST_NAME, json_problem
from strandline.silver.schema.batch_census import count_batch
from strandline.silver.schema.census import CensusTaker

LONG, LONGEST = "n" * (LONGEST_NAME + 1), "n" * LONGEST_NAME
DEEP: Any = {LONG: 1}
for _ in range(12):
    DEEP = {"d": DEEP}
TWICE = rb.document_of([bson.encode({"a": 1})[4:-1]] * 2)


@pytest.mark.parametrize(
    ("document", "is_poison"),
    [
        pytest.param({"a": 1, "é": ["🛫", {"b": None}]}, False, id="plain"),
        pytest.param({LONGEST: 1}, False, id="longest name"),
        pytest.param({LONG: 1}, True, id="too long a name"),
        pytest.param({"a": [{"b": 1}, {LONG: None}]}, True, id="too long a name in an array"),
        pytest.param({"a": DEEP}, True, id="too long a name below the depth of columns"),
        pytest.param({"a": bson.Code("f", {LONG: 1})}, True, id="too long a name in a scope"),
        pytest.param({"_id": 1, "a": [1] * 600_000}, False, id="JSON of 15 MB", marks=pytest.mark.slow),
        pytest.param({"_id": 1, "a": [1] * 800_000}, True, id="JSON of 20 MB", marks=pytest.mark.slow),
        pytest.param(without_utf8({"a": "XXXX"}).raw, True, id="text without UTF-8"),
        pytest.param(without_utf8({"a": {"XXXX": 1}}).raw.replace(b"XXXX", b"\xff" * 4), True, id="name without UTF-8"),
        pytest.param(TWICE, True, id="a name twice"),
        pytest.param(bson.encode({"a": [bson.raw_bson.RawBSONDocument(TWICE)]}), True, id="a name twice, nested"),
    ],
)
def test_silver_marks_the_documents_that_a_strict_capture_refuses(document: Any, is_poison: bool) -> None:
    raw = document if isinstance(document, bytes) else bson.encode(document)
    assert (json_problem(raw) is not None) == is_poison
    assert CensusTaker(8).count([raw]).holds_poison == is_poison
    together = CensusTaker(8)
    count_batch(together, pa.array([bson.encode({"_id": 1, "a": [1]})] * 20 + [raw], pa.binary()))
    assert together.census.holds_poison == is_poison
