"""The alarms of `strandline run` and `strandline capture`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.io.telemetry.live_state import CaptureState
    from strandline.settings.configuration import Settings


@contextmanager
def alarms(settings: Settings, capture: CaptureState) -> Iterator[None]:
    """Send alarms of *capture* while the block runs, and one if it fails (``notifications``)."""
    from strandline.control.alarm_channels import AlarmChannel, Mail, Webhook
    from strandline.control.alarms import AlarmLimits, Alarms, states_of
    from strandline.errors import one_line

    told = settings.notifications
    channels: list[AlarmChannel] = []
    if told.webhook_url is not None:
        channels.append(Webhook(told.webhook_url.get_secret_value()))
    if told.email_to:
        password = None if told.smtp_password is None else told.smtp_password.get_secret_value()
        server = (told.smtp_host or "", told.smtp_port, told.email_from or "", tuple(told.email_to))
        channels.append(Mail(*server, told.smtp_security, told.smtp_user, password))
    limits = AlarmLimits(told.lag_seconds, told.disconnected_seconds, told.snapshot_stalled_seconds)
    sender = Alarms(
        settings.source.name,
        channels,
        lambda: states_of(capture, limits, time.time()),
        told.interval_ms / 1000,
        wanted=lambda: capture.wanted,
    ).start()
    try:
        yield
    except Exception as error:
        sender.close(one_line(error))
        raise
    sender.close()
