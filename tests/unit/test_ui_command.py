"""The command ``strandline ui`` in a process that finds no Java."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from s3_server import free_port
from without_java import COMMAND, environment, strandline


@pytest.mark.slow
def test_the_command_serves_page_and_api_and_ends_at_once(tmp_path: Path) -> None:
    port = free_port()
    process = subprocess.Popen(
        [str(COMMAND), "ui", "--api", "--port", str(port)],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(3)]
        assert told[0].startswith(f"Strandline is at http://127.0.0.1:{port}/ ")
        token = told[2].rpartition(" ")[2].strip()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/offsets") as answer:
            assert answer.status == 200
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/connectors")
        with pytest.raises(urllib.error.HTTPError, match="401") as raised:
            urllib.request.urlopen(asked)
        raised.value.close()
        asked.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(asked) as answer:
            assert answer.read() == b'["test"]'
        refused = strandline(tmp_path, "ui", "--port", str(port))
        lines = [line for line in refused.stderr.splitlines() if "WARNING" not in line]
        said = f"strandline: 127.0.0.1:{port} cannot be used (Address already in use) → choose another --port"
        assert (refused.returncode, lines) == (2, [said])
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_lake_in_a_catalog_needs_java(tmp_path: Path) -> None:
    refused = strandline(tmp_path, "ui", STRANDLINE_LAKE__CATALOG="main")
    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
    (line,) = [line for line in refused.stderr.splitlines() if line.startswith("strandline: ")]
    assert "install a JDK 17" in line
