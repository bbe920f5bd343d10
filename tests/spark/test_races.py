"""Two writers of one bronze table, with either engine on either side: each batch is committed once, no row is lost."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from lakehouse import bronze_writer

from strandline.bronze.envelope import BatchEnd, control_table
from strandline.bronze.offsets import Committed
from strandline.bronze.writer import BronzeWriter
from strandline.errors import FencedError
from strandline.io.delta_log.append_result import Appended
from strandline.io.tables.spark_tables import Tables
from strandline.model.table_schemas import bronze_table

TOKEN = '{"_data": "8200"}'


# scenario: Q05
@pytest.mark.parametrize(
    ("first", "second", "rounds"),
    [
        pytest.param("native", "native", 50, id="native, native"),
        pytest.param("native", "spark", 5, id="native, spark"),
        pytest.param("native", "native", 1_000, id="a thousand races", marks=pytest.mark.long),
        pytest.param("native", "spark", 100, id="native, spark, a hundred", marks=pytest.mark.long),
        pytest.param("spark", "spark", 50, id="spark, spark", marks=pytest.mark.long),
    ],
)
def test_of_two_captures_one_commits_each_batch(tables: Tables, first: str, second: str, rounds: int) -> None:
    writers = [
        bronze_writer(tables, writer=f"{engine} {number}", native=engine == "native")
        for number, engine in enumerate((first, second))
    ]
    writers[0].open("cluster", None)
    writers[0].commit([], batch=1, resume_token=TOKEN, snapshot_id=None)
    writers[1].open("cluster", None)
    start, won = threading.Barrier(2), Counter[str]()

    def commit(bronze: BronzeWriter, batch: int) -> Committed | FencedError:
        start.wait(60)
        try:
            return bronze.commit([], batch=batch, resume_token=TOKEN, snapshot_id=None)
        except FencedError as fenced:
            return fenced

    with ThreadPoolExecutor(2) as pool:
        for batch in range(2, rounds + 2):
            results = list(pool.map(commit, writers, [batch, batch]))
            assert sorted(type(result).__name__ for result in results) == ["Committed", "FencedError"], batch
            won[writers[isinstance(results[0], FencedError)].writer] += 1
    for bronze in writers:
        bronze.close()
    rows = tables.read(bronze_table("test")).select("batch", "writer").collect()
    assert sorted(row["batch"] for row in rows) == list(range(1, rounds + 2))
    assert Counter(row["writer"] for row in rows if row["batch"] > 1) == won


# promise 2
@pytest.mark.parametrize("races", [15, pytest.param(1_000, id="a thousand races", marks=pytest.mark.long)])
def test_no_commit_to_a_folder_replaces_another(tables: Tables, races: int) -> None:
    native, spark = (bronze_writer(tables, writer=engine, native=engine == "native") for engine in ("native", "spark"))
    for writer in (native, spark):
        writer.open("cluster", None)
    ended, numbers = threading.Event(), itertools.count(1)

    def append(writer: BronzeWriter, number: int) -> None:
        rows = control_table(writer.stamp(), batch=number, end=BatchEnd(TOKEN, None, 1))
        assert isinstance(writer.append_once(rows, app_id=writer.writer, sequence=number), Appended)

    def append_until_the_end() -> int:
        while not ended.is_set():
            append(native, number := next(numbers))
            time.sleep(0.1)  # Spark needs a free moment now and then
        return number

    with ThreadPoolExecutor(1) as pool:
        appended = pool.submit(append_until_the_end)
        try:
            for number in range(1, races + 1):
                append(spark, number)
        finally:
            ended.set()
        expected = {"native": appended.result(), "spark": races}
    for writer in (native, spark):
        writer.close()
    rows = tables.read(bronze_table("test")).select("writer", "batch").collect()
    assert Counter(row["writer"] for row in rows) == expected
    assert len(set(rows)) == len(rows)
