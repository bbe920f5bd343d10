"""A YARN cluster of two node managers, with the lake in its HDFS. The containers' Python lacks this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster import PYTHON, SPARK_HOME, Cluster, assert_equal_to_source, insert, succeeded, worker_python, write_gold
from hadoop_servers import hdfs_server, yarn_cluster
from pymongo.database import Database

Db = Database[dict[str, Any]]


class YarnCluster(Cluster):
    """A cluster whose executors are YARN's containers."""

    def __init__(self, folder: Path, conf_dir: Path, hdfs: str, python: Path) -> None:
        super().__init__(folder)
        self.conf_dir, self.hdfs, self.python = conf_dir, hdfs, python
        self.events.mkdir(parents=True)

    @property
    def master(self) -> str:
        return "yarn"

    def conf(self, **more: str) -> dict[str, str]:
        return super().conf(**more) | {
            "spark.pyspark.python": str(self.python / PYTHON),
            "spark.executor.instances": "2",
            "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
            "spark.yarn.am.memory": "512m",
        }

    def environment(self, uri: str, database: str, lake: Path | str, **conf: str) -> dict[str, str]:
        return super().environment(uri, database, lake, **conf) | {"HADOOP_CONF_DIR": str(self.conf_dir)}


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[YarnCluster]:
    with ExitStack() as running:
        (tmp_path / "hdfs").mkdir()
        hdfs = running.enter_context(hdfs_server(tmp_path / "hdfs"))
        conf_dir = running.enter_context(yarn_cluster(tmp_path / "yarn"))
        yield YarnCluster(tmp_path / "driver", conf_dir, hdfs, worker_python(tmp_path / "python"))


# promise 7
def test_the_whole_way_on_yarn(
    yarn: YarnCluster, mongo_uri: str, database: Db, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    insert(database, 10_000)
    env = yarn.environment(mongo_uri, database.name, f"{yarn.hdfs}/lake") | {
        "STRANDLINE_CAPTURE__SNAPSHOT_CHUNK_SIZE": "2500",
        "STRANDLINE_GOLD__SQL_DIR": write_gold(tmp_path / "gold"),
    }
    assert succeeded(yarn.run(env, "doctor", "--workers"))
    succeeded(yarn.run(env, "run", "--once"))
    assert len(yarn.tasks()) == 2, "both containers have worked"
    record_property("found", f"yarn: successful tasks by container: {dict(yarn.tasks())}")
    database.orders.update_many({"n": 3}, {"$set": {"n": 1000}})
    database.orders.delete_many({"n": 5})
    succeeded(yarn.run(env, "run", "--once"))
    assert_equal_to_source(yarn, env, database)
