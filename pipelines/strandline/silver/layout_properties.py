"""Layout of a silver table as its properties tell it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from strandline.io.delta_log.file_statistics import STATISTICS
from strandline.model.layout import Layout
from strandline.model.tables import quoted
from strandline.silver.compatibility import CLUSTER_BY

CLUSTERED_BY: Final = ("_key",)
_WORD: Final = re.compile(r"\w+")


def clustering_in(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the clustering columns of a table, from its properties."""
    return tuple(json.loads(properties[CLUSTER_BY])) if CLUSTER_BY in properties else CLUSTERED_BY


def clustering_columns(properties: Mapping[str, str], cluster_by: Sequence[str]) -> tuple[str, ...]:
    """Return the clustering columns that a table should have, with *cluster_by* of the settings."""
    return (*cluster_by, *CLUSTERED_BY) if cluster_by or clustering_in(properties) else ()


def is_laid_out(properties: Mapping[str, str], layout: Layout, *, bookkeeping: Sequence[str]) -> bool:
    """Return True if a table with these properties certainly has its layout, so that `lay_out` would do nothing."""
    columns = (*bookkeeping, *layout.cluster_by, *layout.statistics)
    is_clustered = clustering_in(properties) == clustering_columns(properties, layout.cluster_by)
    return is_clustered and properties.get(STATISTICS) == list_of(columns)


def list_of(columns: Sequence[str]) -> str:
    """Return the columns, once each, as Delta's list. A part that is no plain word is quoted."""
    parts = (
        ".".join(part if _WORD.fullmatch(part) else quoted(part) for part in column.split(".")) for column in columns
    )
    return ",".join(dict.fromkeys(parts))
