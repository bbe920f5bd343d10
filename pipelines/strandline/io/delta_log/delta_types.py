"""Types of a Delta table's columns, as Spark writes them. No Spark."""

from __future__ import annotations

import json
from typing import Any, Final

from deltalake import DeltaTable

_SPARK_NAMES: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def types_of(table: DeltaTable) -> dict[str, str]:
    """Return the type of each column, by name, as `DataFrame.dtypes` has it."""
    return {field["name"]: _simple(field["type"]) for field in json.loads(table.schema().to_json())["fields"]}


def comments_of(table: DeltaTable) -> dict[str, str]:
    """Return the comment of each column that has one, by name."""
    fields = json.loads(table.schema().to_json())["fields"]
    return {field["name"]: field["metadata"]["comment"] for field in fields if field["metadata"].get("comment")}


def has_type(table: DeltaTable, name: str) -> bool:
    """Return True if a column, at any level, has Delta's type *name*."""
    return _holds(json.loads(table.schema().to_json()), name)


def _holds(kind: Any, name: str) -> bool:
    if isinstance(kind, str):
        return kind == name
    inner = [field["type"] for field in kind.get("fields", ())]
    inner += [kind[key] for key in ("elementType", "keyType", "valueType") if key in kind]
    return any(_holds(part, name) for part in inner)


def _simple(kind: Any) -> str:
    if isinstance(kind, str):
        return _SPARK_NAMES.get(kind, kind)
    if kind["type"] == "struct":
        fields = ",".join(f"{field['name']}:{_simple(field['type'])}" for field in kind["fields"])
        return f"struct<{fields}>"
    if kind["type"] == "map":
        return f"map<{_simple(kind['keyType'])},{_simple(kind['valueType'])}>"
    return f"array<{_simple(kind['elementType'])}>"
