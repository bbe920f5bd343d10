"""The horizon of bronze: before it, bronze holds what silver needs, and no longer every event. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

from strandline.model.position import cluster_seconds

_PROPERTY: Final = "strandline.horizon"


@dataclass(frozen=True)
class Horizon:
    """Limit of a compaction of bronze."""

    position: str
    """Events below this position are compacted: of each key its newest document is left, and what came after it."""
    batch: int
    """Batches up to this number may have lost the rows that end them."""

    @staticmethod
    def of(properties: Mapping[str, str]) -> Horizon | None:
        """Return the horizon that the properties of a bronze table store. None: bronze was never compacted."""
        return Horizon(**json.loads(properties[_PROPERTY])) if _PROPERTY in properties else None

    @property
    def properties(self) -> dict[str, str]:
        """Table properties that store this horizon."""
        return {_PROPERTY: json.dumps(asdict(self))}

    @property
    def time(self) -> datetime:
        """Cluster time of the position, UTC."""
        return datetime.fromtimestamp(cluster_seconds(self.position), UTC)
