"""Erasure of documents from bronze: which rows go, and what the other rows lose that names them. Pure.

Four kinds of rows name a document besides its own: the end of a batch, whose resume token has the `_id` of the last
event; the note of a gap or of a moved offset, which tells tokens; the control rows of a snapshot, whose ranges begin
and end at an `_id`; and a row of the document itself that ends a batch. The first two get tokens of the same cluster
time without an event, the third another bound, and the fourth becomes a heartbeat.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from bson import encode
from bson.objectid import ObjectId

from strandline.model.bson.merge_key import document_merge_key
from strandline.model.ids_in_tokens import IdsInTokens
from strandline.model.namespaces import Namespace
from strandline.model.position import SNAPSHOT_SUFFIX

READS: Final = pa.schema((name, pa.string()) for name in ("db", "collection", "key", "op", "after", "resume_token"))
"""Columns of bronze that tell which rows name a document."""
HEARTBEAT_COLUMNS: Final = (
    *("batch", "epoch", "source", "captured_at", "snapshot_id", "last_event", "writer"),
    *("op", "resume_token", "ends_outside_transaction"),
)
"""Columns that a row of a document keeps when it becomes a heartbeat."""
_NO_EVENT: Final = {"2B02": "29296E04", "2B04": "29296E1404"}
"""End of a token that names a time and no event, by the token's format. Source: ``resume_token.cpp`` of MongoDB."""
CONTROL_OPS: Final = ("snapshot", "gap", "offset")
"""Operations of the rows whose ``after`` may name a document."""
_TIME_DIGITS: Final = 18
_POSITION_DIGITS: Final = 17
_SEPARATOR: Final = "\0"
"""Stands in no name of a database or collection."""


def token_in(position: str | None) -> str | None:
    """Return the data of the resume token in a *position*. None: there is none, as in a row of a snapshot."""
    token = (position or "")[_POSITION_DIGITS:].partition("#")[0]
    return token if token and token != SNAPSHOT_SUFFIX else None


def without_token(position: str) -> str:
    """Return the position after all events of the same cluster time."""
    return position[:_POSITION_DIGITS] + SNAPSHOT_SUFFIX


def time_token(resume_token: str) -> str:
    """Return a resume token of the same cluster time without an event. A stream from there repeats that time's events.

    Args:
        resume_token: Token of an event, as Extended JSON.
    """
    data = json.loads(resume_token)["_data"]
    kind = data[_TIME_DIGITS : _TIME_DIGITS + 4]
    return json.dumps({"_data": data[:_TIME_DIGITS] + kind + _NO_EVENT[kind]})


@dataclass
class ErasureRule:
    """Documents to erase from bronze: those with one of the keys in one of the collections."""

    keys: frozenset[str]
    names: frozenset[Namespace]
    end: str | None = None
    """Resume token from which the next capture begins: it stays, or the events of its time would land twice."""
    _bounds: dict[str, str] = field(default_factory=dict)
    """Bounds of snapshot chunks that are one of the documents, as bronze stores them, and what replaces each."""

    @cached_property
    def tokens(self) -> IdsInTokens:
        """Resume tokens that contain the `_id` of one of the documents, or of one with the same `_id` elsewhere."""
        return IdsInTokens(self.keys)

    def is_of_documents(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """Return True for each row of one of the documents."""
        names = pc.binary_join_element_wise(rows["db"], rows["collection"], _SEPARATOR)
        is_key = pc.is_in(rows["key"], pa.array(self.keys, pa.string()))
        is_name = pc.is_in(names, pa.array(map(_SEPARATOR.join, self.names), pa.string()))
        return pc.fill_null(pc.and_(is_key, is_name), False)

    def goes(self, rows: pa.RecordBatch) -> pa.Array:
        """Return True for each of *rows* (`READS`) that goes."""
        return pc.and_(self.is_of_documents(rows), pc.is_null(rows["resume_token"]))

    def names_documents(self, rows: pa.RecordBatch) -> bool:
        """Return True if a row (`READS`) that stays names one of the documents."""
        ends = pc.and_(self.is_of_documents(rows), pc.is_valid(rows["resume_token"]))
        return bool(pc.any(ends).as_py()) or bool(self._tokens_in(rows)) or bool(self._control_texts(rows))

    def _tokens_in(self, rows: pa.RecordBatch) -> dict[str, str]:
        return self.new_tokens(pc.unique(rows["resume_token"].drop_null()).to_pylist())

    def new_tokens(self, resume_tokens: Iterable[str]) -> dict[str, str]:
        """Return a token without an event for each token of one of the documents' events."""
        others = (token for token in resume_tokens if token != self.end)
        return {token: time_token(token) for token in others if json.loads(token).get("_data") in self.tokens}

    def _control_texts(self, rows: pa.RecordBatch | pa.Table) -> dict[str, str]:
        """Return texts of control rows (``after``) that name one of the documents, and what replaces each."""
        is_control = pc.and_(pc.is_in(rows["op"], pa.array(CONTROL_OPS)), pc.is_valid(rows["after"]))
        return self.new_texts(rows["after"].filter(pc.fill_null(is_control, False)).to_pylist())

    def new_texts(self, texts: Iterable[str]) -> dict[str, str]:
        """Return what replaces each of the *texts* of control rows that names one of the documents."""
        return {text: new for text in texts if (new := self._without_bounds(self._without_tokens(text))) != text}

    def _without_tokens(self, text: str) -> str:
        """Return the text of a note without the documents' tokens, and without their part of positions."""
        content = json.loads(text) if "_data" in text else {}
        for token in filter(None, (content.get("from"), content.get("to"))):
            text = text.replace(json.dumps(token), json.dumps(self.new_tokens([token]).get(token, token)))
        return self.tokens.removed_from(text)

    def _without_bounds(self, plan: str) -> str:
        for bound in _bounds_in(json.loads(plan)) if '"lower"' in plan else ():
            if bound not in self._bounds and _key_of(bound) in self.keys:
                self._bounds[bound] = b64encode(encode({"_id": ObjectId()})).decode()
            plan = plan.replace(json.dumps(bound), json.dumps(self._bounds.get(bound, bound)))
        return plan

    def cleaned(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return whole *rows* of bronze without what names one of the documents. Rows that go are not in them."""
        ends, columns = self.is_of_documents(rows), list[pa.Array]()
        tokens, texts = self._tokens_in(rows), self._control_texts(rows)
        if not tokens and not texts and not pc.any(ends).as_py():
            return rows
        for column in rows.schema:
            values = rows[column.name]
            if column.name == "resume_token":
                values = _replaced(values, tokens)
            elif column.name == "after":
                values = pc.if_else(ends, None, _replaced(values, texts))
            elif column.name == "op":
                values = pc.if_else(ends, "heartbeat", values)
            elif column.name not in HEARTBEAT_COLUMNS:
                values = pc.if_else(ends, pa.scalar(None, column.type), values)
            columns.append(values)
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _replaced(values: pa.Array, new: Mapping[str, str]) -> pa.Array:
    if not new:
        return values
    place = pc.index_in(values, pa.array(list(new), values.type))
    return pc.coalesce(pa.array(list(new.values()), values.type).take(place), values)


def _bounds_in(plan: Mapping[str, Any]) -> Iterable[str]:
    """Return the bounds in the plan of a snapshot, or in the description of one chunk."""
    chunks = [plan, *plan.get("chunks", ())]
    return [bound for chunk in chunks for name in ("lower", "upper") if isinstance(bound := chunk.get(name), str)]


def _key_of(bound: str) -> str:
    return document_merge_key(b64decode(bound))
