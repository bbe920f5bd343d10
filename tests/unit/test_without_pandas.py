"""Worker processes of the native engine import no pandas."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa

_SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_without_pandas import main
main()
"""


def made() -> tuple[list[str], bool]:
    return pa.array(["a", "b"]).to_pylist(), "pandas" in sys.modules


def main() -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["pipelines.io.without_pandas", "pipelines.bronze.data_files"])
    with ProcessPoolExecutor(1, processes) as pool:
        print(pool.submit(made).result())  # noqa: T201  # why: the test reads it


def test_arrow_makes_arrays_without_it() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(['a', 'b'], False)"
