"""Format of a lake: the version of the stored names of its tables, columns and properties. Pure.

Every table holds its format in a property. There is one format, and no table of another format is read or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.errors import ConfigurationError
from strandline.model.tables import Layer, TableName

FORMAT: Final = 2
"""Format that this release reads and writes. Previews had the formats 0 and 1."""
FORMAT_PROPERTY: Final = "strandline.format"
STAMP: Final = {FORMAT_PROPERTY: str(FORMAT)}
"""Property that every table of Strandline has from its creation."""
_OURS: Final = "strandline."
_ANEW: Final[Mapping[Layer, str]] = {
    "silver": "drop the table, then strandline silver: it makes the table anew from bronze",
    "gold": "drop the table, then strandline gold: it builds the table anew",
}
_LAKE_ANEW: Final = "strandline capture with another lake.root or lake.catalog: it reads the source into a new lake"


def format_of(properties: Mapping[str, str]) -> int:
    """Return the format in a table's properties. 0: the table has no such property, as in the first preview."""
    return int(properties.get(FORMAT_PROPERTY, "0"))


def refuse_other_format(table: TableName, properties: Mapping[str, str]) -> None:
    """Refuse a table that a newer release or a preview has written. A table of another program passes.

    Raises:
        ConfigurationError: The table has another format than this release.
    """
    number = format_of(properties)
    if number > FORMAT:
        raise ConfigurationError(
            f"{table} has format {number}, and this release knows format {FORMAT}; nothing was written",
            next_step="use the newer release that wrote it (strandline explain upgrades)",
        )
    if number < FORMAT and is_ours(table, properties):
        raise ConfigurationError(
            f"{table} was written by a preview (format {number}, and this release knows format {FORMAT});"
            " nothing was written",
            next_step=_ANEW.get(table.layer, _LAKE_ANEW),
        )


def is_ours(table: TableName, properties: Mapping[str, str]) -> bool:
    """Return True if Strandline created the table. A layer may hold tables of other programs."""
    return table.layer == "control" or any(name.startswith(_OURS) for name in properties)
