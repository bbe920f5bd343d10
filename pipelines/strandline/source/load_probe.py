"""Questions to the source about its load. A command that the user may not run is asked once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import pymongo
from bson.codec_options import CodecOptions
from pymongo import ReadPreference
from pymongo import errors as mongo

from strandline.source.client import AnyClient
from strandline.source.errors import classify
from strandline.source.load import SourceLoad

_log = logging.getLogger("strandline.snapshot")
_SECONDS: Final = 5.0
"""Time for all answers. A lane of a snapshot waits for them."""
_DECODED: Final = CodecOptions[dict[str, Any]]()
"""The client of a snapshot keeps documents as bytes."""


class LoadProbe:
    """Reads the load of the member that snapshots read from, and of the primary.

    A mongos knows neither tickets nor lag of its shards: behind it no load is seen, and nothing is asked.

    Args:
        client: Client whose ``readPreference`` chooses the member.
    """

    def __init__(self, client: AnyClient) -> None:
        self._client = client
        self._refused: set[str] = set()

    def read(self) -> SourceLoad:
        """Return the load at this moment.

        I/O: reads ``serverStatus``, ``replSetGetStatus`` and ``replSetGetConfig`` (role ``clusterMonitor``). A refused
        command is logged once and not sent again. Without an answer no load is seen: the next look asks again.
        """
        known = set(self._refused)
        try:
            with pymongo.timeout(_SECONDS):
                load = SourceLoad() if self._client.is_mongos else self._load()
        except mongo.PyMongoError as error:
            _log.info("the load of the source is not known at this moment: %s", type(error).__name__)
            load = SourceLoad()
        if refused := sorted(self._refused - known):
            _log.info(
                "snapshots are not slowed by all signs of load: the source refuses %s (role clusterMonitor)",
                ", ".join(refused),
            )
        return load

    def _load(self) -> SourceLoad:
        return SourceLoad.of(self._statuses(), self._ask("replSetGetStatus"), self._ask("replSetGetConfig"))

    def _statuses(self) -> list[Mapping[str, Any]]:
        chosen = self._client.read_preference
        members = [ReadPreference.PRIMARY, *([chosen] if chosen != ReadPreference.PRIMARY else [])]
        replies = [self._ask("serverStatus", member) for member in members]
        return [reply for reply in replies if reply is not None]

    def _ask(self, command: str, preference: Any = ReadPreference.PRIMARY) -> Mapping[str, Any] | None:
        """Return the reply. None: the source refuses the command."""
        if command in self._refused:
            return None
        try:
            reply: dict[str, Any] = self._client.admin.command(
                command, read_preference=preference, codec_options=_DECODED
            )
        except mongo.OperationFailure as error:
            if classify(error) == "retriable":
                raise
            self._refused.add(command)
            return None
        return reply
