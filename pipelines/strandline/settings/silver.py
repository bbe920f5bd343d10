"""Settings section ``silver``: names and types of the tables, and the effect of deletes, drops and renames.

Used by `settings`, `cli` and `jobs` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from strandline.errors import ConfigurationError
from strandline.model.child_table import Child
from strandline.model.layout import Layout
from strandline.model.regex_input import compiled
from strandline.model.shape import Compatibility, NameAdjustment, SchemaMode, Shape, declared_columns
from strandline.model.table_properties import property_problems
from strandline.model.tables import TableName
from strandline.model.tenants import group_columns, table_problem
from strandline.settings.selection import Engine, Names, Section, key_problems

_TABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,99}")


class TableLayout(Section):
    """Columns of one silver table that queries filter by. Nested columns by path: ``customer.city``."""

    cluster_by: Names = Field((), description="Columns by which files are clustered.", max_length=3)
    statistics: Names = Field((), description="More columns with file statistics.")


class ChildTable(Section):
    """A child table: one row for each element of an array."""

    table: str = Field(
        pattern=rf"^{_TABLE_NAME.pattern}$", description="Name of the table, without `silver.` and `table_prefix`."
    )
    key: str | None = Field(
        None,
        min_length=1,
        description="Field that identifies an element in its array. null: the place in the array does.",
    )
    keep: bool = Field(
        True,
        description="False: the table of the documents has no column for the array. An existing table changes with "
        "`strandline rebuild`.",
    )


class TenantTable(Section):
    """A table of collections of many databases."""

    model_config = ConfigDict(populate_by_name=True)

    pattern: str = Field(
        alias="from",
        description="Regular expression that matches the whole `database.collection` of each collection. Its named "
        "groups are columns.",
    )


class SilverSettings(Section):
    """Names, types and deletes of silver tables."""

    engine: Engine | None = Field(
        None,
        description="Program that merges changes into silver. `auto`: delta-rs, in this process, in a fraction of the "
        "time, if it reaches the lake (a folder of this machine, or S3), the table is portable and the batch fits the "
        "memory of the process; Spark is started for all else, such as drops, renames, wider columns and sweeps "
        "(`strandline explain start`). `spark`: Spark merges every batch. null: as `engine`.",
    )
    naming: Literal["auto", "collection", "database_collection"] = Field(
        "auto",
        description="Parts of a silver table's name. `collection`: the collection. `database_collection`: database and "
        "collection. `auto`: database and collection if `capture.scope` is `deployment`, else the collection. With "
        "`auto`, a table that already holds the collection under the other name keeps its name.",
    )
    tables: dict[str, TenantTable] = Field(
        default_factory=dict,
        description="Tables with the documents of many collections, by name without `silver.` and `table_prefix`: "
        "`{orders: {from: 'tenant_(?P<tenant>.*)\\.orders'}}`. The named groups of the regular expression are columns. "
        "Other settings of silver name such a table by its name, instead of a database.collection (`strandline explain "
        "tenants`).",
    )
    table_prefix: str = Field(
        "", pattern=r"^([a-z][a-z0-9_]{0,40})?$", description="Prefix of the name of every silver table."
    )
    table_delimiter: str = Field(
        "__",
        pattern=r"^[a-z0-9_]{1,10}$",
        description="Text between database and collection in a table's name. With the default, no two collections "
        "get the same table name. With another delimiter they may; such collections are refused.",
    )
    field_name_adjustment_mode: NameAdjustment = Field(
        "none",
        description="Conversion of field names to column names, at every level. `none`: no change. `avro`: replace "
        "every character that is not an ASCII letter, digit or underscore by an underscore. "
        "`avro_unicode`: replace it, and the underscore, by `_uxxxx`. If two fields get the same name, "
        "the second goes to `_rescued`. `_id` and declared columns are not changed.",
    )
    compatibility: Compatibility = Field(
        "portable",
        description="Delta features of new silver tables. `portable`: none that a reader must know, so every reader of "
        "Delta reads the tables (`strandline explain readers`). Mixed types are JSON text. `native`: VARIANT, type "
        "widening, "
        "deletion vectors and column mapping. MERGE is cheaper, and Spark 4.1 or Databricks is needed to read. An "
        "existing table keeps its features until `strandline rebuild`.",
    )
    compatibility_by_collection: dict[str, Compatibility] = Field(
        default_factory=dict,
        description="Exceptions from `silver.compatibility`, by database.collection.",
    )
    layout: dict[str, TableLayout] = Field(
        default_factory=dict,
        description="Columns that queries filter by, by database.collection: `{cluster_by: [placed], statistics: "
        "[customer.city]}`. A query by such a column skips data files. `cluster_by` also keeps near values in one "
        "file, and makes MERGE dearer; at most three columns. Files that exist change when they are rewritten.",
    )
    children: dict[str, dict[str, ChildTable]] = Field(
        default_factory=dict,
        description="Child tables, by database.collection and path of an array: `{lines: {table: order_lines, key: "
        "sku}}`. A child table has one row for each element, and follows its parent's changes (`strandline explain "
        "children`).",
    )
    table_properties: dict[str, str] = Field(
        default_factory=dict,
        description="Delta properties of silver and history tables: `{delta.checkpointInterval: 50}`. They are set "
        "with the next changes of a table, without a rewrite. A property that is no longer named is unset. Properties "
        "that Strandline depends on are refused.",
    )
    table_properties_by_collection: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="More Delta properties, by database.collection. They override `silver.table_properties`.",
    )
    live_views: bool = Field(
        True,
        description="True: in a catalog with views, each silver table has a view `<table>_live` of its live documents, "
        "without tombstones and without bookkeeping columns other than `_key` and `_rescued`. It is created if nothing "
        "has its name.",
    )
    deletes: Literal["soft", "hard"] = Field(
        "soft",
        description="Values of deleted documents. `soft`: the row keeps its last values. `hard`: the values are "
        "removed.",
    )
    on_drop: Literal["soft_delete", "keep", "archive"] = Field(
        "soft_delete",
        description="Action on the rows of a dropped collection. `soft_delete`: turn them into tombstones. `keep`: "
        "leave them. `archive`: copy them to `<table>_dropped_<uuid>`, then turn them into tombstones.",
    )
    on_rename: Literal["follow", "split"] = Field(
        "follow",
        description="Action on the rows of a renamed collection in the old table. `follow`: remove them. `split`: "
        "leave them as they were. The new table has the rows in both cases.",
    )
    history: Literal["none", "scd2"] = Field(
        "none",
        description="`scd2`: keep every version of every document in `<table>_history`. If it is switched on "
        "later, it is filled from bronze. `none`: no history.",
    )
    history_collections: Names = Field(
        (), description="Collections with history, as plain names database.collection. Empty: all."
    )
    schema_mode: SchemaMode = Field(
        "infer",
        description="Source of the columns. `infer`: the values of the documents, plus the columns declared below. "
        "`declared`: only the declared columns, in collections that have a declaration; other values go to "
        "`_rescued`. `variant`: one column, `document`, for the whole document: VARIANT, or JSON text if portable.",
    )
    columns: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Declared column types, by database.collection and field: `int`, `long`, `double`, `decimal(2)`, "
        "`string`, `objectId`, `bool`, `date`, `binary`, `uuid`, `json`, `variant`, `[type]` for an array, "
        "`{field: type}` for a document. Values that do not fit go to `_rescued`.",
    )
    max_threads: int = Field(4, ge=1, le=64, description="Maximum tables that are merged at the same time.")
    max_lag_seconds: float = Field(
        0.0,
        ge=0,
        description="In `strandline run`: seconds that a change may be behind the source in silver. With more seconds, "
        "more changes share a MERGE, and silver costs less. A change after a quiet time is merged at once. 0: merge as "
        "soon as possible.",
    )
    max_columns: int = Field(
        500,
        ge=1,
        description="Maximum leaf columns per table, over all levels of nesting. Beyond it, a new embedded "
        "document becomes one column of mixed type: first documents whose field names look like data, then "
        "the deepest. Other new fields go to `_rescued`. Existing columns stay. `rebuild` chooses "
        "again, from all documents.",
    )
    max_depth: int = Field(
        8,
        ge=1,
        description="Maximum levels of nesting that become columns. Deeper levels become one column of mixed type.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> SilverSettings:
        by_collection: dict[str, Iterable[str]] = {
            "columns": self.columns,
            "history_collections": self.history_collections,
            "compatibility_by_collection": self.compatibility_by_collection,
            "layout": self.layout,
            "children": self.children,
            "table_properties_by_collection": self.table_properties_by_collection,
        }
        problems = [
            *_table_problems(self.tables, self.columns),
            *(
                problem
                for name, keys in by_collection.items()
                for problem in key_problems(name, (key for key in keys if key not in self.tables))
            ),
            *_child_problems(self.children, self.tables),
            *(
                f"table_properties: {problem}"
                for properties in (self.table_properties, *self.table_properties_by_collection.values())
                for problem in property_problems(properties)
            ),
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
        for collection, declarations in value.items():
            try:
                declared_columns(declarations)
            except ValueError as error:
                problems.append(f"{collection}: {error}")
        if problems:
            raise ValueError("; ".join(problems))
        return value

    def named(self, collection: str) -> str:
        """Return the name by which the settings know a collection: that of its tenant table, if it has one.

        Raises:
            ConfigurationError: Two lines of ``silver.tables`` claim the collection.
        """
        if "." not in collection:
            return collection
        names = [name for name, table in self.tables.items() if compiled(table.pattern).fullmatch(collection)]
        if len(names) > 1:
            raise ConfigurationError(
                f"silver.tables: {' and '.join(names)} both claim the collection {collection}",
                next_step="correct one of the two patterns",
            )
        return names[0] if names else collection

    @property
    def patterns(self) -> dict[str, str]:
        """Patterns of the tenant tables, by name."""
        return {name: table.pattern for name, table in self.tables.items()}

    def pattern_of(self, collection: str) -> str | None:
        """Return the pattern of a tenant table. None: *collection* names a collection with a table of its own."""
        return self.patterns.get(self.named(collection))

    def compatibility_of(self, collection: str) -> Compatibility:
        """Return the compatibility of a new table of *collection* (``database.collection``)."""
        return self.compatibility_by_collection.get(self.named(collection), self.compatibility)

    def layout_of(self, collection: str) -> Layout:
        """Return the layout of the table of *collection* (``database.collection``)."""
        layout = self.layout.get(self.named(collection), TableLayout())
        return Layout(layout.cluster_by, layout.statistics)

    def children_of(self, collection: str) -> list[Child]:
        """Return the child tables of *collection* (``database.collection``)."""
        children = self.children.get(self.named(collection), {})
        return [
            Child(tuple(path.split(".")), TableName("silver", self.table_prefix + child.table), child.key, child.keep)
            for path, child in children.items()
        ]

    def properties_of(self, collection: str) -> dict[str, str]:
        """Return the chosen Delta properties of the tables of *collection* (``database.collection``)."""
        sources = (self.table_properties, self.table_properties_by_collection.get(self.named(collection), {}))
        chosen = {name.casefold(): (name, value) for properties in sources for name, value in properties.items()}
        return dict(chosen.values())

    def declared(self, collection: str) -> dict[str, Shape]:
        """Return the declared columns of *collection* (``database.collection``)."""
        return declared_columns(self.columns.get(self.named(collection), {}))

    @property
    def ends_drops(self) -> bool:
        """True if a drop ends the rows of the collection."""
        return self.on_drop != "keep"

    @property
    def ends_renames(self) -> bool:
        """True if a rename ends the rows under the old name."""
        return self.on_rename == "follow"

    @property
    def keeps_old_lives(self) -> bool:
        """True if silver keeps the live rows of collections that were dropped or renamed."""
        return not (self.ends_drops and self.ends_renames)

    def keeps_history(self, collection: str) -> bool:
        """Return True if silver keeps every version of the documents of *collection* (``database.collection``)."""
        chosen = self.history_collections
        return self.history == "scd2" and (not chosen or self.named(collection) in chosen)


def _table_problems(tables: Mapping[str, TenantTable], columns: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, table in tables.items():
        if _TABLE_NAME.fullmatch(name) is None:
            yield f"tables: {name!r} is no table name: a letter, then letters, digits and underscores, all small"
        if (problem := table_problem(table.pattern)) is not None:
            yield f"tables: from of {name} {problem}"
        elif twins := sorted({*group_columns(table.pattern)} & {*columns.get(name, {})}):
            yield f"tables: the group {twins[0]} of {name} is a column of silver.columns, too"


def _child_problems(children: Mapping[str, Mapping[str, ChildTable]], tables: Mapping[str, TenantTable]) -> list[str]:
    """Return the problems of paths, and of tables that two arrays claim."""
    arrays: dict[str, list[str]] = {}
    for collection, paths in children.items():
        for path, child in paths.items():
            arrays.setdefault(child.table, []).append(f"{collection}.{path}")
    problems = [
        f"children: {collection}: {path!r} is no path of a column"
        for collection, paths in children.items()
        for path in paths
        if not all(path.split("."))
    ]
    problems += [
        f"children: {names[0]} claims the table {name} of silver.tables"
        for name, names in arrays.items()
        if name in tables
    ]
    shared = {table: names for table, names in arrays.items() if len(names) > 1}
    return problems + [f"children: {' and '.join(names)} claim the table {table}" for table, names in shared.items()]
