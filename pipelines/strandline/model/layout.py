"""Layout of a silver table, as configured. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Columns that queries filter by. Nested columns by path: ``customer.city``."""

    cluster_by: tuple[str, ...] = ()
    """Columns by which files are clustered, besides ``_key``."""
    statistics: tuple[str, ...] = ()
    """Columns with file statistics, besides bookkeeping columns and *cluster_by*."""
