"""Random updates and pipelines on a real server: every version of a history equals the server's post-image.

Any failure replays with the seed that it prints: ``pytest tests/property/test_history_images.py --hypothesis-seed=…``.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from hypothesis import HealthCheck, Phase, given, settings
from pymongo import errors
from pymongo.database import Database
from random_updates import HOSTILE, PLAIN, bulky, random_document, random_operators, random_pipeline
from seeds import SEEDS

from strandline.bronze.event import ChangeEvent, parse_event
from strandline.model.bson import raw as rb
from strandline.model.lives import ONE_LIFE
from strandline.silver.decode.document import with_id_first
from strandline.silver.history.versions import fact_of, versions_of

Db = Database[dict[str, Any]]
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
_CAPTURED = datetime(2026, 1, 1, tzinfo=UTC)


def random_workload(database: Db, chance: Random) -> list[ChangeEvent]:
    """Return the events of forty documents, each with its pre-image and post-image."""
    raw = database.create_collection("c", changeStreamPreAndPostImages={"enabled": True}).with_options(
        codec_options=_RAW
    )
    with raw.watch(full_document="whenAvailable", full_document_before_change="whenAvailable") as stream:
        for key in range(40):
            database.c.insert_one(
                {"_id": key, **bulky(chance, random_document(chance, chance.choice((PLAIN, HOSTILE)), 3))}
            )
            for _ in range(chance.randint(2, 8)):
                document: dict[str, Any] = bson.decode(bytes(raw.find({"_id": key}).next().raw))
                random_update = (
                    random_pipeline(chance, document, PLAIN)
                    if chance.random() < 0.6
                    else random_operators(chance, document)
                )
                update, options = random_update
                with suppress(errors.WriteError):  # the server refuses some of them
                    database.c.update_one({"_id": key}, update, **options)
        last = database.c.insert_one({"last": True}).inserted_id
        events = []
        while (event := next(stream))["documentKey"]["_id"] != last:
            events.append(parse_event(bytes(event.raw)))
    database.c.drop()
    return events


def part_of(event: ChangeEvent, name: bytes) -> bytes | None:
    span = event.spans.get(name)
    return event.raw[span[1] : span[2]] if span is not None and span[0] == rb.DOCUMENT else None


def versions_by_position(events: list[ChangeEvent]) -> dict[str, tuple[bytes | None, bool | None]]:
    by_key = defaultdict(list)
    for event in events:
        by_key[event.key].append(fact_of(event.position, event.op, None, _CAPTURED, event.raw))
    found = (version for facts in by_key.values() for version in versions_of(facts, lives=ONE_LIFE))
    return {version.position: (version.document, version.exact) for version in found}


# scenario: B03, B04, B11
@settings(
    deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None, max_examples=2
)
@given(seed=SEEDS)
def test_every_version_is_the_post_image_with_the_id_where_the_server_stores_it(database: Db, seed: int) -> None:
    events = random_workload(database, Random(seed))
    versions = versions_by_position(events)
    assert len(events) > 100
    for event in events:
        image = part_of(event, b"fullDocument")
        assert image is not None
        assert versions[event.position] == (with_id_first(image), True), bson.decode(event.raw)
