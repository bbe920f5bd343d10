"""The source that owns a bronze table, from the table's properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.errors import ConfigurationError
from strandline.model.deployment import IDENTITY_PROPERTY, same_deployment
from strandline.model.tables import TableName

SOURCE: Final = "strandline.source"
STREAM: Final = "strandline.stream"


def check_owner(
    table: TableName, properties: Mapping[str, str], source: str, identity: str, stream: str | None
) -> None:
    """Raise ConfigurationError if the table belongs to another source, or to another stream of it. Pure.

    Args:
        properties: Properties of the table.
    """
    if SOURCE not in properties:
        raise ConfigurationError(
            f"{table} has no property {SOURCE}, so Strandline did not create it:"
            " another program created it, perhaps where the old table was moved away",
            next_step="put the old table in its place, or name this source otherwise (source.name)",
        )
    if properties[SOURCE] != source or not same_deployment(properties.get(IDENTITY_PROPERTY, ""), identity):
        raise ConfigurationError(
            f"{table} holds changes of another MongoDB deployment ("
            f"{properties.get(IDENTITY_PROPERTY)}, this is {identity})",
            next_step="name this source otherwise (source.name), or choose another lake.root",
        )
    if stream is not None and properties.get(STREAM, stream) != stream:
        raise ConfigurationError(
            f"{table} holds the stream of {properties[STREAM]}, and the configuration says {stream}",
            next_step="set capture.scope and capture.target back,"
            " or start again: strandline stop, then strandline offsets reset",
        )
