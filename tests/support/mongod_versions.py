"""MongoDB servers of several versions, and the record of what the tests saw on each.

`scripts/mongo.sh` fetches the servers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from pymongo import MongoClient

from strandline.errors import StrandlineError
from strandline.source.mongod import EmbeddedMongod, configured_uri

ROOT: Final = Path(__file__).parents[2]
VERSIONS: Final = ("4.4.2", "5.0.4", "6.0.5", "6.0.27")
RECORD: Final = ROOT / "tests" / "versions.yml"
_FETCHED: Final = ROOT / ".venv" / "share" / "strandline" / "mongod"
_OF_THE_WHEEL: Final = "6.0.5"

starts_all_versions = pytest.mark.skipif(
    configured_uri() is not None, reason="the test starts servers of four versions; MONGODB_URI is one server"
)


def binary_of(version: str) -> Path | None:
    """Return the server's program. None: the one that the project's own wheel holds."""
    return None if version == _OF_THE_WHEEL else _FETCHED / version / "mongod"


def mongod(version: str, **options: Any) -> EmbeddedMongod:
    """Return a server of this version that is not started yet."""
    return EmbeddedMongod(binary=binary_of(version), **options)


@dataclass(frozen=True)
class Server:
    """A running server."""

    version: str
    uri: str
    client: MongoClient[dict[str, Any]]

    def is_older_than(self, *numbers: int) -> bool:
        return tuple(map(int, self.version.split("-")[0].split("."))) < numbers


@dataclass
class Seen:
    """Outcomes of the tests, by feature and version."""

    features: dict[str, dict[str, str]] = field(default_factory=dict)

    def works(self, feature: str, server: Server) -> None:
        self._add(feature, server, "works")

    def otherwise(self, feature: str, server: Server, how: str) -> None:
        self._add(feature, server, f"otherwise: {how}")

    def refused(self, feature: str, server: Server, error: StrandlineError) -> None:
        assert "\n" not in str(error)
        assert error.next_step
        self._add(feature, server, f"refused: {error.message}")

    def _add(self, feature: str, server: Server, outcome: str) -> None:
        self.features.setdefault(feature, {})[server.version] = outcome.replace(server.version, "…")

    def lines(self) -> list[str]:
        """Return a Markdown table of one server's outcomes, for an issue. Empty: nothing was seen."""
        rows = [f"| {name} | {' '.join(row.values())} |" for name, row in self.features.items()]
        servers = sorted({version for row in self.features.values() for version in row})
        return [f"| what | MongoDB {' '.join(servers)} |", "|---|---|", *rows] if rows else []

    def write(self, *, whole: bool) -> None:
        """I/O: writes the features that were seen on every version to the record.

        Args:
            whole: This run was of all tests: features of earlier runs go.
        """
        rows = {} if whole or not RECORD.exists() else yaml.safe_load(RECORD.read_text(encoding="utf-8"))["features"]
        for name, row in self.features.items():
            if set(row) == set(VERSIONS):
                rows[name] = {version: row[version] for version in VERSIONS}
        content = {"date": datetime.now(UTC).date(), "features": dict(sorted(rows.items()))}
        head = "# What `make test-mongo` saw. scripts/versions.py makes docs/versions.md from it. Not by hand.\n"
        RECORD.write_text(
            head + yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True), encoding="utf-8"
        )
