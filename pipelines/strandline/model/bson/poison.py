"""Poison documents: MongoDB stores them, but JSON cannot show them. Bronze keeps their bytes. Pure."""

from __future__ import annotations

from typing import Final

from strandline.model.bson import raw as rb

LARGEST_JSON: Final = 16 * 1024 * 1024
"""Maximum characters of JSON text for Spark's `parse_json`."""
MOST_BYTES_OF_SHORT_JSON: Final = LARGEST_JSON // 16
"""Size of a document up to which its JSON is never longer than `LARGEST_JSON`: a value of no bytes in a field of one
byte becomes 30 characters (``"a" : { "$undefined" : true }``)."""
LONGEST_NAME: Final = 50_000
"""Maximum bytes of a field name. Jackson, Spark's JSON parser, refuses longer names."""


def json_problem(document: bytes) -> str | None:
    """Return the reason why JSON cannot show *document*, without its content. None: JSON can."""
    try:
        text = rb.canonical_json(document)
    except ValueError:
        return "libbson refuses it: a text or a name is no UTF-8, as a rule"
    if len(text) > LARGEST_JSON:
        return "its JSON text exceeds 16 MiB"
    return name_problem(document)


def name_problem(raw: bytes, start: int = 0) -> str | None:
    """Return the first problem of a field name in the document at *start*, at any level. None: no problem."""
    names: set[bytes] = set()
    for kind, name, value, _ in rb.elements(raw, start):
        if name in names:
            return "a name stands twice in one document"
        if len(name) > LONGEST_NAME:
            return f"a name has more than {LONGEST_NAME:,} bytes"
        if (trouble := name_problem_in(raw, kind, value)) is not None:
            return trouble
        names.add(name)
    return None


def name_problem_in(raw: bytes, kind: int, value: int) -> str | None:
    """Return the first problem of a field name in a value, as `name_problem` does: also in the scope of a function."""
    if kind in (rb.DOCUMENT, rb.ARRAY):
        return name_problem(raw, value)
    if kind == rb.CODE_WITH_SCOPE:
        return name_problem(raw, value + 8 + rb.int32_at(raw, value + 4))
    return None
