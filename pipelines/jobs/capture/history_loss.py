"""What a capture does when the source has forgotten the history behind the committed token."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass

from pipelines.bronze.gaps import commit_gap, consecutive_losses, newest_position
from pipelines.bronze.offsets import Committed, committed
from pipelines.errors import ResumePointLost, RetriableError
from pipelines.jobs.capture_session import CaptureSession
from pipelines.model.position import cluster_time_of
from pipelines.model.resume_token import RESET_OR_HEAL
from pipelines.source.client import token_data
from pipelines.source.oplog import IN_THE_FUTURE, Oplog
from pipelines.source.resume import ResumePoint

_log = logging.getLogger("strandline.capture")
_LOSSES_IN_A_ROW = 2


@dataclass(frozen=True)
class HistoryLossHandler:
    """``capture.on_history_lost``, for one run of a capture."""

    session: CaptureSession
    oplog: Oplog

    def usable(self, last: Committed, token: str) -> Committed:
        """I/O: *last*, or the position to go on from where its *token* cannot be read or is later than the source's present. A server
        accepts a later one, and then no event ever comes.

        Raises:
            ResumePointLost: As `recover`.
        """
        try:
            if token_data(token) > self.session.retry(self.oplog.present_token_data):
                raise ResumePointLost(f"the committed position is lost: {IN_THE_FUTURE}", next_step=RESET_OR_HEAL)
        except ResumePointLost as lost:
            return self.recover(lost)
        return last

    def recover(self, lost: ResumePointLost) -> Committed:
        """I/O: by policy, a gap row with both ends and the position to go on from.

        Raises:
            ResumePointLost: The policy is ``fail``, or the source forgets faster than capture can follow.
        """
        policy, writer = self.session.settings.lost_history_policy, self.session.writer
        last = committed(writer.tables, writer.table)
        if policy == "fail" or last is None:
            raise lost
        if consecutive_losses(writer) >= _LOSSES_IN_A_ROW:
            raise ResumePointLost(
                f"the source lost the history {_LOSSES_IN_A_ROW + 1} times in a row, and the position did not move on in between",
                next_step="enlarge the oplog (replSetResizeOplog), then strandline stop, strandline offsets reset, strandline start",
            ) from lost
        if policy == "restart_at_oldest":
            return self._restart_at_oldest(last, lost)
        present = self.session.retry(self._present_after_bronze)
        token = self.session.retry(lambda: self.oplog.token_at(ResumePoint(cluster_time=present)))
        snapshot_id = uuid.uuid4().hex
        _log.warning(
            "the source has forgotten the history behind batch %d; snapshot %s heals the gap", last.batch, snapshot_id
        )
        return commit_gap(
            writer, last, "heal", to_token=token, present=present, snapshot_id=snapshot_id, reason=lost.message
        )

    def _present_after_bronze(self) -> tuple[int, int]:
        """I/O: the source's operation time. What a snapshot reads at an earlier time than that of bronze's newest event would be ignored.

        Raises:
            RetriableError: It is earlier: the source was restored a moment ago. An idle primary moves on every ten seconds.
        """
        present, newest = (
            self.oplog.present_time(),
            newest_position(self.session.writer.tables, self.session.writer.table),
        )
        if newest and cluster_time_of(newest) > present:
            raise RetriableError(
                "the source's operation time is earlier than that of the newest event in bronze", next_step="wait"
            )
        return present

    def _restart_at_oldest(self, last: Committed, lost: ResumePointLost) -> Committed:
        token = self.session.retry(lambda: self.oplog.token_at(ResumePoint(cluster_time=(self.oplog.oldest(), 0))))
        _log.warning(
            "the source has forgotten the history behind batch %d; going on from the oldest that it remembers",
            last.batch,
        )
        present = self.session.retry(self.oplog.present_time)
        return commit_gap(
            self.session.writer,
            last,
            "restart_at_oldest",
            to_token=token,
            present=present,
            snapshot_id=last.snapshot_id,
            reason=lost.message,
        )
