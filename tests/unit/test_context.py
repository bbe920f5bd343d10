"""What is refused before anything is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.errors import ConfigurationError
from pipelines.jobs.context import refuse_unfenced
from pipelines.model.tables import Lake

DYNAMO = "io.delta.storage.S3DynamoDBLogStore"


# scenario: Q09, Q02
@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_a_path_on_s3_needs_a_log_store_that_keeps_drivers_apart(scheme: str) -> None:
    lake = Lake(root=f"{scheme}://bucket/lake")
    with pytest.raises(ConfigurationError, match=rf"spark\.delta\.logStore\.{scheme}\.impl"):
        refuse_unfenced(lake, {}.get)
    refuse_unfenced(lake, {f"spark.delta.logStore.{scheme}.impl": DYNAMO}.get)
    refuse_unfenced(lake, {"spark.databricks.cloudProvider": "AWS"}.get)


@pytest.mark.parametrize(
    "lake", [Lake(root="lake"), Lake(root="abfss://c@a/lake"), Lake(root="gs://b/l"), Lake(root="s3://b", catalog="main")]
)
def test_other_places_have_a_commit_that_only_one_can_make(lake: Lake) -> None:
    refuse_unfenced(lake, {}.get)


def test_a_script_that_a_worker_process_reads_again_starts_no_second_capture(tmp_path: Path) -> None:
    script = tmp_path / "on_top_level.py"
    script.write_text(
        "import multiprocessing\n"
        "from pipelines.io.session import build_session\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('forkserver').Process(target=print)\n"
        "    worker.start()\n"
        "    worker.join()\n"
        "else:\n"
        "    build_session('second', master='local[1]')\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, cwd=Path.cwd())
    assert "begin what the script does with: if __name__" in ran.stderr
