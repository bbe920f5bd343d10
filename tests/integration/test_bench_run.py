"""``make bench``, made small: it runs to its end and says what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import QUICK_JVM

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="inotify, which counts the files that are read, is Linux's")
def test_extremes_recovery_and_silver_are_measured() -> None:
    sizes = {"events": 0, "documents": 0, "large": 2, "trickle": 3, "recovery": 20_000, "silver": 4_000, "rounds": 1}
    sizes |= {"commands": 2_000, "service": 5, "busy": 12, "open-tables": 20_000, "layouts": 50_000}
    sizes |= {"figures": 2_000, "sustained": 10, "trial": 3}
    wanted = [f"--{name}={size}" for name, size in sizes.items()]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *wanted, "--json"],
        cwd=ROOT,
        env=os.environ | QUICK_JVM,
        capture_output=True,
        text=True,
        check=True,
    )
    record = json.loads(done.stdout)
    assert all(one["seconds"] > 0 < one["memory"] for one in record["commands"])
    assert all(cost["seconds"] > 0 < cost["memory"] for one in record["figures"] for cost in one["rounds"])
    assert {one["engine"] for one in record["sustained"] if one["written"] > 0 <= one["median"] <= one["p95"]} == {
        "auto",
        "spark",
    }
    assert [one["documents"] for one in record["large"]] == [2] * 4
    assert all(0 < one["median"] <= one["most"] for one in record["trickle"])
    assert [one["rows"] for one in record["recovery"]] == [10_000, 20_000]
    assert len({one["data_files_read"] for one in record["recovery"]}) == 1
    assert 0 < record["service"]["median"] <= record["service"]["p99"]
    kinds = [(one["rows"], one["compatibility"]) for one in record["kinds"]]
    assert kinds == [(size, kind) for size in (5_000, 20_000) for kind in ("portable", "native")]
    before, after = record["layouts"]
    assert before["look_up"]["files"] > after["look_up"]["files"] > 0
    assert {one["case"]["rows"] for one in record["silver"]} == {1_000, 4_000}
    assert all(one[way]["seconds"] > 0 for way in ("silver", "by_hand", "merge") for one in record["silver"])
