"""Members of a replica set fail and return under load: bronze holds no write that MongoDB rolls back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, land, spark_pipeline
from processes import repeated
from pymongo import MongoClient
from pymongo import errors as mongo
from pymongo.read_concern import ReadConcern
from pyspark.sql import SparkSession

from strandline.jobs.capture.run_capture import run_capture
from strandline.source.mongod import EmbeddedMongod

Client = MongoClient[dict[str, Any]]


class Cluster:
    """A replica set of three members, and the failures it meets."""

    def __init__(self, server: EmbeddedMongod) -> None:
        self.server = server
        self.client: Client = MongoClient(server.uri, w=1, serverSelectionTimeoutMS=60_000, socketTimeoutMS=3000)

    def primary(self) -> int:
        address = self.client.admin.command("hello")["primary"]
        return self.server.ports.index(int(address.split(":")[1]))

    def cut_off_and_kill_the_primary(self) -> None:
        """Kill the primary with unreplicated writes. MongoDB rolls them back when the old primary returns."""
        primary = self.primary()
        with self.not_replicating([member for member in range(3) if member != primary]):
            time.sleep(2)
            self.server.kill(primary)
        self.wait_for(members=2)
        time.sleep(2)
        self.server.restart(primary)
        self.wait_for(members=3)

    @contextmanager
    def not_replicating(self, members: Sequence[int]) -> Iterator[None]:
        """Stop replication to *members* during the block. Heartbeats continue."""
        for mode in ("alwaysOn", "off"):
            for member in members:
                with Client(f"mongodb://127.0.0.1:{self.server.ports[member]}/?directConnection=true") as direct:
                    direct.admin.command("configureFailPoint", "stopReplProducer", mode=mode)
            if mode == "alwaysOn":
                yield

    def hang(self, member: int) -> None:
        """Stop the process of *member* for longer than an election takes."""
        self.server.pause(member)
        time.sleep(9)
        self.server.resume(member)
        self.wait_for(members=3)

    def tag(self, member: int, name: str) -> str:
        """Return a URI that reads from *member* only, and keep *member* from becoming the primary."""
        config = self.client.admin.command("replSetGetConfig")["config"]
        config["members"][member] |= {"tags": {"name": name}, "priority": 0}
        self.client.admin.command("replSetReconfig", config | {"version": config["version"] + 1})
        self.wait_for(members=3)
        return f"{self.server.uri}&readPreference=secondary&readPreferenceTags=name:{name}"

    def remove_and_add(self, member: int) -> None:
        everybody = self.client.admin.command("replSetGetConfig")["config"]["members"]
        for members in ([each for each in everybody if each["_id"] != member], everybody):
            config = self.client.admin.command("replSetGetConfig")["config"]
            self.client.admin.command(
                "replSetReconfig", config | {"version": config["version"] + 1, "members": members}
            )
            self.wait_for(members=len(members))

    def wait_for(self, *, members: int) -> None:
        """Wait for a primary and *members* members that hold data."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            with contextlib.suppress(mongo.PyMongoError):
                states = [each["stateStr"] for each in self.client.admin.command("replSetGetStatus")["members"]]
                if "PRIMARY" in states and sum(state in ("PRIMARY", "SECONDARY") for state in states) >= members:
                    return
            time.sleep(0.2)
        raise AssertionError("the members did not come together")


@contextmanager
def writing(client: Client) -> Iterator[list[int]]:
    """Write during the block with write concern ``w: 1``. Yield the acknowledged keys."""
    acknowledged = list[int]()

    def write(number: int) -> None:
        with contextlib.suppress(mongo.PyMongoError):  # whether it was written or not, silver must equal the source
            client.shop.log.insert_one({"_id": number})
            acknowledged.append(number)
            client.shop.a.update_one({"_id": number % 50}, {"$inc": {"n": 1}}, upsert=True)

    with repeated(write, every=0.005):
        yield acknowledged


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with EmbeddedMongod(members=3, set_parameters={"enableTestCommands": "1"}) as server:
        cluster = Cluster(server)
        yield cluster
        cluster.client.close()


def finds(cluster: Cluster, member: int, namespace: str) -> int:
    """Return the number of reads of *namespace* that a member has served since its profiler started."""
    with Client(f"mongodb://127.0.0.1:{cluster.server.ports[member]}/?directConnection=true") as direct:
        reads = {
            "ns": namespace,
            "appName": "strandline",
            "op": {"$in": ["query", "getmore"]},
            "command.isMaster": {"$exists": False},
        }
        return direct.shop["system.profile"].count_documents(reads)


@pytest.mark.long
def test_a_member_that_lags_is_waited_for_and_serves_the_snapshots_reads(
    spark: SparkSession, tmp_path: Path, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    primary = cluster.primary()
    slow = (primary + 1) % 3
    shop = cluster.client.shop
    from_primary = spark_pipeline(spark, cluster.server.uri, "shop", tmp_path)
    from_slow = spark_pipeline(spark, cluster.tag(slow, "slow"), "shop", tmp_path, errors_retry_delay_max_ms=1000)
    shop.a.insert_many([{"_id": number} for number in range(2000)])
    for member in range(3):
        with Client(f"mongodb://127.0.0.1:{cluster.server.ports[member]}/?directConnection=true") as direct:
            direct.shop.command("profile", 2)
    assert run_capture(from_slow, once=True).documents == 2000
    assert (finds(cluster, primary, "shop.a"), finds(cluster, slow, "shop.a") > 0) == (0, True)

    ended: list[int] = []
    capturing = threading.Thread(target=lambda: ended.append(run_capture(from_slow, once=True).events))
    with cluster.not_replicating([slow]):
        time.sleep(1)
        for number in range(2000, 2005):
            shop.a.insert_one({"_id": number})
            time.sleep(0.3)
        run_capture(from_primary, once=True)
        shop.a.insert_one({"_id": 3000})
        with caplog.at_level("WARNING", "strandline.source"):
            capturing.start()
            capturing.join(timeout=12)
        assert capturing.is_alive(), "a lagging member was taken for a lost position"
        assert "lags: it has not come to the last captured event" in caplog.text
    capturing.join(timeout=120)
    assert ended == [1]
    land(from_primary)
    assert_streamed_exactly_once(from_primary)
    assert_equal_to_source(from_primary, shop, "a")


# scenario: F11, without clock jumps, which need another kernel's clock
@pytest.mark.long
def test_rolled_back_writes_never_reach_bronze(spark: SparkSession, tmp_path: Path, cluster: Cluster) -> None:
    ctx = spark_pipeline(spark, cluster.server.uri, "shop", tmp_path, errors_retry_delay_max_ms=1000)
    stop = threading.Event()
    capturing = threading.Thread(target=run_capture, args=(ctx,), kwargs={"stop": stop})
    with writing(cluster.client) as acknowledged:
        capturing.start()
        try:
            time.sleep(5)
            cluster.cut_off_and_kill_the_primary()
            cluster.hang(cluster.primary())
            cluster.hang((cluster.primary() + 1) % 3)
            cluster.remove_and_add((cluster.primary() + 1) % 3)
            assert capturing.is_alive()
        finally:
            stop.set()
            capturing.join()
    land(ctx)
    database = cluster.client.get_database("shop", read_concern=ReadConcern("majority"))
    kept = {document["_id"] for document in database.log.find()}
    rolled_back = set(acknowledged) - kept
    assert len(rolled_back) > 10
    seen = {
        int(row["key"]) for row in bronze(ctx).where("collection = 'log' and op in ('c', 'r')").select("key").collect()
    }
    assert seen & rolled_back == set()
    assert seen == kept
    assert_streamed_exactly_once(ctx)
    assert_equal_to_source(ctx, database, "log", "a")
