"""The benchmark's own arithmetic: a figure is only as good as what counts it."""

from __future__ import annotations

import subprocess
import sys
import time

import bson
import pytest

from bench import recovery, report, silver
from bench.documents import documents
from bench.measure import Marks, MemoryWatch
from bench.recovery import Recovered
from bench.silver import Case, Compared, Cost


def test_documents_are_the_same_for_a_seed_and_of_one_size() -> None:
    first, again, other = ([bson.encode(document) for document in documents(200, seed=seed)] for seed in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)
    assert {len(document) for document in first} == {840}


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
def test_the_steady_state_is_what_follows_the_first_landings(
    landings: list[tuple[float, int]], lanes: int, steady: float | None
) -> None:
    assert Marks(landings=landings).steady(lanes) == steady


def test_the_memory_of_children_is_seen() -> None:
    hold = "import sys, time; kept = bytearray(64 * 2**20); print('held', flush=True); sys.stdin.read()"
    with (
        MemoryWatch() as memory,
        subprocess.Popen(
            [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        deadline = time.monotonic() + 20
        while memory.peak.python < 64 * 2**20 + 10 * 2**20 and time.monotonic() < deadline:
            time.sleep(0.05)
        child.communicate()
    assert memory.peak.python > 74 * 2**20


@pytest.mark.parametrize("rows", [20_000, 10_000_000, 30_000_000])
def test_both_bronze_tables_are_as_far_behind_a_checkpoint(rows: int) -> None:
    small, large = recovery.sizes(rows)
    assert (small.rows, large.rows) == (10_000, rows)
    assert large.batches > small.batches
    assert large.batches % 100 == small.batches % 100
    assert large.rows / large.batches <= 50_000


@pytest.mark.parametrize("rows", [1_000, 4_000, 40_000, 4_000_000])
def test_silver_varies_the_change_alone_and_the_table_alone(rows: int) -> None:
    cases = silver.cases(rows)
    assert len(cases) == len(set(cases))
    assert max(case.rows for case in cases) == rows
    assert all(case.changed <= case.rows for case in cases)
    if rows == 4_000_000:
        scattered = {(case.rows, case.changed) for case in cases if case.where == "scattered"}
        assert scattered >= {(1_000_000, changed) for changed in (1, 1_000, 100_000)}
        assert scattered >= {(size, 1_000) for size in (10_000, 100_000, 1_000_000, 4_000_000)} | {(4_000_000, 100_000)}


def test_ratios_are_to_the_first_of_each_group_and_to_the_limits_of_the_same_case() -> None:
    def compared(rows: int, changed: int, seconds: float) -> Compared:
        costs = (Cost(seconds * times, 1, 1, 1) for times in (1, 8, 2, 4))
        return Compared(Case(rows, changed, "recent"), *costs)

    by_change, by_table = report.silver_tables([compared(100, 1, 2.0), compared(100, 10, 3.0), compared(900, 10, 6.0)])
    assert list(by_change.columns[4].cells) == ["1.00", "1.50"]
    assert list(by_table.columns[4].cells) == ["1.00", "2.00"]
    assert [list(by_table.columns[number].cells) for number in (10, 13, 15)] == [
        ["0.12", "0.12"],
        ["0.50", "0.50"],
        ["0.25", "0.25"],
    ]
    shown = report.recovery_table(
        [
            Recovered(10, 1, 1, 2, (1.0, 2.0, 9.0), 1, 1),
            Recovered(1_000, 5, 9, 9, (5.0, 2.0, 3.0), 1, 1),
        ]  # the median counts
    )
    assert list(shown.columns[5].cells) == ["1.00", "1.50"]
