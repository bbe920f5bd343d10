"""Elections of a primary, as the driver sees them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pymongo import monitoring


class ElectionListener(monitoring.TopologyListener):
    """Calls *elected* for each new primary. The first primary that a client finds is none.

    Every election has an id. Behind a mongos no server of the replica sets is seen.
    """

    def __init__(self, elected: Callable[[], None]) -> None:
        self._elected = elected
        self._election_id: Any = None
        self._lock = threading.Lock()

    def opened(self, event: monitoring.TopologyOpenedEvent) -> None:
        """Do nothing."""

    def closed(self, event: monitoring.TopologyClosedEvent) -> None:
        """Do nothing."""

    def description_changed(self, event: monitoring.TopologyDescriptionChangedEvent) -> None:
        for server in event.new_description.server_descriptions().values():
            if server.server_type_name == "RSPrimary" and server.election_id is not None:
                with self._lock:
                    is_new = self._election_id not in (None, server.election_id)
                    self._election_id = server.election_id
                if is_new:
                    self._elected()
