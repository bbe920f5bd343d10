"""A batch that is parsed part by part is the same rows."""

from __future__ import annotations

from pathlib import Path

import bson
import pyarrow.parquet as pq
import pytest

from strandline.bronze.data_files import write_batch
from strandline.bronze.envelope import Batch, BatchEnd, Stamp, stream_table
from strandline.io.delta_log.local_folder import LocalFolder


# scenario: B10
@pytest.mark.parametrize("at_once", [7, 10, 20, 1000])
def test_a_file_holds_a_batch_as_it_would_be_parsed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    events = [
        bson.encode({"_id": {"_data": f"82{number:08X}"}, "operationType": "delete", "documentKey": {"_id": number}})
        for number in range(20)
    ]
    batch = Batch(
        3,
        events,
        BatchEnd('{"_data": "82FF"}', "s1", ends_outside_transaction=True),
        Stamp("shop", "run-1", 1_700_000_000_000_000),
    )
    monkeypatch.setattr("strandline.bronze.data_files._PARSED_AT_ONCE", at_once)
    file = write_batch(LocalFolder(tmp_path), batch)
    written = pq.ParquetFile(tmp_path / file.name)
    assert written.read().equals(stream_table(batch))
    assert (file.rows, written.num_row_groups) == (20, -(-20 // at_once))
