"""Throughput of bronze capture, compared with a plain read of the same change stream backlog."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from bson.timestamp import Timestamp

from bench.landing import ENGINES, Landing
from bench.limits import Client, drain_limit, insert, now
from bench.measure import Measurement, timed


def compare(client: Client, uri: str, folder: Path, *, events: int, seed: int) -> list[Measurement]:
    """Insert *events* documents, then read the backlog three times: raw, and into bronze with each engine."""
    start = now(client)
    insert(client, "events", events, seed=seed)
    limit = timed("change stream, raw batches", lambda: drain_limit(client, "events", start, events))
    return [limit, *(capture(uri, "events", folder, start, events, engine=engine) for engine in ENGINES)]


def capture(
    uri: str,
    database: str,
    folder: Path,
    start: Timestamp,
    events: int,
    name: str = "bronze capture",
    *,
    engine: str = ENGINES[0],
) -> Measurement:
    """Capture all changes of *database* since *start*, without a snapshot."""
    begun = datetime.fromtimestamp(start.time, UTC).isoformat()
    landing = Landing(uri, database, folder / f"stream-{database}-{engine}")
    named = f"{name}, {engine}"
    return landing.measured(
        named, op="c", expected=events, lanes=1, snapshot_mode="no_data", start_at=begun, engine=engine
    )
