"""Format of a lake: the version of the stored names of its tables, columns and properties. Pure.

Every table holds its format in a property. There is one format, and no table of another format is read or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.errors import ConfigurationError
from strandline.model.tables import Layer, TableName

FORMAT: Final = 3
"""Format that this release reads and writes. Previews had the formats 0, 1 and 2."""
FORMAT_PROPERTY: Final = "strandline.format"
TABLE_PROPERTY: Final = "strandline.table"
_OURS: Final = "strandline."
_ANEW: Final[Mapping[Layer, str]] = {
    "silver": "drop the table, then strandline silver: it makes the table anew from bronze",
    "gold": "drop the table, then strandline gold: it builds the table anew",
}
_LAKE_ANEW: Final = "strandline capture with another lake.root or lake.catalog: it reads the source into a new lake"


def stamp(table: TableName) -> dict[str, str]:
    """Return the properties that every table of Strandline has from its creation: its format and its own name."""
    return {FORMAT_PROPERTY: str(FORMAT), TABLE_PROPERTY: str(table)}


def is_ours(table: TableName, properties: Mapping[str, str]) -> bool:
    """Return True if Strandline created *table*. A layer may hold tables of other programs.

    Delta copies properties to a clone. So a clone names the table that it was made of, and is not ours.
    """
    return properties.get(TABLE_PROPERTY, "").casefold() == str(table).casefold()  # a catalog may lower names


def format_of(properties: Mapping[str, str]) -> int:
    """Return the format in a table's properties. 0: the table has no such property, as in the first preview."""
    return int(properties.get(FORMAT_PROPERTY, "0"))


def refuse_other_format(table: TableName, properties: Mapping[str, str]) -> None:
    """Refuse a table that a newer release or a preview has written. A clone or a table of another program passes.

    Raises:
        ConfigurationError: The table has another format than this release.
    """
    number = format_of(properties)
    if TABLE_PROPERTY in properties and not is_ours(table, properties):
        return
    if number > FORMAT:
        raise ConfigurationError(
            f"{table} has format {number}, and this release knows format {FORMAT}; nothing was written",
            next_step="use the newer release that wrote it (strandline explain upgrades)",
        )
    if number < FORMAT and (table.layer == "control" or any(name.startswith(_OURS) for name in properties)):
        raise ConfigurationError(
            f"{table} was written by a preview (format {number}, and this release knows format {FORMAT});"
            " nothing was written",
            next_step=_ANEW.get(table.layer, _LAKE_ANEW),
        )


def require_ours(table: TableName, properties: Mapping[str, str]) -> None:
    """Refuse a table that stands under a name of Strandline's, and is not of this release.

    Raises:
        ConfigurationError: As `refuse_other_format`; or another program, or a clone, has made the table.
    """
    refuse_other_format(table, properties)
    if not is_ours(table, properties):
        raise ConfigurationError(
            f"{table} is a table that Strandline has not made; nothing was written",
            next_step=f"rename or drop {table}, then repeat the command",
        )
