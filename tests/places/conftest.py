"""Servers of places other than a folder. All tests here have the mark `places`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from s3_server import CREDENTIALS, S3Server, s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server. Its credentials are in the environment of the test process."""
    with pytest.MonkeyPatch.context() as patched, s3_server(tmp_path_factory.mktemp("s3")) as server:
        for name, value in CREDENTIALS.items():
            patched.setenv(name, value)
        yield server
