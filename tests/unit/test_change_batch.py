"""When a capture that ends at a target has read everything up to it."""

from __future__ import annotations

import pytest

from strandline.source.change_batch import ChangeBatch

_TARGET = "826B0968DE000000032B0229296E04"  # of the time 0x6B0968DE, 3: it comes before the events of that time
_EARLIER, _LATER = "826B0968DE000000022B0229296E04", "826B0968DE000000032B022C0100296E"


@pytest.mark.parametrize(
    ("token", "events", "drained_at", "reached"),
    [
        (_EARLIER, (b"event",), 1.0, False),
        (_TARGET, (), None, False),  # the events of that time may be still to come, or may be what the reader fails at
        (_TARGET, (), 1.0, True),
        (_TARGET, (b"event",), None, True),
        (_LATER, (), None, True),
    ],
)
def test_a_target_is_reached_when_its_events_were_asked_for(
    token: str, events: tuple[bytes, ...], drained_at: float | None, reached: bool
) -> None:
    batch = ChangeBatch(events, f'{{"_data": "{token}"}}', drained_at=drained_at)
    assert batch.reaches(_TARGET) == reached
