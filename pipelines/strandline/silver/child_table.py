"""A child table: its owner, the meaning of its rows, and the version of its parent that it has reached."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Final

from strandline.io.tables.table_store import TableStore
from strandline.model.child_table import Child, Elements
from strandline.model.namespaces import Namespace
from strandline.model.shape import Compatibility
from strandline.model.tables import TableName
from strandline.silver.compatibility import MAPPED
from strandline.silver.layout_properties import CLUSTERED_BY
from strandline.silver.owned_table import ELEMENTS_OF, HISTORY_OWNER, PARENT, OwnedTable

_DEFINITION: Final = "strandline.child"
_REACHED: Final = "strandline.parent_version"


@dataclass(frozen=True)
class ParentVersion:
    """A version of a parent table."""

    id: str
    """Id of the table: a rebuild gives it another one."""
    version: int
    mark: str | None
    """Mark of the commit: an older copy of a folder may get another commit of the same number. None: not known."""

    @staticmethod
    def of(tables: TableStore, parent: TableName, version: int) -> ParentVersion:
        """I/O: reads the commit of *version*, and the table's id."""
        mark = next((commit.mark for commit in tables.commits_after(parent, version - 1, through=version)), None)
        return ParentVersion(tables.id(parent), version, mark)

    def is_before(self, newest: ParentVersion, tables: TableStore, parent: TableName) -> bool:
        """Return True if the parent at *newest* has gone through this version. I/O: reads its commit."""
        if self.id != newest.id or self.version > newest.version:
            return False
        mark = newest.mark if self.version == newest.version else self.of(tables, parent, self.version).mark
        return None in (mark, self.mark) or mark == self.mark


@dataclass(frozen=True)
class ChildTable(OwnedTable):
    """``silver.<child>``, or its history: one row for each element of an array of the parent's rows."""

    def open(
        self,
        namespace: Namespace,
        child: Child,
        elements: Elements,
        source: str,
        compatibility: Compatibility,
        *,
        is_mapped: bool = False,
    ) -> dict[str, str]:
        """Create the empty table if it does not exist. Return its properties.

        I/O: reads table properties; writes at most one table. Idempotent.

        Args:
            compatibility: Compatibility of the parent.
            is_mapped: True if the table needs column mapping.

        Raises:
            ContractError: The table holds something else.
        """
        owner = f"{ELEMENTS_OF}{'.'.join(child.path)} in {HISTORY_OWNER if elements.are_versions else ''}{namespace}"
        clustering = () if compatibility == "portable" and self.tables.lake.by_path else CLUSTERED_BY
        more = {PARENT: str(namespace), **definition_property(elements), **(MAPPED if is_mapped else {})}
        if self.tables.exists(self.name):  # its columns may be others: they are replaced with the rows
            more, ddl = {}, "_key STRING"
        else:
            ddl = elements.ddl
        skipping = ("_valid_to_position", "_valid_from", "_valid_to") if elements.are_versions else ()
        return self.create(ddl, owner, source, compatibility, cluster_by=clustering, skipping=skipping, more=more)

    def _next_step_when_shared(self) -> str:
        return "give the child table another name in silver.children"


def definition_property(elements: Elements) -> dict[str, str]:
    """Return the table property that stores what the rows mean."""
    return {_DEFINITION: elements.definition}


def is_defined_as(properties: Mapping[str, str], elements: Elements) -> bool:
    """Return True if the rows of a table with these *properties* mean what those of *elements* do."""
    return properties.get(_DEFINITION) == elements.definition


def reached_property(version: ParentVersion | None) -> dict[str, str]:
    """Return the table property that stores the version of the parent whose elements the table has."""
    return {_REACHED: json.dumps(None if version is None else astuple(version))}


def reached_in(properties: Mapping[str, str]) -> ParentVersion | None:
    """Return the version of the parent whose elements the table has. None: not known."""
    reached = json.loads(properties.get(_REACHED, "null"))
    return None if reached is None else ParentVersion(*reached)


def has_same_rows(tables: TableStore, table: TableName, version: int, other: int) -> bool:
    """Return True if no commit between two versions of *table* changed a row. I/O: reads its log."""
    commits = tables.commits_between(table, min(version, other), max(version, other))
    return commits is not None and all(commit.keeps_rows for commit in commits)
