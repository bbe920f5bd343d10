"""A reply that is split without the driver has the same documents and fields as the driver's own reading of it."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from strandline.model.bson.raw import MalformedBson, array_documents
from strandline.source.raw_reply import EventStream, RawReply, ReplyDocuments

OPTIONS: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawReply)
DOCUMENTS: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.dictionaries(
        st.sampled_from(["a", "b", "nextBatch"]),
        st.integers(-(2**63), 2**63 - 1) | st.text() | st.just([{}]),
        max_size=3,
    ),
    max_size=120,
)
CURSOR: dict[str, Any] = {"postBatchResumeToken": {"_data": "82"}, "id": bson.Int64(7), "ns": "shop.orders"}
REPLY: dict[str, Any] = {"ok": 1.0, "operationTime": bson.Timestamp(1, 2), "$clusterTime": {"clusterTime": 1}}


def array(documents: list[dict[str, Any]]) -> bytes:
    return bytes(bson.encode({"v": documents})[7:-1])


@given(DOCUMENTS, st.sampled_from(["firstBatch", "nextBatch"]), st.permutations([*CURSOR, "batch"]), st.booleans())
def test_a_reply_is_read_as_the_driver_reads_it(
    documents: list[dict[str, Any]], name: str, order: list[str], cursor_first: bool
) -> None:
    cursor = {key if key != "batch" else name: CURSOR.get(key, documents) for key in order}
    raw = bson.encode({"cursor": cursor, **REPLY} if cursor_first else {**REPLY, "cursor": cursor})
    reply, usual = RawReply(raw, OPTIONS), RawBSONDocument(raw)
    read, expected = reply["cursor"], usual["cursor"]
    assert [one.documents for one in read[name]] == [[bytes(one.raw) for one in expected[name]]] * bool(documents)
    assert set(read) == set(expected)
    assert bytes(read["postBatchResumeToken"].raw) == bytes(expected["postBatchResumeToken"].raw)
    assert (read["id"], read["ns"], read.get("partial")) == (7, "shop.orders", None)
    assert (reply["ok"], reply["operationTime"]) == (1.0, bson.Timestamp(1, 2))


@given(DOCUMENTS, st.data())
def test_a_damaged_array_is_refused_or_its_documents_are_whole(
    documents: list[dict[str, Any]], data: st.DataObject
) -> None:
    whole = array(documents)
    at = data.draw(st.integers(0, len(whole) - 1))
    assert array_documents(whole) == [bson.encode(one) for one in documents]
    for damaged in (whole[:at], whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :]):
        try:
            found = array_documents(damaged)
        except MalformedBson:
            continue
        assert all(int.from_bytes(one[:4], "little") == len(one) for one in found)


@pytest.mark.parametrize("element", [1, "text", [1], None])
def test_an_array_of_other_values_is_refused(element: object) -> None:
    with pytest.raises(MalformedBson):
        array_documents(array([{"a": 1}, element]))  # type: ignore[list-item]  # why: this is the damage


class Replies:
    """Stands for the driver's stream: replies, each with the token after it."""

    def __init__(self, *replies: tuple[list[bytes], str]) -> None:
        self._replies, self.alive, self.resume_token = list(replies), True, "start"

    def try_next(self) -> ReplyDocuments | None:
        documents, self.resume_token = self._replies.pop(0)
        self.alive = bool(self._replies)
        return ReplyDocuments(documents) if documents else None


def test_the_token_is_the_events_own_until_the_reply_ends() -> None:
    events = [bson.encode({"_id": {"_data": f"82{n}"}}) for n in range(3)]
    stream = EventStream(Replies((events[:2], "after 1"), ([], "idle"), (events[2:], "after 2")))  # type: ignore[arg-type]  # why: a stand-in
    seen = [(stream.resume_token, stream.alive)]
    for expected in (events[0], events[1], None, events[2]):
        assert stream.try_next() == expected
        token = stream.resume_token
        seen.append((token if isinstance(token, str) else token["_data"], stream.alive))
    assert seen == [("start", True), ("820", True), ("after 1", True), ("idle", True), ("after 2", False)]
