"""Throughput of an initial snapshot into bronze, compared with one plain find."""

from __future__ import annotations

from pathlib import Path

from bench.landing import ENGINES, Landing
from bench.limits import Client, find_limit, insert
from bench.measure import Measurement, timed
from strandline.settings.capture import CaptureSettings


def compare(client: Client, uri: str, folder: Path, *, documents: int, seed: int) -> list[Measurement]:
    """Insert a collection, then read it three times: raw, and into bronze with each engine."""
    insert(client, "docs", documents, seed=seed)
    limit = timed("find, raw batches", lambda: find_limit(client, "docs"))
    return [limit, *(snapshot(uri, "docs", folder, documents, engine=engine) for engine in ENGINES)]


def snapshot(
    uri: str, database: str, folder: Path, documents: int, name: str = "bronze snapshot", *, engine: str = ENGINES[0]
) -> Measurement:
    """Capture *database* with its initial snapshot."""
    lanes, landing = (
        CaptureSettings().snapshot_max_threads,
        Landing(uri, database, folder / f"snapshot-{database}-{engine}"),
    )
    return landing.measured(f"{name}, {engine}", op="r", expected=documents, lanes=lanes, engine=engine)
