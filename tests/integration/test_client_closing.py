"""A command ends as soon as its work is done."""

from __future__ import annotations

import subprocess
import sys

import pytest

_COMMAND = """
import sys
from pymongo.periodic_executor import PeriodicExecutor
PeriodicExecutor.join = lambda *_: print("waited")
from strandline.source.client import ConnectionOptions, close_client, end_without_waiting, open_client
client = open_client(ConnectionOptions(sys.argv[1]))
client.admin.command("ping")
close_client(client)
if "at once" in sys.argv:
    end_without_waiting()
"""


@pytest.mark.parametrize(("how", "waits"), [("at once", False), ("as the driver does", True)])
def test_a_process_does_not_wait_for_the_threads_of_its_closed_clients(mongo_uri: str, how: str, waits: bool) -> None:
    ended = subprocess.run([sys.executable, "-c", _COMMAND, mongo_uri, how], capture_output=True, text=True, check=True)
    assert ("waited" in ended.stdout, ended.stderr) == (waits, "")
