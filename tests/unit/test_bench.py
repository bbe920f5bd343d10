"""The benchmark's own arithmetic: a figure is only as good as what counts it."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise

import bson
import pytest

from bench.documents import documents
from bench.measure import Marks, Measurement, MemoryWatch


def test_documents_are_the_same_for_a_seed_and_of_one_size() -> None:
    first, again, other = ([bson.encode(document) for document in documents(200, seed=seed)] for seed in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)
    assert {len(document) for document in first} == {840}


def test_documents_have_ids_that_rise_and_arrays_of_six() -> None:
    found = list(documents(200))
    assert all(before["_id"] < after["_id"] for before, after in pairwise(found))
    assert {len(document[name]) for document in found for name in ("tags", "items")} == {6}


@pytest.mark.parametrize(
    ("landings", "lanes", "steady"),
    [
        ([(5.0, 100), (6.0, 100), (7.0, 100)], 1, 100.0),  # a slow start does not count
        ([(5.0, 100), (5.0, 100), (10.0, 100), (10.0, 100)], 2, 40.0),  # each lane's first one is start
        ([(5.0, 100)], 1, None),
        ([(5.0, 100), (5.0, 100), (10.0, 100)], 2, None),
        ([], 1, None),
    ],
)
def test_the_steady_state_is_what_follows_the_first_landings(landings: list[tuple[float, int]], lanes: int, steady: float | None) -> None:
    assert Marks(landings=landings).steady(lanes) == steady


def test_a_landing_of_nothing_is_no_mark() -> None:
    marks = Marks()
    marks("events", 0)
    marks("events", 7)
    assert [count for _, count in marks.landings] == [7]


def test_a_rate_is_of_the_whole_run() -> None:
    assert Measurement("capture", documents=300, size=1, seconds=2.0).rate == 150.0


def test_the_memory_of_children_is_seen() -> None:
    hold = "import sys, time; kept = bytearray(64 * 2**20); print('held', flush=True); sys.stdin.read()"
    with (
        MemoryWatch() as memory,
        subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        deadline = time.monotonic() + 20
        while memory.peak.python < 64 * 2**20 + 10 * 2**20 and time.monotonic() < deadline:
            time.sleep(0.05)
        child.communicate()
    assert memory.peak.python > 74 * 2**20
