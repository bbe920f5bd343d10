"""What a capture does when the source has forgotten the history behind the committed token."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass

from pipelines.bronze.gaps import commit_gap, consecutive_heals
from pipelines.bronze.offsets import Committed, committed
from pipelines.bronze.writer import BronzeWriter
from pipelines.errors import ResumePointLost
from pipelines.settings import CaptureSettings
from pipelines.source.change_stream import token_at
from pipelines.source.client import AnyClient, Deployment, operation_time, token_data
from pipelines.source.oplog import Oplog
from pipelines.source.resume import ResumePoint
from pipelines.source.stages import Selection

_log = logging.getLogger("strandline.capture")
_HEALS_IN_A_ROW = 2


@dataclass(frozen=True)
class Recovery:
    """``capture.on_history_lost``, for one run of a capture.

    Args:
        client: Opened with ``raw=True``.
    """

    writer: BronzeWriter
    client: AnyClient
    selection: Selection
    settings: CaptureSettings
    deployment: Deployment

    @property
    def _oplog(self) -> Oplog:
        return Oplog(self.client, self.selection, expanded_events=self.deployment.shows_expanded_events)

    def refuse_future(self, token: str) -> None:
        """I/O: a token that is later than the source's present comes from another cluster, or from one that went back in time. The server
        accepts it, and then nothing ever comes.

        Raises:
            ResumePointLost: It is later.
        """
        if token_data(token) > self._oplog.present():
            raise ResumePointLost(
                "the committed token lies in the source's future: it is another cluster, or one that was restored to an earlier time",
                next_step="strandline stop, then strandline offsets reset: the next capture reads everything again",
            )

    def recover(self, lost: ResumePointLost) -> Committed:
        """I/O: by policy, a gap row with both ends and the position to go on from.

        Raises:
            ResumePointLost: The policy is ``fail``, or the source forgets faster than snapshots can follow.
        """
        policy = "heal" if self.settings.snapshot_policy.heals else self.settings.on_history_lost
        last = committed(self.writer.tables, self.writer.table)
        if policy == "fail" or last is None:
            raise lost
        if policy == "restart_at_oldest":
            return self._restart_at_oldest(last, lost)
        if consecutive_heals(self.writer) >= _HEALS_IN_A_ROW:
            raise ResumePointLost(
                f"the source lost the history {_HEALS_IN_A_ROW + 1} times in a row with no event captured in between",
                next_step="enlarge the oplog (replSetResizeOplog), then strandline capture",
            ) from lost
        present = operation_time(self.client)
        token = self._token_before(present)
        snapshot_id = uuid.uuid4().hex
        _log.warning("the source has forgotten the history behind batch %d; snapshot %s heals the gap", last.batch, snapshot_id)
        return commit_gap(self.writer, last, "heal", to_token=token, present=present, snapshot_id=snapshot_id, reason=lost.message)

    def _token_before(self, moment: tuple[int, int]) -> str:
        start = ResumePoint(cluster_time=moment)
        return token_at(self.client, self.selection, start, expanded_events=self.deployment.shows_expanded_events)

    def _restart_at_oldest(self, last: Committed, lost: ResumePointLost) -> Committed:
        token = self._token_before((self._oplog.oldest(), 0))
        _log.warning("the source has forgotten the history behind batch %d; going on from the oldest that it remembers", last.batch)
        present = operation_time(self.client)
        return commit_gap(
            self.writer, last, "restart_at_oldest", to_token=token, present=present, snapshot_id=last.snapshot_id, reason=lost.message
        )
