"""The section ``silver``: how its tables are named and typed, and what deletes, drops and renames do to them. Seen by `settings`, `cli` and
`jobs` only."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from pipelines.model.shape import NameAdjustment, SchemaMode, Shape, declared_columns
from pipelines.settings.selection import Names, Section, key_problems, split_names


class SilverSettings(Section):
    """How silver tables are named and typed."""

    naming: Literal["auto", "collection", "database_collection"] = Field(
        "auto",
        description="What a table's name is made of. `auto`: of the collection's name; of database and collection where `capture.scope` is "
        "`deployment`. A table that already holds the collection under the other name keeps it.",
    )
    table_prefix: str = Field(
        "", pattern=r"^([a-z][a-z0-9_]{0,40})?$", description="Stands before the name of every table."
    )
    table_delimiter: str = Field(
        "__",
        pattern=r"^[a-z0-9_]{1,10}$",
        description="Between database and collection. By the default no two collections share a table; by another one, two that would are "
        "refused.",
    )
    field_name_adjustment_mode: NameAdjustment = Field(
        "none",
        description="How a field's name becomes a column's, at every level: as it is; `avro`: whatever is no ASCII letter, digit or "
        "underscore is an underscore; `avro_unicode`: it is `_uxxxx`, an underscore too. Of two fields that come to the same name "
        "the second goes to `_rescued`. `_id` and columns that are declared stay as they are.",
    )
    deletes: Literal["soft", "hard"] = Field(
        "soft", description="Whether a deleted document's row keeps its last values."
    )
    on_drop: Literal["soft_delete", "keep", "archive"] = Field(
        "soft_delete",
        description="What becomes of a dropped collection's rows: tombstones, as in the source; they stay; or a copy goes to "
        "`<table>_dropped_<uuid>` first.",
    )
    on_rename: Literal["follow", "split"] = Field(
        "follow",
        description="Whether a renamed collection's rows leave the old table, or stay there as they were. The new one has them anyway.",
    )
    history: Literal["none", "scd2"] = Field(
        "none",
        description="Whether `<table>_history` keeps every version of every document; switched on later, it is filled from bronze.",
    )
    history_collections: Names = Field(
        (), description="Only these keep one, as plain names database.collection; empty: all."
    )
    schema_mode: SchemaMode = Field(
        "infer",
        description="Where columns come from: from what the documents hold, beside those declared below; from the declaration alone, in "
        "collections that have one (what else there is goes to `_rescued`); or the whole document is one VARIANT, `document`.",
    )
    columns: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="By database.collection, the type of a field whatever is met: `int`, `long`, `double`, `decimal(2)`, `string`, "
        "`objectId`, `bool`, `date`, `binary`, `uuid`, `json`, `variant`, `[type]` for an array, `{field: type}` for a document. "
        "What does not fit goes to `_rescued`.",
    )
    max_threads: int = Field(4, ge=1, le=64, description="Tables that are MERGEd at once.")
    max_columns: int = Field(
        500,
        ge=1,
        description="Maximum leaf columns of one table, at all levels of nesting together. Beyond it a new document is one VARIANT column: "
        "first documents whose field names look like data, then the deepest. Other new fields go to `_rescued`. Columns that exist stay. "
        "`rebuild` chooses again, from all documents.",
    )
    max_depth: int = Field(8, ge=1, description="Levels of nesting that become columns; deeper ones are VARIANT.")

    @field_validator("history_collections", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return split_names(value)

    @model_validator(mode="after")
    def _consistent(self) -> SilverSettings:
        problems = [
            *key_problems("columns", self.columns),
            *key_problems("history_collections", self.history_collections),
        ]
        if self.history_collections and self.history == "none":
            problems.append("history_collections stands without history: scd2")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @field_validator("columns")
    @classmethod
    def _types(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        problems = []
        for collection, said in value.items():
            try:
                declared_columns(said)
            except ValueError as error:
                problems.append(f"{collection}: {error}")
        if problems:
            raise ValueError("; ".join(problems))
        return value

    def declared(self, collection: str) -> dict[str, Shape]:
        """Columns that are declared for a collection (``database.collection``)."""
        return declared_columns(self.columns.get(collection, {}))

    def keeps_history(self, collection: str) -> bool:
        """Whether every version of this collection's documents is kept (``database.collection``)."""
        return self.history == "scd2" and (not self.history_collections or collection in self.history_collections)
