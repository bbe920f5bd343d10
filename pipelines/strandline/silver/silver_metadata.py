"""Metadata of a silver table: what its properties tell. Delta-rs and Spark store it alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.errors import ContractError
from strandline.model.namespaces import Namespace
from strandline.model.query import Query
from strandline.model.shape import Compatibility, Shape
from strandline.model.table_schemas import SILVER_BOOKKEEPING_DDL
from strandline.silver.compatibility import compatibility_in
from strandline.silver.fold.step import OVERSIZE, PATH, WAITING, reasons_in
from strandline.silver.incarnations import Facts, facts_in
from strandline.silver.layout_properties import CLUSTERED_BY
from strandline.silver.owned_table import PATTERN, OwnedTable, shape_in
from strandline.silver.progress import Progress

HAS_PATCHES = "strandline.has_patches"
PURGE_WATERMARK = "strandline.purge_watermark"

_SKIPPING: Final = ("_inexact_because",)
WITH_STATISTICS: Final = ("_key", "_position", *_SKIPPING)
"""Bookkeeping columns with file statistics."""


@dataclass(frozen=True)
class SilverState:
    """Metadata read from a silver table's properties."""

    shape: Shape
    progress: Progress | None
    facts: Facts
    has_patches: bool
    """True once a patch was merged: any row may then hold pending patches."""
    compatibility: Compatibility

    @staticmethod
    def of(properties: Mapping[str, str], namespace: Namespace) -> SilverState:
        """Return the metadata in the properties of the table that holds *namespace*."""
        return SilverState(
            shape_in(properties),
            Progress.stored_in(properties),
            facts_in(properties, namespace),
            HAS_PATCHES in properties,
            compatibility_in(properties),
        )


@dataclass(frozen=True)
class SilverMetadata(OwnedTable):
    """``silver.<collection>``, without its rows."""

    def open(
        self, namespace: str, source: str, compatibility: Compatibility = "portable", *, pattern: str | None = None
    ) -> SilverState:
        """Create the empty table if it does not exist, and read its metadata.

        I/O: reads table properties; writes at most one table. Idempotent.

        Args:
            compatibility: Compatibility of a new table. An existing table keeps its own.
            pattern: Pattern of a tenant table. None: the table is of one collection, or its pattern does not matter.

        Raises:
            ContractError: The table belongs to another collection or to another source, or has another pattern.
        """
        properties = self.create(
            SILVER_BOOKKEEPING_DDL,
            namespace,
            source,
            compatibility,
            cluster_by=self._clustering(compatibility),
            skipping=_SKIPPING,
            more={} if pattern is None else {PATTERN: pattern},
        )
        self.require_pattern(properties, pattern)
        return SilverState.of(properties, Namespace.parse(namespace))

    def require_pattern(self, properties: Mapping[str, str], pattern: str | None) -> None:
        """Raise ContractError if the table, with these *properties*, has another pattern. None: it does not matter."""
        if pattern not in (None, properties.get(PATTERN)):
            raise ContractError(
                f"{self.name} was made from {properties.get(PATTERN)}, and silver.tables says {pattern}",
                next_step=f"strandline stop, strandline rebuild {self.name.name}, strandline start",
            )

    def _clustering(self, compatibility: Compatibility) -> tuple[str, ...]:
        """Return the clustering columns of a new table. `UNCLUSTERED` is a portable one in a lake by path."""
        return () if compatibility == "portable" and self.tables.lake.by_path else CLUSTERED_BY

    def namespace(self) -> Namespace | None:
        """Return the collection that the table holds. None: the table does not exist. I/O: reads table properties."""
        owner = self.owner()
        return Namespace.parse(owner) if owner else None

    def inexact_reasons(self) -> tuple[str, ...]:
        """Return the distinct reasons why live rows may be inexact: oversize change, ambiguous path, pending patch.

        I/O: one small aggregate if the table ever received a patch; otherwise only table properties.
        """
        if HAS_PATCHES not in self.tables.properties(self.name):
            return ()
        rows = Query(self.name).where(("_inexact_because", "is not null", None), ("_deleted", "=", False))
        texts = (row["_inexact_because"] for row in self.tables.query(rows.group("_inexact_because")))
        reasons = {reason for text in texts for reason in reasons_in(text)}
        return tuple(sorted(reasons & {OVERSIZE, PATH, WAITING}))

    def mark_has_patches(self) -> None:
        """Mark the table as one that may hold pending patches. Call before the first patch is merged.

        I/O: one commit. Idempotent.
        """
        self.tables.set_properties(self.name, {HAS_PATCHES: "true"})

    def purge_watermark(self) -> str:
        """Return the position below which tombstones may have been purged.

        Empty: none were. I/O: reads table properties.
        """
        return self.purge_watermark_in(self.tables.properties(self.name))

    @staticmethod
    def purge_watermark_in(properties: Mapping[str, str]) -> str:
        """Return the purge watermark in a table's properties."""
        return properties.get(PURGE_WATERMARK, "")
