"""Allocators of a service."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CHOSEN = """
import os, sys
# what the command `run` has loaded when it chooses
import strandline.cli, strandline.io.telemetry.live_state, strandline.io.telemetry.service_manager
from strandline.io.spark.allocators import give_memory_back
print("pyarrow" in sys.modules)
give_memory_back()
import pyarrow
print(pyarrow.default_memory_pool().backend_name, os.environ["MALLOC_ARENA_MAX"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="allocators are chosen on Linux only")
@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "False jemalloc 2"), ({"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "7"}, "False system 7")],
)
def test_a_service_chooses_allocators_before_pyarrow_is_loaded(given: dict[str, str], expected: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", _CHOSEN], env={"PATH": "/usr/bin", **given}, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == expected.split()
