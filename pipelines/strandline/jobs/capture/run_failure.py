"""The failure that ends a run of a capture, as a notification."""

from __future__ import annotations

import logging
import uuid

from strandline.control.notifications import RUN, Notifications
from strandline.errors import one_line
from strandline.model.table_schemas import NOTIFICATIONS

_log = logging.getLogger("strandline.capture")


def record_failure(notifications: Notifications, failure: Exception) -> None:
    """Write a notification of *failure*. It is the only trace of the failure in the lake.

    I/O: one row in ``control.notifications``, if the table exists: a lake that was moved away gets no new table.
    """
    try:
        if notifications.tables.exists(NOTIFICATIONS):
            what = {"failure": type(failure).__name__, "message": one_line(failure)}
            notifications.notify(RUN, "ABORTED", uuid.uuid4().hex, **what)
            notifications.flush()
    except Exception as error:  # noqa: BLE001  # why: the first failure is the one to raise
        _log.warning("the failure is not in control.notifications: %s", one_line(error))
