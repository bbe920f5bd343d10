"""A client of Kafka Connect that others have written works with the API. The package index has the client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from s3_server import free_port
from without_java import COMMAND, environment

CLIENT = "kafka-connect-api==0.5.9"
SCRIPT = """
import json, sys
from kafka_connect_api.kafka_connect_api import Api, Cluster
api = Api(url=sys.argv[1])
api.headers["Authorization"] = f"Bearer {sys.argv[2]}"
cluster = Cluster(api)
connector = cluster.connectors["test"]
(task,) = connector.tasks
seen = [cluster.version, connector.exists(), connector.connector_class, connector.state, task.state]
connector.restart(), task.restart()
connector.pause()
seen.append(connector.state)
connector.resume()
print(json.dumps([*seen, connector.state]))
"""


def test_a_client_of_kafka_connect_lists_pauses_and_restarts(tmp_path: Path) -> None:
    port = free_port()
    command = [str(COMMAND), "ui", "--api", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            token = [process.stdout.readline() for _ in range(3)][2].rpartition(" ")[2].strip()
            uv = Path(sys.executable).with_name("uv")
            client = [str(uv), "run", "--no-project", "--with", CLIENT, "python", "-c", SCRIPT]
            done = subprocess.run(
                [*client, f"http://127.0.0.1:{port}", token], capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0, done.stderr
        finally:
            process.terminate()
    version = subprocess.run([str(COMMAND), "version"], capture_output=True, text=True, check=True).stdout.strip()
    assert json.loads(done.stdout) == [version, True, "strandline", "RUNNING", "UNASSIGNED", "PAUSED", "RUNNING"]
