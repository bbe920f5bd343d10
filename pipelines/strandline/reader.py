"""Read a lake's tables without Spark, with the library that you have: Arrow, pandas, polars or DuckDB.

    from strandline import read

    read("orders").to_pandas()                              # live documents of silver.orders
    read("orders", using="polars").filter(...).collect()
    read("orders", using="duckdb").aggregate("count(*)")
    read("gold.daily_sales")

Each library reads the files itself. This module only finds the table, and leaves out tombstones and bookkeeping columns
other than ``_key`` and ``_rescued``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, get_args

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from strandline.errors import ConfigurationError, install_command
from strandline.io.delta_log.delta_rs_query import arrow_table, without_views
from strandline.model.query import DATAFUSION
from strandline.model.table_schemas import HIDDEN, has_bookkeeping
from strandline.model.tables import LAYERS, names_of_collection

Library = Literal["arrow", "polars", "duckdb"]
"""Library that reads: ``arrow`` gives a `pyarrow.Table`, ``polars`` a LazyFrame, ``duckdb`` a relation."""

_REASON: Final = "-- Not for DuckDB: "
_SCANNED: Final = re.compile(r"delta_scan\(\s*'((?:[^']|'')*)'\s*\)", re.IGNORECASE)


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
        table: ``orders`` or ``silver.orders``, ``gold.sales``, ``bronze.shop``, ``control.cuts``. A silver table may be
            named as its collection is in MongoDB. DuckDB computes a gold view, of a lake in a folder.
        root: Folder or URI of the lake (``lake.root``).
        using: Library that reads.
        everything: True: also tombstones and all bookkeeping columns of a silver table. False: live documents only. A
            history table is always read as it is.
        storage_options: Options of delta-rs for an object store.

    Raises:
        ConfigurationError: There is no such table, or the library is not installed.
    """
    if using not in get_args(Library):
        raise ConfigurationError(f"using={using!r} is none of {', '.join(get_args(Library))}", next_step="choose one")
    first, _, rest = table.partition(".")
    layer, name = (first, rest) if first in LAYERS else ("silver", table)
    options = dict(storage_options or {}) or None
    try:
        names = [name, *(names_of_collection(name) if layer == "silver" else ())]
        delta_table = _first_table(f"{str(root).rstrip('/')}/{layer}", names, options)
    except TableNotFoundError as error:
        view = Path(root, layer, "_views", f"{name}.duckdb.sql")
        if layer == "gold" and view.is_file():
            return _view(view, name, using)
        if layer == "gold" and (for_spark := view.with_name(f"{name}.spark.sql")).is_file():
            raise ConfigurationError(
                f"gold.{name} is a view for Spark only: {_why_not_duckdb(for_spark)}",
                next_step="strandline sql reads it; materialized: table makes a table of it",
            ) from error
        raise ConfigurationError(
            f"there is no table {layer}.{name} in {root}", next_step="strandline status"
        ) from error
    names = [field.name for field in delta_table.schema().fields]
    live = layer == "silver" and not everything and has_bookkeeping(names)  # a history or a quarantine is read as it is
    return _READERS[using](delta_table, [name for name in names if not live or name not in HIDDEN], live)


def _first_table(folder: str, names: Sequence[str], options: dict[str, str] | None) -> DeltaTable:
    """Return the first of *names* that is a table."""
    *others, last = names
    for name in others:
        with suppress(TableNotFoundError):
            return DeltaTable(f"{folder}/{name}", storage_options=options)
    return DeltaTable(f"{folder}/{last}", storage_options=options)


def _arrow(table: DeltaTable, columns: Sequence[str], live: bool) -> Any:
    query = f"SELECT {_listed(columns)} FROM t" + (" WHERE NOT _deleted" if live else "")
    return without_views(arrow_table(QueryBuilder().register("t", table).execute(query).read_all()))


def _polars(table: DeltaTable, columns: Sequence[str], live: bool) -> Any:
    polars = _imported("polars")
    rows = polars.scan_delta(table)
    # By a selector: a name alone may be a pattern (`*`, `^x.*$`).
    return (rows.filter(~polars.col("_deleted")) if live else rows).select(polars.selectors.by_name(*columns))


def _duckdb(table: DeltaTable, columns: Sequence[str], live: bool) -> Any:
    rows = _imported("duckdb").from_arrow(table.to_pyarrow_dataset())
    return (rows.filter("NOT _deleted") if live else rows).project(_listed(columns))


def _view(file: Path, name: str, using: Library) -> Any:
    """Return the rows of a gold view: DuckDB runs its SQL file, and delta-rs reads the tables."""
    text = file.read_text(encoding="utf-8")
    connection = _imported("duckdb").connect()
    for path in {path.replace("''", "'") for path in _SCANNED.findall(text)}:
        connection.register(path, DeltaTable(path).to_pyarrow_dataset())
    connection.execute("CREATE MACRO delta_scan(path) AS TABLE SELECT * FROM query_table(path)")
    connection.execute(text)
    rows = connection.table(f'gold."{name}"')
    if using == "polars":
        return _imported("polars").from_arrow(rows.to_arrow_table()).lazy()
    return rows.to_arrow_table() if using == "arrow" else rows


def _why_not_duckdb(for_spark: Path) -> str:
    lines = for_spark.read_text(encoding="utf-8").splitlines()
    return next((line.removeprefix(_REASON) for line in lines if line.startswith(_REASON)), "it was not translated")


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(DATAFUSION.name, columns))  # DuckDB quotes names in the same way


def _imported(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise ConfigurationError(f"{name} is not installed", next_step=install_command("readers")) from error


_READERS: Final = {"arrow": _arrow, "polars": _polars, "duckdb": _duckdb}
