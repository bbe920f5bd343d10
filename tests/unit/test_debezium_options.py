"""docs/capture.md has a row for every option of Debezium's MongoDB connector."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "capture.md"

# The options that Debezium 3.6 documents for its MongoDB connector (connectors/mongodb.adoc of its documentation, July
# 2026), with those of its pages on signals and notifications that this connector reads.
_DOCUMENTED = """
internal.mongodb.allow.offset.invalidation
name connector.class mongodb.connection.string topic.prefix
mongodb.authentication.class mongodb.user mongodb.password mongodb.authsource
mongodb.ssl.enabled mongodb.ssl.invalid.hostname.allowed
mongodb.ssl.keystore mongodb.ssl.keystore.password mongodb.ssl.keystore.type
mongodb.ssl.truststore mongodb.ssl.truststore.password mongodb.ssl.truststore.type
filters.match.mode database.include.list database.exclude.list collection.include.list collection.exclude.list
capture.mode capture.mode.full.update.type json.serialization.mode capture.start.op.time capture.scope capture.target
field.exclude.list field.renames tombstones.on.delete schema.name.adjustment.mode field.name.adjustment.mode
max.batch.size max.queue.size max.queue.size.in.bytes poll.interval.ms
connect.max.attempts connect.backoff.initial.delay.ms connect.backoff.max.delay.ms
source.struct.version heartbeat.interval.ms skipped.operations
snapshot.collection.filter.overrides snapshot.delay.ms
streaming.delay.ms snapshot.fetch.size snapshot.include.collection.list
snapshot.max.threads snapshot.mode
snapshot.mode.configuration.based.snapshot.data snapshot.mode.configuration.based.snapshot.schema
snapshot.mode.configuration.based.start.stream
snapshot.mode.configuration.based.snapshot.on.schema.error snapshot.mode.configuration.based.snapshot.on.data.error
snapshot.mode.custom.name
provide.transaction.metadata retriable.restart.connector.wait.ms errors.max.retries
mongodb.poll.interval.ms mongodb.connect.timeout.ms mongodb.heartbeat.frequency.ms mongodb.socket.timeout.ms
mongodb.server.selection.timeout.ms
cursor.pipeline cursor.pipeline.order
cursor.oversize.handling.mode cursor.oversize.skip.threshold cursor.max.await.time.ms
signal.data.collection signal.enabled.channels signal.file signal.poll.interval.ms
signal.kafka.topic signal.kafka.groupId
signal.kafka.bootstrap.servers signal.kafka.poll.timeout.ms signal.consumer.security.protocol
notification.enabled.channels notification.sink.topic.name
incremental.snapshot.chunk.size incremental.snapshot.watermarking.strategy
topic.naming.strategy topic.delimiter topic.cache.size topic.heartbeat.prefix topic.heartbeat.name topic.transaction
custom.metric.tags custom.sanitize.pattern
guardrail.collections.max guardrail.collections.limit.action
extended.headers.enabled skip.messages.without.change statistics.metrics.enabled
"""

# Options that its configuration takes and its page does not describe.
_UNDOCUMENTED = """
converters event.processing.failure.handling.mode
executor.shutdown.timeout.ms openlineage.integration.enabled post.processors
query.fetch.size sanitize.field.names sourceinfo.struct.maker tasks.max transaction.metadata.factory
"""

DOCUMENTED, UNDOCUMENTED = _DOCUMENTED.split(), _UNDOCUMENTED.split()


def options_of_page() -> list[str]:
    """Options in the first column of the page's table; `*` stands for any rest of a name."""
    table = PAGE.read_text(encoding="utf-8").split("\n\n")[2]
    return [name for line in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", line.split("|")[1])]


@pytest.mark.parametrize("option", DOCUMENTED + UNDOCUMENTED)
def test_an_option_has_exactly_one_row(option: str) -> None:
    assert [name for name in options_of_page() if fnmatchcase(option, name)] != [], (
        f"{PAGE.name} has no row for {option}"
    )
    assert len([name for name in options_of_page() if name == option]) <= 1


def test_the_page_names_no_option_that_debezium_does_not_have() -> None:
    known = DOCUMENTED + UNDOCUMENTED
    assert [name for name in options_of_page() if not any(fnmatchcase(option, name) for option in known)] == []
