"""An election during snapshot and stream: no event is lost, and no event is stored twice."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, pipeline
from pymongo import MongoClient
from pymongo import errors as mongo
from pyspark.sql import SparkSession

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.silver.run_silver import run_silver
from strandline.source.mongod import EmbeddedMongod

PRIMARY_STEPPED_DOWN = 189
"""Code of a write that a server refused because it is no longer the primary. The driver does not repeat it."""


# scenario: F10
def test_a_step_down_during_snapshot_and_stream_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with (
        EmbeddedMongod(members=3, set_parameters={"enableTestCommands": "1"}) as server,
        MongoClient[dict[str, Any]](server.uri, w="majority") as client,
    ):
        database = client.shop
        database.a.insert_many([{"_id": number, "text": "x" * 200} for number in range(1500)])
        ctx = pipeline(spark, server.uri, "shop", tmp_path, snapshot_chunk_size=500, errors_retry_delay_max_ms=2000)
        stop, ended = threading.Event(), threading.Event()

        def change() -> None:
            number = 0
            while not ended.wait(0.02):
                number += 1
                with contextlib.suppress(mongo.AutoReconnect):  # written or not, silver must equal the source
                    try:
                        database.a.update_one({"_id": number % 1500}, {"$inc": {"n": 1}}, upsert=True)
                    except mongo.WriteError as error:
                        if error.code != PRIMARY_STEPPED_DOWN:
                            raise

        changing = threading.Thread(target=change)
        capturing = threading.Thread(target=run_capture, args=(ctx,), kwargs={"stop": stop})
        changing.start()
        capturing.start()
        try:
            time.sleep(3)
            client.admin.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=4, force=True)
            time.sleep(8)
            assert capturing.is_alive()
        finally:
            ended.set()
            changing.join()
            stop.set()
            capturing.join()
        run_capture(ctx, once=True)
        run_silver(ctx)
        assert bronze(ctx).where("op = 'r'").count() == 1500
        assert_streamed_exactly_once(ctx)
        assert_equal_to_source(ctx, database, "a")
