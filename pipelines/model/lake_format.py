"""The format of a lake: the names that its tables, columns and properties are stored under, and how one format becomes the next. Pure.

Every table says in a property which format it has. A release that changes a stored name raises `FORMAT` and adds a `Migration` for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pipelines.errors import ConfigurationError
from pipelines.model.tables import Layer, TableName

FORMAT: Final = 1
"""What this release writes."""
FORMAT_PROPERTY: Final = "strandline.format"
STAMP: Final = {FORMAT_PROPERTY: str(FORMAT)}
"""What every table of ours has from its creation."""
_OURS: Final = "strandline."
_ARCHIVE: Final = "_dropped_"
"""Stands in the names of tables that have no property of ours."""


@dataclass(frozen=True)
class ColumnRename:
    """A column that has another name now.

    Args:
        table: None: every table of the layer.
        ddl: Type and comment of the new column.
        rewritten: The table is small, and one commit writes it anew. False: the new column is added, older rows keep their value in the
            old one, and readers ask for both (`column_names`).
    """

    layer: Layer
    table: str | None
    old: str
    new: str
    ddl: str
    rewritten: bool

    def concerns(self, table: TableName) -> bool:
        return table.layer == self.layer and self.table in (None, table.name)


@dataclass(frozen=True)
class Migration:
    """From one format to the next.

    Args:
        format: To which it leads.
        properties: Old names to new ones; one that ends in a dot is the beginning of a name. No value is copied: what stands under an old
            name is read under the new one (`current_names`) until it is written there, so that nothing can be overwritten by what was read
            before.
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
                "BOOLEAN COMMENT 'on the row that ends a batch: the stream up to here ends inside no transaction;"
                " false or null: that is not known'",
                rewritten=False,
            ),
            ColumnRename("control", "cuts", "because", "inexact_reasons", "ARRAY<STRING>", rewritten=True),
        ),
    ),
)


def format_of(properties: Mapping[str, str]) -> int:
    """The format that a table's properties tell of; tables of the first preview do not tell."""
    return int(properties.get(FORMAT_PROPERTY, "0"))


def is_ours(table: TableName, properties: Mapping[str, str]) -> bool:
    """Whether strandline made the table: others may stand beside it in a layer."""
    return table.layer == "control" or _ARCHIVE in table.name or any(name.startswith(_OURS) for name in properties)


def refuse_newer(table: TableName, properties: Mapping[str, str]) -> None:
    """Raises ConfigurationError where a newer release has written the table."""
    if (found := format_of(properties)) > FORMAT:
        raise ConfigurationError(
            f"{table} has format {found}, and this release knows formats up to {FORMAT}; nothing was written",
            next_step="use the newer release that wrote it (docs/upgrades.md)",
        )


def pending(properties: Mapping[str, str]) -> tuple[Migration, ...]:
    """The migrations that a table lacks, oldest first."""
    return tuple(each for each in MIGRATIONS if each.format > format_of(properties))


def renames(table: TableName, migrations: tuple[Migration, ...] = MIGRATIONS) -> Iterator[ColumnRename]:
    """The columns of *table* that get another name, oldest first."""
    return (column for migration in migrations for column in migration.columns if column.concerns(table))


def current_names(properties: Mapping[str, str]) -> dict[str, str]:
    """The same properties, each under the name that it has today."""
    found = dict(properties)
    for migration in MIGRATIONS:
        for old, new in migration.properties.items():
            for name in [name for name in found if name == old or (old.endswith(".") and name.startswith(old))]:
                value = found.pop(name)
                found.setdefault(new + name.removeprefix(old), value)
    return found


def column_names(table: TableName, new: str) -> tuple[str, ...]:
    """The name of a column and those that it had before, newest first."""
    return (new, *(column.old for column in renames(table) if column.new == new))
