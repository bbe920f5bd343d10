"""Comparison of every silver table with its source collection, document by document, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bson.raw_bson import RawBSONDocument
from pymongo.database import Database
from pymongo.read_concern import ReadConcern
from pyspark.sql import functions as F
from rich import box
from rich.table import Table

from strandline.io.tables.spark_tables import Tables
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.tables import TableName


@dataclass(frozen=True)
class CollectionProof:
    """Document counts of one comparison.

    *missing*: in the source only. *extra*: in silver only. *different*: in both, with different bytes.
    """

    collection: str
    source: int
    silver: int
    equal: int
    missing: int
    extra: int
    different: int

    @property
    def matches(self) -> bool:
        return self.missing == self.extra == self.different == 0 and self.source == self.silver


def compare(collection: str, source: Iterable[bytes], silver: Iterable[bytes]) -> CollectionProof:
    """Compare two sets of raw BSON documents by merge key and content. Pure. Keeps two digests per source document."""
    expected = {_digest(document_merge_key(document).encode()): _digest(document) for document in source}
    total = equal = extra = 0
    for document in silver:
        total += 1
        digest = expected.pop(_digest(document_merge_key(document).encode()), None)
        extra += digest is None
        equal += digest == _digest(document)
    return CollectionProof(
        collection,
        total - extra + len(expected),
        total,
        equal,
        len(expected),
        extra,
        total - extra - equal,
    )


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def prove(tables: Tables, database: Database[RawBSONDocument], collections: Iterable[str]) -> list[CollectionProof]:
    """Compare each of *collections* with its silver table.

    I/O: reads every document of both; writes nothing.
    """
    return [compare(name, _source(database, name), _silver(tables, TableName("silver", name))) for name in collections]


def _source(database: Database[RawBSONDocument], collection: str) -> Iterator[bytes]:
    """Yield all documents with read concern majority, because a change stream shows nothing newer."""
    majority = database.get_collection(collection, read_concern=ReadConcern("majority"))
    return (bytes(document.raw) for document in majority.find())


def _silver(tables: Tables, table: TableName) -> Iterator[bytes]:
    live = tables.read(table).where(~F.col("_deleted")).select("_document")
    return (value.as_py() for batch in live.toArrow().to_batches() for value in batch.column(0))


def as_table(proofs: Iterable[CollectionProof]) -> Table:
    """Return the comparisons as a table for the terminal. Red: a collection does not match."""
    table = Table(
        title="Silver against MongoDB, byte for byte", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for heading in ("collection", "source", "silver", "equal", "missing", "extra", "different"):
        table.add_column(heading, justify="left" if heading == "collection" else "right")
    for proof in proofs:
        counts = (proof.source, proof.silver, proof.equal, proof.missing, proof.extra, proof.different)
        table.add_row(proof.collection, *(f"{count:,}" for count in counts), style="green" if proof.matches else "red")
    return table
