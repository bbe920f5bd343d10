"""Census of the documents of a batch, which are read together. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model.bson import raw as rb
from strandline.model.bson.columnar.batch import BsonBatch
from strandline.model.bson.columnar.decimals import Decimals, trailing_zeros
from strandline.model.bson.columnar.tree import Documents, Node, Values
from strandline.model.bson.poison import MOST_BYTES_OF_SHORT_JSON, json_problem
from strandline.silver.schema.census import NO_DECIMAL, SIMPLE_TYPES, UUID_SUBTYPE, Census, CensusTaker, count_value

_TENS: Final = 10 ** np.arange(19)
_UUID_BYTES: Final = 5 + 16


def count_batch(taker: CensusTaker, documents: pa.Array) -> int:
    """Add *documents* to the census of *taker*. Return the number of documents that were counted alone.

    Args:
        taker: Counts the documents that leave the batch, too.
        documents: Array of the type binary, without nulls.

    Raises:
        MalformedBson: A document is damaged.
    """
    large = documents.filter(pc.greater(pc.binary_length(documents), MOST_BYTES_OF_SHORT_JSON))
    taker.census.poisoned |= any(json_problem(document.as_py()) is not None for document in large)
    batch = BsonBatch(documents)
    taker.census.merge(_of_documents(Documents.of(batch), taker.max_depth))
    taker.count(left := batch.left())  # again as a whole, because the tree may lack some of it
    return len(left)


def _of_documents(documents: Documents, depth: int) -> Census:
    """Count fields in the order in which the bytes of the batch name them first."""
    fields = sorted(documents.fields.items(), key=lambda field: min(values.starts[0] for values in field[1].values()))
    return Census({"struct"}, fields={name: _of_node(node, depth - 1) for name, node in fields})


def _of_node(node: Node, depth: int) -> Census:
    census = Census()
    for kind, values in node.items():
        if kind == rb.DOCUMENT and depth > 0:
            census.merge(_of_documents(values.documents, depth))
        elif kind == rb.ARRAY and depth > 0:
            census.merge(Census({"array"}, element=_of_node(values.arrays.elements, depth - 1)))
        else:
            _count(census, values, depth)
    return census


def _count(census: Census, values: Values, depth: int) -> None:
    if (simple := SIMPLE_TYPES.get(values.kind)) is not None:
        census.types.add(simple)
        census.poisoned |= values.kind == rb.STRING and values.texts[1] is not None
    elif values.kind == rb.BINARY:
        census.types |= _binary_kinds(values)
    elif values.kind == rb.DECIMAL128:
        _count_decimals(census, values)
    else:
        _count_each(census, values, depth)


def _binary_kinds(values: Values) -> set[str]:
    subtypes = values.batch.uint8[values.starts + 4]
    is_uuid = (subtypes == UUID_SUBTYPE) & (values.ends - values.starts == _UUID_BYTES)
    flags_by_kind = {"uuid": is_uuid, "binary": subtypes == 0, "binData": ~is_uuid & (subtypes != 0)}
    return {kind for kind, flags in flags_by_kind.items() if flags.any()}


def _count_decimals(census: Census, values: Values) -> None:
    """Count digits as `decimal_digits` does."""
    decimals = Decimals.of(values)
    is_zero = decimals.is_small & (decimals.digits == 0)
    is_counted = decimals.is_small & ~(is_zero & decimals.is_negative)
    if (is_zero & decimals.is_negative).any():
        census.types.add(NO_DECIMAL)
    if is_counted.any():
        census.types.add("decimal")
        digits, exponents = decimals.digits[is_counted], decimals.exponents[is_counted]
        is_number = digits > 0
        wholes = np.where(is_number, np.searchsorted(_TENS, digits, "right") + exponents, 0)
        exact_scales = np.where(is_number, -exponents - trailing_zeros(digits), 0)
        census.integer_digits = max(census.integer_digits, int(wholes.max()))
        census.exact_scale = max(census.exact_scale, int(exact_scales.max()))
        census.written_scale = max(census.written_scale, int(-exponents.min()))
    _count_each(census, values.where(~decimals.is_small), 0)


def _count_each(census: Census, values: Values, depth: int) -> None:
    for start, end in zip(values.starts.tolist(), values.ends.tolist(), strict=True):
        count_value(census, values.batch.raw, values.kind, start, end, depth)
