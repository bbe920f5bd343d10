"""Documents that MongoDB stores and JSON cannot show. They land as the bytes they are; ``dead_letters`` says why. Pure."""

from __future__ import annotations

from typing import Final

from pipelines.model.bson import raw as rb

LARGEST_JSON: Final = 16 * 1024 * 1024
"""Characters of JSON that Spark's `parse_json` is given at most."""
LONGEST_NAME: Final = 50_000
"""Jackson, with which Spark parses, refuses longer names."""


def why_not_json(document: bytes) -> str | None:
    """Why no JSON text says the same as *document*, without a word of its content; None: there is one."""
    try:
        text = rb.canonical_json(document)
    except ValueError:
        return "libbson refuses it: a text or a name is no UTF-8, as a rule"
    if len(text) > LARGEST_JSON:
        return "its JSON text exceeds 16 MiB"
    return trouble_with_names(document)


def trouble_with_names(raw: bytes, start: int = 0) -> str | None:
    """What is wrong with a name in the document at *start*, or in one inside it."""
    names: set[bytes] = set()
    for kind, name, value, _ in rb.elements(raw, start):
        if name in names:
            return "a name stands twice in one document"
        if len(name) > LONGEST_NAME:
            return f"a name has more than {LONGEST_NAME:,} bytes"
        if kind in (rb.DOCUMENT, rb.ARRAY) and (trouble := trouble_with_names(raw, value)) is not None:
            return trouble
        names.add(name)
    return None
