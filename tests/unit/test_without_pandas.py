"""pyarrow works without pandas in worker processes of the native engine. Other code may import it."""

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
    processes.set_forkserver_preload(["strandline.io.spark.without_pandas", "strandline.bronze.data_files"])
    with ProcessPoolExecutor(1, processes) as pool:
        print(pool.submit(made).result())  # noqa: T201  # why: the test reads it


def test_arrow_makes_arrays_without_it() -> None:
    assert printed_by(_SCRIPT) == "(['a', 'b'], False)"


_IMPORTED_LATER = """
import strandline.io.spark.without_pandas
import pyarrow as pa
import pandas
print(pa.table({"a": [1]}).to_pandas().shape, pa.Table.from_pandas(pandas.DataFrame({"b": [2.5]})).to_pylist())
"""


def test_other_code_may_import_it() -> None:
    assert printed_by(_IMPORTED_LATER) == "(1, 1) [{'b': 2.5}]"


def printed_by(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
