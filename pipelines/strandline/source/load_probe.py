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
from strandline.source.errors import NOT_ALLOWED, is_overload
from strandline.source.load import SourceLoad
from strandline.source.replies import optional_answer

_log = logging.getLogger("strandline.snapshot")
_SECONDS: Final = 3.0
"""Time for one answer. A lane of a snapshot waits for at most four."""
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
        self._overload = False

    def read(self) -> SourceLoad:
        """Return the load at this moment.

        I/O: reads ``serverStatus``, ``replSetGetStatus`` and ``replSetGetConfig`` (role ``clusterMonitor``). A command
        that the user may not run is logged once and not sent again. A command that an overloaded server refuses is a
        load. A command that fails otherwise, or an answer that lacks a field, shows none; the other answers count, and
        the next look asks again.
        """
        if optional_answer(lambda: self._client.is_mongos, "the source's topology") is not False:
            return SourceLoad()
        refused_before, self._overload = set(self._refused), False
        replies = self._statuses(), self._answer("replSetGetStatus"), self._answer("replSetGetConfig")
        load = SourceLoad.of(*replies, overload=self._overload)
        if refused := sorted(self._refused - refused_before):
            _log.info(
                "snapshots are not slowed by all signs of load: the source refuses %s (role clusterMonitor)",
                ", ".join(refused),
            )
        return load

    def _statuses(self) -> list[Mapping[str, Any]]:
        chosen = self._client.read_preference
        members = [ReadPreference.PRIMARY, *([chosen] if chosen != ReadPreference.PRIMARY else [])]
        replies = [self._answer("serverStatus", member) for member in members]
        return [reply for reply in replies if reply is not None]

    def _answer(self, command: str, preference: Any = ReadPreference.PRIMARY) -> Mapping[str, Any] | None:
        """Return the reply. None: there is none at this moment, or the user may not run the command."""
        return None if command in self._refused else optional_answer(lambda: self._ask(command, preference), command)

    def _ask(self, command: str, preference: Any) -> Mapping[str, Any] | None:
        try:
            with pymongo.timeout(_SECONDS):
                reply: dict[str, Any] = self._client.admin.command(
                    command, read_preference=preference, codec_options=_DECODED
                )
        except mongo.OperationFailure as error:
            self._overload |= is_overload(error)
            if error.code not in NOT_ALLOWED or is_overload(error):
                raise
            self._refused.add(command)
            return None
        return reply
