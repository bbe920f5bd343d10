"""The job of ``run --once`` by other tools: from a MongoDB collection to Delta tables in a folder.

Each is a short script as a user writes it, with the types of `bench.documents` given where the tool takes types. It
runs in a process of its own: ``python -m bench.peers TOOL URI FOLDER DOCUMENTS``, with the Python of an environment
that has the tool. So no module is imported before its tool needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

DATABASE: Final = "whole"
COLLECTION: Final = "docs"
_PAGE: Final = 10_000
"""Documents that are read or converted at once."""
_RANGES: Final = 8
_DDL: Final = (
    "_id STRING, seq INT, name STRING, email STRING, active BOOLEAN, created TIMESTAMP, balance DECIMAL(38, 2), "
    "score DOUBLE, address STRUCT<street: STRING, zip: STRING, geo: STRUCT<lat: DOUBLE, lon: DOUBLE>>, "
    "tags ARRAY<STRING>, items ARRAY<STRUCT<sku: STRING, qty: INT, price: DOUBLE>>, notes STRING"
)


def with_cursor(uri: str, folder: Path, count: int) -> None:  # noqa: ARG001  # why: as of the other tools
    """A raw cursor: the limit. Documents are counted, not decoded, and nothing is written."""
    from pymongo import MongoClient

    from bench.limits import find_limit

    with MongoClient[dict[str, Any]](uri) as client:
        found, _ = find_limit(client, DATABASE)
    if found != count:
        raise RuntimeError(f"{found} documents were read, not {count}")


def with_pymongoarrow(uri: str, folder: Path, count: int) -> None:
    """PyMongoArrow and delta-rs: one table, one commit. Decimals and ids stay the bytes that the driver has."""
    import pyarrow as pa
    from deltalake import write_deltalake
    from pymongo import MongoClient
    from pymongoarrow.context import PyMongoArrowContext
    from pymongoarrow.schema import Schema
    from pymongoarrow.types import Decimal128Type, ObjectIdType

    schema = Schema(
        {
            "_id": ObjectIdType(),
            "seq": pa.int32(),
            "name": pa.string(),
            "email": pa.string(),
            "active": pa.bool_(),
            "created": pa.timestamp("ms", "UTC"),
            "balance": Decimal128Type(),
            "score": pa.float64(),
            "address": {"street": pa.string(), "zip": pa.string(), "geo": {"lat": pa.float64(), "lon": pa.float64()}},
            "tags": pa.list_(pa.string()),
            "items": pa.list_(pa.struct({"sku": pa.string(), "qty": pa.int32(), "price": pa.float64()})),
            "notes": pa.string(),
        }
    )

    def batches(pages: Iterator[bytes]) -> Iterator[Any]:
        for page in pages:
            context = PyMongoArrowContext(schema)
            context.process_bson_stream(page)
            table = context.finish()
            columns = [
                column.combine_chunks().storage.cast(pa.binary()) if name in ("_id", "balance") else column
                for name, column in zip(table.column_names, table.columns, strict=True)
            ]
            yield from pa.table(columns, names=table.column_names).to_batches()

    with MongoClient(uri) as client:
        pages = client[DATABASE][COLLECTION].find_raw_batches({}, batch_size=_PAGE, limit=count)
        read = batches(pages)
        first = next(read)
        rows = pa.RecordBatchReader.from_batches(first.schema, (one for some in ([first], read) for one in some))
        write_deltalake(str(folder), rows)


def with_dlt(uri: str, folder: Path, count: int) -> None:
    """dlt: its own inference of types, values below the first level as JSON text, Delta tables."""
    import dlt
    from dlt.destinations import filesystem
    from pymongo import MongoClient

    @dlt.resource(name=COLLECTION, table_format="delta", max_table_nesting=0)
    def documents() -> Iterator[list[dict[str, Any]]]:
        page = []
        with MongoClient(uri) as client:
            for document in client[DATABASE][COLLECTION].find({}, batch_size=_PAGE, limit=count):
                page.append(_plain(document))
                if len(page) == _PAGE:
                    yield page
                    page = []
        yield page

    target = filesystem(bucket_url=folder.absolute().as_uri())
    pipeline = dlt.pipeline("bench", pipelines_dir=str(folder / "state"), destination=target, dataset_name="bench")
    pipeline.run(documents())


def with_spark(uri: str, folder: Path, count: int) -> None:
    """Spark: the driver in Python workers, each with a range of ids, rows by pyarrow, one write of Delta."""
    import pyarrow as pa
    from bson import ObjectId
    from pymongo import MongoClient

    from strandline.io.spark.session import build_session
    from strandline.io.tables.ddl import schema_of

    spark = build_session("by hand", master="local[*]")
    with MongoClient[dict[str, Any]](uri) as client:
        by_id = client[DATABASE][COLLECTION].find({}, {"_id": 1}).sort("_id")
        lows = [by_id.clone().skip(count * number // _RANGES)[0]["_id"] for number in range(_RANGES)]
    bounds = zip(lows, [*lows[1:], ObjectId("f" * 24)], strict=True)
    arrow_schema = spark.createDataFrame([], schema_of(_DDL)).toArrow().schema

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with MongoClient[dict[str, Any]](uri) as client:
            for low, high in (
                (ObjectId(row["low"]), ObjectId(row["high"])) for one in batches for row in one.to_pylist()
            ):
                found = client[DATABASE][COLLECTION].find({"_id": {"$gte": low, "$lt": high}}, batch_size=_PAGE)
                while rows := [_plain(document) for document in islice(found, _PAGE)]:
                    yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema)

    ranges = spark.createDataFrame([(str(low), str(high)) for low, high in bounds], "low STRING, high STRING")
    rows = ranges.repartition(_RANGES).mapInArrow(read, _DDL)
    rows.write.format("delta").save(str(folder))


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with an id and a decimal that pyarrow knows."""
    return document | {"_id": str(document["_id"]), "balance": document["balance"].to_decimal()}


PEERS: Final[Mapping[str, Callable[[str, Path, int], None]]] = {
    "cursor": with_cursor,
    "pymongoarrow": with_pymongoarrow,
    "dlt": with_dlt,
    "spark": with_spark,
}


if __name__ == "__main__":
    PEERS[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
