"""The limit of one find beside a whole initial snapshot into bronze."""

from __future__ import annotations

from pathlib import Path

from bench.landing import Landing
from bench.limits import Client, find_limit, insert
from bench.measure import Measurement, timed
from pipelines.settings import CaptureSettings


def compare(client: Client, uri: str, folder: Path, *, documents: int, seed: int) -> list[Measurement]:
    """I/O: makes a collection, then reads it twice: raw, and into bronze."""
    insert(client, "docs", documents, seed=seed)
    limit = timed("find, raw batches", lambda: find_limit(client, "docs"))
    return [limit, snapshot(uri, "docs", folder, documents)]


def snapshot(uri: str, database: str, folder: Path, documents: int, name: str = "bronze snapshot") -> Measurement:
    """I/O: captures *database* with its initial snapshot."""
    lanes = CaptureSettings().snapshot_max_threads
    return Landing(uri, database, folder / f"snapshot-{database}").measured(name, op="r", expected=documents, lanes=lanes)
