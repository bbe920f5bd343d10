"""One catalog: its schemas, tables and views. Each ability that catalogs do not share is asked once, and acted upon."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Final

from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession

from strandline.errors import RIGHTS, ConfigurationError, one_line
from strandline.io.spark.platform import is_unity_catalog_oss
from strandline.model.tables import Lake, TableName

_log = logging.getLogger("strandline.tables")

_EVERY_LAKE: Final = ("bronze", "silver", "control")
"""Layers that every lake has. Gold is optional."""
_NO_CATALOG: Final = ("CATALOG_NOT_FOUND", "NO_SUCH_CATALOG_EXCEPTION", "REQUIRES_SINGLE_PART_NAMESPACE")
"""Conditions of a name whose first part is no catalog. Spark may take that part for a schema of its own catalog."""
_NOT_ABLE: Final = ("MISSING_CATALOG_ABILITY", "UNSUPPORTED_FEATURE")


class Catalog:
    """The catalog of one lake, as one session sees it.

    Args:
        lake: A lake in a catalog.
    """

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark, self._lake = spark, lake
        self._answered = False
        self._existing: set[str] = set()
        """Layers whose schemas are there."""
        self._lacks: set[str] = set()
        """First words of statements that the catalog does not support."""

    @cached_property
    def required_properties(self) -> dict[str, str]:
        """Properties without which the catalog creates no table.

        Unity Catalog OSS creates a managed table only if the statement says that the catalog manages its commits.
        """
        is_managed = is_unity_catalog_oss(self._spark, self._lake.catalog)
        return {"delta.feature.catalogManaged": "supported"} if is_managed else {}

    def has(self, table: TableName) -> bool:
        """I/O: returns True if there is a table or a view.

        Raises:
            ConfigurationError: The first look at the catalog fails.
        """
        try:
            exists = self._spark.catalog.tableExists(self._lake.sql(table))
        except Exception as error:  # a missing plugin, an unknown catalog, a refused principal have no common class
            if self._answered:
                raise
            name, condition = self._lake.catalog, getattr(error, "getCondition", lambda: None)()
            reason = "Spark has no catalog of this name" if condition in _NO_CATALOG else one_line(error)
            raise ConfigurationError(
                f"the catalog {name} (lake.catalog) cannot be used: {reason}",
                next_step=f"correct lake.catalog, or spark.sql.catalog.{name} in spark.conf; {RIGHTS}",
            ) from error
        self._answered = True
        return exists

    def require_schemas(self, layer: str) -> None:
        """I/O: creates the missing schemas of *layer* and of the layers that every lake has.

        First looks which schemas are there: a principal without CREATE SCHEMA may use schemas that others created.

        Raises:
            ConfigurationError: A schema is missing and may not be created.
        """
        layers = {*_EVERY_LAKE, layer} - self._existing
        schemas = [self._lake.sql_schema(layer_name) for layer_name in sorted(layers)]
        missing = [schema for schema in schemas if not self._spark.catalog.databaseExists(schema)]
        try:
            for schema in missing:
                self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        except Exception as error:  # each catalog has its own class for a missing right
            raise ConfigurationError(
                f"the catalog {self._lake.catalog} shows no schema {', '.join(missing)}, and refuses to create one"
                f" ({one_line(error)})",
                next_step=f"let an administrator create them, or choose another lake.schema; {RIGHTS}",
            ) from error
        self._existing |= layers

    def tables(self, layer: str) -> list[str]:
        """I/O: names of the tables of *layer*. Views are left out. Empty if there is no schema yet."""
        schema = self._lake.sql_schema(layer)
        try:
            shown = self._spark.sql(f"SHOW TABLES IN {schema}").collect()
        except AnalysisException as error:
            if error.getCondition() != "SCHEMA_NOT_FOUND":
                raise
            return []
        views = self.views(layer) or ()
        return [row["tableName"] for row in shown if not row["isTemporary"] and row["tableName"] not in views]

    def views(self, layer: str) -> frozenset[str] | None:
        """I/O: names of the views of *layer*, whose schema is there. None: the catalog does not list views."""
        listed = self._run("SHOW VIEWS", f"IN {self._lake.sql_schema(layer)}")
        return None if listed is None else frozenset(row["viewName"] for row in listed.collect())

    def write_view(self, table: TableName, definition: str) -> bool:
        """I/O: creates or replaces a view. Returns False if the catalog has no views.

        If the catalog cannot replace a view, the view is dropped and created. In between there is no view.

        Args:
            definition: Columns with their comments, and the query.
        """
        view = self._lake.sql(table)
        if self._run("CREATE OR REPLACE VIEW", f"{view} {definition}") is not None:
            return True
        return self.drop_view(table) and self._run("CREATE VIEW", f"{view} {definition}") is not None

    def drop_view(self, table: TableName) -> bool:
        """I/O: drops a view, if it is there. Returns False if the catalog has no views."""
        return self._run("DROP VIEW", f"IF EXISTS {self._lake.sql(table)}") is not None

    def _run(self, verb: str, rest: str) -> DataFrame | None:
        """I/O: runs a statement. None: the catalog does not support statements that begin with *verb*."""
        if verb in self._lacks:
            return None
        try:
            return self._spark.sql(f"{verb} {rest}")
        except PySparkException as error:
            is_unsupported = (error.getCondition() or "").startswith(_NOT_ABLE)
            if not is_unsupported and not isinstance(error, UnsupportedOperationException):
                raise
            _log.info("%s does not support %s (%s)", self._lake.catalog, verb, one_line(error))
        self._lacks.add(verb)
        return None
