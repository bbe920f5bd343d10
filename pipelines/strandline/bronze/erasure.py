"""Erasure of documents from bronze: which rows go, and what the other rows lose that names them. Pure.

Three kinds of rows name a document besides its own: the end of a batch, whose resume token has the `_id` of the last
event; the control rows of a snapshot, whose ranges begin and end at an `_id`; and a row of the document itself that
ends a batch. The first gets a token of the same cluster time without an event, the second another bound, and the third
becomes a heartbeat.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from bson import encode
from bson.objectid import ObjectId

from strandline.model.bson.merge_key import document_merge_key
from strandline.model.namespaces import Namespace
from strandline.model.position import SNAPSHOT_SUFFIX

READS: Final = pa.schema(
    (name, pa.string()) for name in ("db", "collection", "key", "position", "op", "after", "resume_token")
)
"""Columns of bronze that tell which rows name a document."""
HEARTBEAT_COLUMNS: Final = (
    *("batch", "epoch", "source", "captured_at", "snapshot_id", "last_event", "writer"),
    *("op", "resume_token", "ends_outside_transaction"),
)
"""Columns that a row of a document keeps when it becomes a heartbeat."""
_NO_EVENT: Final = {"2B02": "29296E04", "2B04": "29296E1404"}
"""End of a token that names a time and no event, by the token's format. Source: ``resume_token.cpp`` of MongoDB."""
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
    """Documents to erase from bronze: those with one of the keys in one of the collections.

    `look` at all rows first: `cleaned` needs the tokens that it collects.
    """

    keys: frozenset[str]
    names: frozenset[Namespace]
    tokens: set[str] = field(default_factory=set)
    """Data of the resume tokens of the documents' events."""
    _bounds: dict[str, str] = field(default_factory=dict)
    """Bounds of snapshot chunks that are one of the documents, as bronze stores them, and what replaces each."""

    def is_of_documents(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """Return True for each row of one of the documents."""
        names = pc.binary_join_element_wise(rows["db"], rows["collection"], _SEPARATOR)
        is_key = pc.is_in(rows["key"], pa.array(self.keys, pa.string()))
        is_name = pc.is_in(names, pa.array(map(_SEPARATOR.join, self.names), pa.string()))
        return pc.fill_null(pc.and_(is_key, is_name), False)

    def look(self, rows: pa.RecordBatch) -> pa.Array:
        """Collect the tokens of the documents in *rows* (`READS`). Return True for each row that goes."""
        is_of_documents = self.is_of_documents(rows)
        positions = rows["position"].filter(is_of_documents).to_pylist()
        self.tokens.update(token for position in positions if (token := token_in(position)) is not None)
        return pc.and_(is_of_documents, pc.is_null(rows["resume_token"]))

    def names_documents(self, rows: pa.RecordBatch) -> bool:
        """Return True if a row (`READS`) that stays names one of the documents. Call it after `look` at all rows."""
        ends = pc.and_(self.is_of_documents(rows), pc.is_valid(rows["resume_token"]))
        return bool(pc.any(ends).as_py()) or bool(self.new_tokens(rows["resume_token"])) or bool(self._plans(rows))

    def new_tokens(self, resume_tokens: pa.Array | pa.ChunkedArray) -> dict[str, str]:
        """Return a token without an event for each token of one of the documents' events."""
        present = pc.unique(resume_tokens.drop_null()).to_pylist() if self.tokens else []
        return {token: time_token(token) for token in present if json.loads(token).get("_data") in self.tokens}

    def _plans(self, rows: pa.RecordBatch | pa.Table) -> dict[str, str]:
        """Return control rows of snapshots (``after``) that name one of the documents, and what replaces each."""
        is_control = pc.and_(pc.equal(rows["op"], "snapshot"), pc.match_substring(rows["after"], '"lower"'))
        return self.new_plans(rows["after"].filter(pc.fill_null(is_control, False)).to_pylist())

    def new_plans(self, plans: Iterable[str]) -> dict[str, str]:
        """Return what replaces each of *plans* that names one of the documents as a bound."""
        return {plan: new for plan in plans if (new := self._without_bounds(plan)) != plan}

    def _without_bounds(self, plan: str) -> str:
        for bound in _bounds_in(json.loads(plan)):
            if bound not in self._bounds and _key_of(bound) in self.keys:
                self._bounds[bound] = b64encode(encode({"_id": ObjectId()})).decode()
            plan = plan.replace(json.dumps(bound), json.dumps(self._bounds.get(bound, bound)))
        return plan

    def cleaned(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return whole *rows* of bronze without what names one of the documents. Rows that go are not in them."""
        ends, columns = self.is_of_documents(rows), list[pa.Array]()
        tokens, plans = self.new_tokens(rows["resume_token"]), self._plans(rows)
        if not tokens and not plans and not pc.any(ends).as_py():
            return rows
        for column in rows.schema:
            values = rows[column.name]
            if column.name == "resume_token":
                values = _replaced(values, tokens)
            elif column.name == "after":
                values = pc.if_else(ends, None, _replaced(values, plans))
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
