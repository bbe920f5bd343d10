"""Services that speak MongoDB's protocol and lack a feature of change streams: refused by their answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from bson import Timestamp
from lakehouse import settings_for
from mongos_stand_in import Answers, mongos_before
from pymongo.database import Database

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import open_capture_without_spark
from strandline.model.table_schemas import bronze_table

Db = Database[dict[str, Any]]
HERE: Final = Answers(mongos=False, refused=())
_NO_TOKENS: Final = {
    name: {"ok": 1.0, "operationTime": Timestamp(1, 1), "cursor": {"id": 7, "ns": "x.y", batch: []}}
    for name, batch in (("aggregate", "firstBatch"), ("getMore", "nextBatch"))
}


@pytest.mark.parametrize(
    ("answers", "mode", "line"),
    [
        pytest.param(
            replace(HERE, unknown={"$changeStream": 8000}), "fail", r"no change streams \(code 8000\)", id="Atlas Flex"
        ),
        pytest.param(replace(HERE, unknown={"$changeStream": 136}), "fail", "no change streams", id="switched off"),
        pytest.param(replace(HERE, replies=_NO_TOKENS), "fail", "sends no post-batch resume token", id="no token"),
        pytest.param(
            replace(HERE, unknown={"startAfter": 40415}), "fail", r"no startAfter \(code 40415\)", id="DocumentDB 5.0"
        ),
        pytest.param(
            replace(HERE, unknown={"showExpandedEvents": 40415, "startAfter": 9}),
            "fail",
            "no startAfter and showExpandedEvents",
            id="two options",
        ),
        pytest.param(
            replace(HERE, version="6.0.9", unknown={"$changeStreamSplitLargeEvent": 40324}),
            "split",
            r"no \$changeStreamSplitLargeEvent \(code 40324\)",
            id="stage",
        ),
    ],
)
def test_a_source_without_a_feature_is_refused_and_nothing_is_written(
    mongo_uri: str, database: Db, tmp_path: Path, answers: Answers, mode: str, line: str
) -> None:
    database.a.insert_one({"_id": 1})
    with mongos_before(mongo_uri, answers) as uri:
        config = settings_for(uri, database.name, tmp_path, cursor_oversize_handling_mode=mode)
        ctx = open_capture_without_spark(config)
        assert ctx is not None
        with pytest.raises(ConfigurationError, match=line) as refused:
            run_capture(ctx, once=True)
    assert "strandline explain versions" in refused.value.next_step
    assert not ctx.tables.exists(bronze_table("test"))
