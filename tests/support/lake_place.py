"""Location of the lakes in tests: a folder, or the object store or file system that the variable ``TEST_PLACE`` names.

The same suites then run there (`scripts/places.sh`).
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from hadoop_servers import hdfs_server
from s3_server import BUCKET, CREDENTIALS, REGION, s3_server

from strandline.io.delta_log.object_store import StoreOptions

PLACE: Final = os.environ.get("TEST_PLACE", "folder")
NATIVE_PLACES: Final = ("folder", "s3")
"""Places in which delta-rs writes bronze."""
_ENDPOINT, _FOLDER = "TEST_PLACE_ENDPOINT", "TEST_PLACE_FOLDER"


def lake_settings(root: Path | str) -> dict[str, Any]:
    """Return the section ``lake`` for a lake that would be at *root*, if it were in a folder."""
    if PLACE == "s3":
        return {"root": f"s3a://{BUCKET}/{_key(root)}", "s3_endpoint": os.environ[_ENDPOINT], "s3_region": REGION}
    if PLACE == "hdfs":
        return {"root": f"{os.environ[_ENDPOINT]}/{_key(root)}"}
    return {"root": str(root)}


def store_options() -> StoreOptions | None:
    """Return how the test session reaches S3. None: the lakes are elsewhere."""
    return StoreOptions(os.environ[_ENDPOINT], REGION) if PLACE == "s3" else None


def lake_environment(root: Path | str) -> dict[str, str]:
    """Return `lake_settings` as environment variables."""
    return {f"STRANDLINE_LAKE__{name.upper()}": value for name, value in lake_settings(root).items()}


def files_of(root: Path) -> Path:
    """Return the folder that holds the files of such a lake. The S3 server keeps its objects in a folder."""
    return Path(os.environ[_FOLDER], BUCKET, _key(root)) if PLACE == "s3" else root


def _key(root: Path | str) -> str:
    return str(Path(root).absolute()).lstrip("/")


class PlaceServers:
    """Plugin of the process that hands out the tests: starts the place's server, and names it in the environment."""

    def __init__(self) -> None:
        self._running = ExitStack()
        folder = Path(self._running.enter_context(tempfile.TemporaryDirectory()))
        if PLACE == "hdfs":
            os.environ[_ENDPOINT] = self._running.enter_context(hdfs_server(folder))
        if PLACE == "s3":
            server = self._running.enter_context(s3_server(folder))
            os.environ |= CREDENTIALS | {_ENDPOINT: server.endpoint, _FOLDER: str(folder)}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._running.close()
