"""Jobs, runs and datasets of lineage as plain values; `strandline.io.telemetry.lineage_events` makes events of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal
from urllib.parse import urlsplit

from strandline.model.tables import Lake, TableName

RunState = Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]
Transformation = Literal["IDENTITY", "TRANSFORMATION", "AGGREGATION"]
"""How a column is made from another: as it is, by an expression on its row, or from several rows."""

_OBJECT_STORES: Final = ("s3", "gs", "abfss", "wasbs")
"""Schemes whose names of objects begin without a slash, in OpenLineage's naming."""


@dataclass(frozen=True)
class Dataset:
    """Name of a dataset, by the naming rules of OpenLineage."""

    namespace: str
    name: str

    @staticmethod
    def of_table(lake: Lake, table: TableName) -> Dataset:
        """Return the name of a table: its folder or its URI; in a catalog, its name there."""
        if not lake.by_path:
            return Dataset(lake.catalog or "", f"{lake.schema}_{table.layer}.{table.name}")
        path = lake.path(table)
        if not lake.in_object_store or path.startswith("file:"):
            return Dataset("file", path if not lake.in_object_store else urlsplit(path).path)
        parts = urlsplit(path)
        scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
        place = f"{scheme}://{parts.netloc}" if parts.netloc else scheme
        return Dataset(place, parts.path.lstrip("/") if scheme in _OBJECT_STORES else parts.path)

    @staticmethod
    def of_collection(hosts: str, collection: str) -> Dataset:
        """Return the name of a collection.

        Args:
            hosts: Hosts of the connection string, with ports, separated by commas. Their order does not matter.
            collection: ``database.collection``.
        """
        return Dataset(f"mongodb://{','.join(sorted(hosts.split(',')))}", collection)


@dataclass(frozen=True)
class ColumnSource:
    """A column of a table from which a column of a result is made."""

    table: TableName
    column: str
    transformation: Transformation


@dataclass(frozen=True)
class Assertion:
    """Result of one expectation. It holds no value of a row."""

    expectation: str
    column: str | None
    passed: bool
    blocks: bool
    """True: a failure closes the gate in front of gold."""


@dataclass(frozen=True)
class Input:
    """A dataset that a run reads."""

    dataset: Dataset
    assertions: tuple[Assertion, ...] = ()


@dataclass(frozen=True)
class Output:
    """A dataset that a run writes."""

    dataset: Dataset
    rows: int | None = None
    """Number of rows written, from the commit. None: unknown."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Type of each column. Empty: unknown."""
    sources: Mapping[str, tuple[tuple[Dataset, str, Transformation], ...]] = field(default_factory=dict)
    """Datasets, columns and transformations from which each column is made. Empty: unknown."""


@dataclass(frozen=True)
class Job:
    """A job: what runs again and again under one name."""

    name: str
    kind: str
    """``CAPTURE``, ``MERGE``, ``BUILD`` or ``CHECK``."""
    streams: bool = False
    """True: a run has no end of its own."""
    sql: str | None = None


@dataclass(frozen=True)
class RunReport:
    """State of one run of a job at one time."""

    job: Job
    run_id: str
    """UUID."""
    state: RunState
    at: datetime
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    error: str | None = None
    """One line without values of documents. None: no error."""
