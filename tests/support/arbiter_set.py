"""A replica set of a member that holds data and an arbiter."""

from __future__ import annotations

from strandline.source.mongod import EmbeddedMongod


class ArbiterSet(EmbeddedMongod):
    """Member 0 holds data, member 1 is an arbiter."""

    def __init__(self) -> None:
        super().__init__(members=2)

    def _initiate(self) -> None:
        members = [{"_id": number, "host": f"127.0.0.1:{port}"} for number, port in enumerate(self.ports)]
        members[1]["arbiterOnly"] = True
        self._direct(0, "replSetInitiate", {"_id": "strandline", "members": members})
        self._wait_for(lambda: self._is_primary(0), "no primary was elected")
