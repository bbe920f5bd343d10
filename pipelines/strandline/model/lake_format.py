"""Format of a lake: the stored names of tables, columns and properties, and the migrations between formats. Pure.

Every table holds its format in a property. A release that changes a stored name raises `FORMAT` and adds a `Migration`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from strandline.errors import ConfigurationError
from strandline.model.tables import Layer, TableName

FORMAT: Final = 1
"""Format that this release writes."""
FORMAT_PROPERTY: Final = "strandline.format"
STAMP: Final = {FORMAT_PROPERTY: str(FORMAT)}
"""Property that every table of Strandline has from its creation."""
_OURS: Final = "strandline."
_ARCHIVE: Final = "_dropped_"
"""Part of the names of archive tables, which have no property of Strandline."""


@dataclass(frozen=True)
class ColumnRename:
    """Rename of a stored column.

    Args:
        table: Name of the table. None: every table of the layer.
        ddl: Type and comment of the new column.
        rewritten: True: the table is small, and one commit rewrites it. False: the new column is added, older rows keep
            their value in the old column, and readers use both columns (`column_names`).
    """

    layer: Layer
    table: str | None
    old: str
    new: str
    ddl: str
    rewritten: bool

    def affects(self, table: TableName) -> bool:
        return table.layer == self.layer and self.table in (None, table.name)


@dataclass(frozen=True)
class Migration:
    """Renames of one format.

    Args:
        format: Format after the migration.
        properties: Old names to new names. A name that ends in a dot is a prefix. No value is copied: a value under an
            old name is read under the new name (`current_names`) until a writer stores it there. So a migration cannot
            overwrite a newer value.
        columns: Columns to rename.
    """

    format: int
    properties: Mapping[str, str]
    columns: tuple[ColumnRename, ...] = ()


MIGRATIONS: Final = (
    Migration(
        1,
        properties={
            "strandline.floor": "strandline.purge_watermark",
            "strandline.ledger.": "strandline.progress_index.",
            "strandline.bronze": "strandline.bronze_progress",
            "strandline.folds": "strandline.has_patches",
            "strandline.ends": "strandline.incarnation_ends",
            "strandline.cluster": "strandline.deployment",
            "strandline.sql": "strandline.sql_hash",
        },
        columns=(
            ColumnRename(
                "bronze",
                None,
                "whole",
                "ends_outside_transaction",
                "BOOLEAN COMMENT 'last row of a batch: true if the batch ends outside a transaction;"
                " false or null: unknown'",
                rewritten=False,
            ),
            ColumnRename("control", "cuts", "because", "inexact_reasons", "ARRAY<STRING>", rewritten=True),
        ),
    ),
)


def format_of(properties: Mapping[str, str]) -> int:
    """Return the format in a table's properties. 0: a table of the first preview, which has no such property."""
    return int(properties.get(FORMAT_PROPERTY, "0"))


def is_ours(table: TableName, properties: Mapping[str, str]) -> bool:
    """Return True if Strandline created the table. A layer may hold tables of other tools."""
    return table.layer == "control" or _ARCHIVE in table.name or any(name.startswith(_OURS) for name in properties)


def refuse_newer(table: TableName, properties: Mapping[str, str]) -> None:
    """Raise ConfigurationError if a newer release has written the table."""
    if (found := format_of(properties)) > FORMAT:
        raise ConfigurationError(
            f"{table} has format {found}, and this release knows formats up to {FORMAT}; nothing was written",
            next_step="use the newer release that wrote it (docs/upgrades.md)",
        )


def pending(properties: Mapping[str, str]) -> tuple[Migration, ...]:
    """Return the migrations that a table still needs, oldest first."""
    return tuple(each for each in MIGRATIONS if each.format > format_of(properties))


def renames(table: TableName, migrations: tuple[Migration, ...] = MIGRATIONS) -> Iterator[ColumnRename]:
    """Yield the column renames of *table*, oldest first."""
    return (column for migration in migrations for column in migration.columns if column.affects(table))


def current_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Return *properties* under their current names. A value under the current name wins over one under an old name."""
    found = dict(properties)
    for migration in MIGRATIONS:
        for old, new in migration.properties.items():
            for name in [name for name in found if name == old or (old.endswith(".") and name.startswith(old))]:
                value = found.pop(name)
                found.setdefault(new + name.removeprefix(old), value)
    return found


def column_names(table: TableName, new: str) -> tuple[str, ...]:
    """Return the current name of the column *new* and its older names, newest first."""
    return (new, *(column.old for column in renames(table) if column.new == new))
