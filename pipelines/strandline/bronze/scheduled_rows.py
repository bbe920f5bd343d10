"""Rows of scheduled collections in bronze: the last read, and the digests of the documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from strandline.bronze.manifest_rows import control_rows
from strandline.io.tables.table_store import TableStore
from strandline.model.namespaces import ENDING_OPERATIONS, Namespace
from strandline.model.position import snapshot_position
from strandline.model.query import Query
from strandline.model.schedule import LastRead
from strandline.model.table_schemas import DOCUMENT_OPS
from strandline.model.tables import TableName
from strandline.model.timestamps import utc


def last_read(tables: TableStore, bronze: TableName, namespace: Namespace) -> LastRead | None:
    """Return the newest whole read of a collection, or its refusal. None: there is none. I/O: reads bronze."""
    rows = control_rows(bronze).where(
        ("operation_type", "in", ("chunk", "discarded")),
        ("db", "=", namespace.db),
        ("collection", "=", namespace.collection),
    )
    newest = tables.query(rows.select("captured_at", "after").order("-captured_at").limit(1))
    if not newest:
        return None
    began, content = utc(newest[0]["captured_at"]), json.loads(newest[0]["after"])
    documents, gone = content.get("documents", 0), content.get("gone", 0)
    return LastRead(
        began, content.get("seconds", 0.0), content.get("read", documents), documents + gone, content.get("refused")
    )


def document_digests(tables: TableStore, bronze: TableName, namespace: Namespace) -> dict[str, str]:
    """Return the SHA-256 of each document of a collection as bronze last had it, by MERGE key.

    Deleted documents are left out, and those that silver has ended since: at a drop or a rename, or because a snapshot
    of all collections did not find the collection. Empty: the newest row of the key is a change event, which is no
    plain document.

    I/O: reads the collection's rows in bronze.
    """
    of_name = Query(bronze).where(("db", "=", namespace.db), ("collection", "=", namespace.collection))
    ends = of_name.where(("op", "=", "ddl"), ("operation_type", "in", ENDING_OPERATIONS))
    end = tables.query(ends.aggregate(position=("max", "position")))[0]["position"] or ""
    end = max(end, _missing_at(tables, bronze, namespace))
    rows = of_name.where(("op", "in", DOCUMENT_OPS), ("key", "is not null", None), ("position", ">", end))
    newest: dict[str, tuple[str, str | None]] = {}
    for row in tables.query(rows.select("key", "position", "op").digest(digest="envelope")):
        key, position = row["key"], row["position"]
        if key not in newest or position > newest[key][0]:
            digest = row["digest"] if row["op"] == "r" else ""
            newest[key] = (position, None if row["op"] == "d" else digest)
    return {key: digest for key, (_, digest) in newest.items() if digest is not None}


def _missing_at(tables: TableStore, bronze: TableName, namespace: Namespace) -> str:
    """Return the position of the newest list of all collections without this one. Empty: none. I/O: reads bronze."""
    rows = tables.query(control_rows(bronze).where(("operation_type", "=", "plan")).select("after"))
    plans = (json.loads(row["after"]) for row in rows)
    return max((snapshot_position(*plan["at"]) for plan in plans if _lacks(plan, namespace)), default="")


def _lacks(plan: Mapping[str, Any], namespace: Namespace) -> bool:
    planned = (Namespace(chunk["db"], chunk["collection"]) for chunk in plan["chunks"])
    return plan["complete"] and str(namespace) not in plan.get("skipped", ()) and namespace not in planned
