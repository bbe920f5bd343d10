"""Read a lake's tables without Spark, with the library that you have: Arrow, pandas, polars or DuckDB.

    from pipelines.read import read

    read("orders").to_pandas()                              # live documents of silver.orders
    read("orders", using="polars").filter(...).collect()
    read("orders", using="duckdb").aggregate("count(*)")
    read("gold.daily_sales")

Each library reads the files itself. This module only finds the table and leaves out tombstones and bookkeeping columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

from deltalake import DeltaTable, QueryBuilder

from pipelines.errors import ConfigurationError
from pipelines.io.delta_rs_query import arrow_table, without_views
from pipelines.model.table_schemas import BOOKKEEPING

Library = Literal["arrow", "polars", "duckdb"]
"""Library that reads: ``arrow`` gives a `pyarrow.Table`, ``polars`` a LazyFrame, ``duckdb`` a relation."""

_LAYERS: Final = ("bronze", "silver", "gold", "control")
_HIDDEN: Final = frozenset(BOOKKEEPING) - {"_key"}


def read(
    table: str,
    *,
    root: str | Path = "lake",
    using: Library = "arrow",
    everything: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """Read a table of a lake by path.

    I/O: opens the table. ``polars`` and ``duckdb`` read data when the result is used.

    Args:
        table: ``orders`` or ``silver.orders``, ``gold.sales``, ``bronze.shop``, ``control.cuts``.
        root: Folder or URI of the lake (``lake.root``).
        using: Library that reads.
        everything: True: also tombstones and bookkeeping columns of a silver table. False: live documents only. A
            history table is always read as it is.
        storage_options: Options of delta-rs for an object store.

    Raises:
        ConfigurationError: There is no such table, or the library is not installed.
    """
    if using not in get_args(Library):
        raise ConfigurationError(f"using={using!r} is none of {', '.join(get_args(Library))}", next_step="choose one")
    layer, _, name = table.rpartition(".")
    layer = layer or "silver"
    if layer not in _LAYERS or not name:
        raise ConfigurationError(f"{table!r} is no table: layer.name", next_step="strandline status lists the tables")
    uri, options = f"{str(root).rstrip('/')}/{layer}/{name}", dict(storage_options or {})
    if not DeltaTable.is_deltatable(uri, options or None):
        raise ConfigurationError(f"there is no table {layer}.{name} in {root}", next_step="strandline status")
    names = [field.name for field in DeltaTable(uri, storage_options=options or None).schema().fields]
    return _READERS[using](uri, options, layer == "silver" and not everything and _is_current(names))


def _is_current(names: Sequence[str]) -> bool:
    """Return True for a silver table of present documents. A history or a quarantine is read as it is."""
    return set(BOOKKEEPING) - {"_inexact_because"} <= set(names)


def _columns(names: Sequence[str], *, live: bool) -> list[str]:
    return [name for name in names if not live or name not in _HIDDEN]


def _arrow(uri: str, options: dict[str, str], live: bool) -> Any:
    opened = DeltaTable(uri, storage_options=options or None)
    columns = ", ".join(_quoted(name) for name in _columns([field.name for field in opened.schema().fields], live=live))
    query = f"SELECT {columns} FROM t" + (" WHERE NOT _deleted" if live else "")
    return without_views(arrow_table(QueryBuilder().register("t", opened).execute(query).read_all()))


def _polars(uri: str, options: dict[str, str], live: bool) -> Any:
    polars = _imported("polars")
    rows = polars.scan_delta(uri, storage_options=options or None)
    names = rows.collect_schema().names()
    rows = rows.filter(~polars.col("_deleted")) if live else rows
    return rows.select(_columns(names, live=live))


def _duckdb(uri: str, options: dict[str, str], live: bool) -> Any:
    duckdb = _imported("duckdb")
    dataset = DeltaTable(uri, storage_options=options or None).to_pyarrow_dataset()
    rows = duckdb.from_arrow(dataset)
    columns = ", ".join(_quoted(name) for name in _columns(dataset.schema.names, live=live))
    return (rows.filter("NOT _deleted") if live else rows).project(columns)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _imported(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise ConfigurationError(f"{name} is not installed", next_step="pip install 'strandline[readers]'") from error


_READERS: Final = {"arrow": _arrow, "polars": _polars, "duckdb": _duckdb}
