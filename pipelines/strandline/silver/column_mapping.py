"""Reason why a portable table has Delta's column mapping, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from strandline.model.shape import Shape, needs_mapping
from strandline.model.tables import TableName
from strandline.silver.compatibility import compatibility_in, is_mapped_in
from strandline.silver.owned_table import shape_in

_AVOIDED_BY: Final = (
    "silver.field_name_adjustment_mode: avro_unicode, then strandline stop, rebuild and start, avoid it"
)


def mapping_note(table: TableName, properties: Mapping[str, str]) -> str | None:
    """Return the field that forces column mapping, and how to avoid it. None: a table without it, or a native one."""
    if compatibility_in(properties) != "portable" or not is_mapped_in(properties):
        return None
    name = next(mapped_names(shape_in(properties)), None)
    reason = "an earlier field name" if name is None else f"the field {name!r}"
    return f"{table} has column mapping because of {reason}, and few readers know it ({_AVOIDED_BY})"


def mapped_names(shape: Shape, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the path of each column whose own name Parquet cannot hold."""
    if shape.element is not None:
        yield from mapped_names(shape.element, path)
    for name, inner in shape.columns() if shape.kind == "struct" else ():
        if needs_mapping(name):
            yield ".".join((*path, name))
        yield from mapped_names(inner, (*path, name))
