"""Sources of a dbt project, as the content of its YAML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from strandline.errors import ConfigurationError
from strandline.model.tables import Lake, TableName

DuckDbReader = Literal["delta_scan", "plugin"]
"""Way in which dbt-duckdb reads a lake by path: DuckDB's extension ``delta``, or dbt-duckdb's plugin ``delta``."""
_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*\Z")


@dataclass(frozen=True)
class DescribedTable:
    """Table or view, with what dbt shows of it.

    *types* and *comments* are by column name. A column without a comment is not in *comments*.
    """

    table: TableName
    description: str
    types: Mapping[str, str]
    comments: Mapping[str, str]


def dbt_sources(lake: Lake, described: Sequence[DescribedTable], reader: DuckDbReader) -> dict[str, Any]:
    """Return one dbt source per layer. Pure.

    A lake by path is for dbt-duckdb: each table has its path. A lake in a catalog is for dbt-spark and dbt-databricks:
    each source has its catalog and schema.

    Raises:
        ConfigurationError: The lake's path has braces, and *reader* is ``delta_scan``.
    """
    layers = dict.fromkeys(table.table.layer for table in described)
    sources = [
        {
            "name": layer,
            "description": f"Strandline: the {layer} tables.",
            **({} if lake.by_path else {"database": lake.catalog, "schema": f"{lake.schema}_{layer}"}),
            "tables": [_table(lake, table, reader) for table in described if table.table.layer == layer],
        }
        for layer in layers
    ]
    return {"version": 2, "sources": sources}


def _table(lake: Lake, described: DescribedTable, reader: DuckDbReader) -> dict[str, Any]:
    location = {"config": {"meta": _location(lake, described.table, reader)}} if lake.by_path else {}
    columns = [
        {
            "name": name,
            **({} if _PLAIN.match(name) else {"quote": True}),
            "data_type": kind,
            **({"description": described.comments[name]} if name in described.comments else {}),
        }
        for name, kind in described.types.items()
    ]
    return {"name": described.table.name, "description": described.description, **location, "columns": columns}


def _location(lake: Lake, table: TableName, reader: DuckDbReader) -> dict[str, str]:
    path = re.sub(r"^s3a://", "s3://", lake.path(table))
    if reader == "plugin":
        return {"plugin": "delta", "delta_table_path": path}
    if "{" in path or "}" in path:
        raise ConfigurationError(
            f"dbt-duckdb takes the braces in {path} for a name to fill in", next_step="add --reader plugin"
        )
    escaped = path.replace("'", "''")
    return {"external_location": f"delta_scan('{escaped}')"}
