"""Delta features of silver tables: ``portable`` tables are plain, ``native`` tables use what Delta offers.

The compatibility of a table is stored in its properties when the table is created. `rebuild` changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from strandline.io.delta_log.file_statistics import STATISTICS
from strandline.io.tables.table_store import CHANGE_FEED
from strandline.model.shape import Compatibility
from strandline.silver.configured_properties import CONFIGURED, configured_in

_COMPATIBILITY: Final = "strandline.compatibility"
_MAPPING: Final = "delta.columnMapping.mode"
MAPPED: Final = {_MAPPING: "name", "delta.feature.timestampNtz": "supported"}
"""Properties that give a portable table column mapping. The second feature is not used. It makes Delta name its reader
features: by number alone (reader version 2) delta-rs 1.6.6 reads mapped columns as NULL, instead of refusing them."""

CLUSTER_BY: Final = "strandline.cluster_by"
"""Property with the clustering columns of `silver.layout`."""
UNCLUSTERED: Final = {CLUSTER_BY: "[]"}
"""Property of a table that was created without clustering, so that delta-rs can write it."""

_COMMON: Final = {CHANGE_FEED: "true", STATISTICS: "_key,_position"}
_PROPERTIES: Final[Mapping[Compatibility, Mapping[str, str]]] = {
    "portable": {**_COMMON, "delta.enableDeletionVectors": "false", _COMPATIBILITY: "portable"},
    "native": {
        **_COMMON,
        _MAPPING: "name",  # any legal field name is a legal column
        "delta.enableTypeWidening": "true",
        "delta.enableDeletionVectors": "true",
        "delta.feature.variantType": "supported",
        _COMPATIBILITY: "native",
    },
}


def properties_of(
    compatibility: Compatibility, *, skipping: tuple[str, ...] = (), is_mapped: bool = False
) -> dict[str, str]:
    """Return the Delta properties of a new silver table.

    Args:
        skipping: Columns with file statistics, in addition to ``_key`` and ``_position``.
        is_mapped: True if a column's name needs column mapping. A native table has it anyway.
    """
    properties = dict(_PROPERTIES[compatibility]) | (MAPPED if is_mapped else {})
    return properties | {STATISTICS: ",".join([properties[STATISTICS], *skipping])}


def without_features(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a table's properties without those that follow from settings. Its replacement brings its own."""
    features = {*_PROPERTIES["native"], *_PROPERTIES["portable"], *MAPPED, CLUSTER_BY} - _COMMON.keys()
    left_out = {name.casefold() for name in (*features, CONFIGURED, *configured_in(properties))}
    return {name: value for name, value in properties.items() if name.casefold() not in left_out}


def compatibility_in(properties: Mapping[str, str]) -> Compatibility:
    """Return the compatibility stored in a table's properties. A table of another program counts as native."""
    return cast(Compatibility, properties.get(_COMPATIBILITY, "native"))


def is_mapped_in(properties: Mapping[str, str]) -> bool:
    """Return True if the table has column mapping."""
    return properties.get(_MAPPING, "none") != "none"


def bookkeeping_ddl(ddl: str, compatibility: Compatibility) -> str:
    """Return the bookkeeping columns of a table: a portable table holds rescued values as JSON text."""
    return ddl.replace("_rescued VARIANT", "_rescued STRING") if compatibility == "portable" else ddl
