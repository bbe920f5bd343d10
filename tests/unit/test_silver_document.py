"""Documents in bronze rows."""

from __future__ import annotations

import bson
import pytest

from strandline.silver.decode.document import document_in, with_id_first


@pytest.mark.parametrize(
    "sent",
    [
        {"_id": 1, "q": 1},
        {"q": 1, "_id": 1},
        {"q": {"_id": 7, "x": "_id"}, "_id": {"b": 1, "_id": 2}, "z": [1]},
        {"q": 1},
        {},
    ],
)
def test_the_id_is_the_first_field_as_the_server_stores_it(sent: dict[str, object]) -> None:
    stored = {"_id": sent["_id"], **sent} if "_id" in sent else sent
    assert with_id_first(bson.encode(sent)) == bson.encode(stored)


def test_an_event_of_a_replacement_and_a_read_bring_the_same_document() -> None:
    replaced = bson.encode({"operationType": "replace", "fullDocument": {"q": 1, "_id": 1, "a": 2}})
    stored = bson.encode({"_id": 1, "q": 1, "a": 2})
    assert document_in("u", replaced) == stored == document_in("r", stored)
