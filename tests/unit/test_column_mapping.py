"""The reason for column mapping, in words."""

from __future__ import annotations

import json
import re

import pytest

from strandline.model.shape import Shape
from strandline.model.tables import TableName
from strandline.silver.column_mapping import mapping_note
from strandline.silver.compatibility import properties_of

ORDERS = TableName("silver", "orders")
PRICE = Shape("struct", fields={"a": Shape("long"), "unit price": Shape("double")})


@pytest.mark.parametrize(
    ("shape", "field"),
    [
        (PRICE, "the field 'unit price'"),
        (Shape("struct", fields={"lines": Shape("array", element=PRICE)}), "the field 'lines.unit price'"),
        (Shape("struct", fields={"a": Shape("long")}), "an earlier field name"),
    ],
)
def test_a_portable_table_names_the_field_and_what_avoids_it(shape: Shape, field: str) -> None:
    stored = {"strandline.shape": json.dumps(shape.to_json())}
    note = mapping_note(ORDERS, properties_of("portable", is_mapped=True) | stored)
    assert re.match(rf"silver\.orders has column mapping because of {field}, .*avro_unicode", note or "")
    assert mapping_note(ORDERS, properties_of("portable") | stored) is None
    assert mapping_note(ORDERS, properties_of("native") | stored) is None, "a native table has it anyway"
