"""Recovery of a capture whose committed token lies outside the source's history."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass

from strandline.bronze.gaps import commit_gap, consecutive_losses, newest_position
from strandline.bronze.offsets import Committed, committed
from strandline.errors import ResumePointLost, RetriableError
from strandline.jobs.capture_session import CaptureSession
from strandline.model.position import cluster_time_of
from strandline.model.resume_token import RESET_OR_HEAL
from strandline.source.oplog import IN_THE_FUTURE
from strandline.source.resume import ResumePoint

_log = logging.getLogger("strandline.capture")
_MAX_CONSECUTIVE_LOSSES = 2


@dataclass(frozen=True)
class HistoryLossHandler:
    """The policy ``capture.on_history_lost``, for one run of a capture."""

    session: CaptureSession

    def check_token(self, last: Committed, token: str) -> Committed:
        """Return *last* if the source can resume after *token*; otherwise recover.

        I/O: reads the source's operation time. A server accepts a token of the future, and then sends no event.

        Raises:
            ResumePointLost: See `recover`.
        """
        try:
            if self.session.retry(lambda: self.session.oplog.is_of_the_future(token)):
                raise ResumePointLost(f"the committed position is lost: {IN_THE_FUTURE}", next_step=RESET_OR_HEAL)
        except ResumePointLost as lost:
            return self.recover(lost)
        return last

    def recover(self, lost: ResumePointLost) -> Committed:
        """Return the offset to continue from, as the policy says.

        I/O: reads the source; appends a gap row with both ends to bronze.

        Raises:
            ResumePointLost: The policy is ``fail``, or the source deletes history faster than capture reads it.
        """
        policy, writer = self.session.settings.lost_history_policy, self.session.writer
        last = committed(writer.tables, writer.table)
        if policy == "fail" or last is None:
            raise lost
        if consecutive_losses(writer) >= _MAX_CONSECUTIVE_LOSSES:
            raise ResumePointLost(
                f"the source lost the history {_MAX_CONSECUTIVE_LOSSES + 1} times in a row, "
                "and capture committed no event in between",
                next_step="enlarge the oplog (replSetResizeOplog), then strandline stop, strandline offsets reset, "
                "strandline start",
            ) from lost
        if policy == "restart_at_oldest":
            return self._restart_at_oldest(last, lost)
        present = self.session.retry(self._present_after_bronze)
        token = self.session.retry(lambda: self.session.oplog.token_at(ResumePoint(cluster_time=present)))
        snapshot_id = uuid.uuid4().hex
        _log.warning(
            "the source no longer has the history after batch %d; snapshot %s heals the gap", last.batch, snapshot_id
        )
        return commit_gap(
            writer,
            last,
            "heal",
            to_token=token,
            present=present,
            snapshot_id=snapshot_id,
            apart=self.session.settings.starts,
            reason=lost.message,
        )

    def _present_after_bronze(self) -> tuple[int, int]:
        """Return the source's operation time.

        I/O: reads the source and bronze. Silver would ignore a snapshot that is older than bronze's newest event.

        Raises:
            RetriableError: The operation time is earlier than bronze's newest event, for example after a restore. An
                idle primary advances its operation time every ten seconds.
        """
        writer = self.session.writer
        present, newest = self.session.oplog.present_time(), newest_position(writer.tables, writer.table)
        if newest and cluster_time_of(newest) > present:
            raise RetriableError(
                "the source's operation time is earlier than that of the newest event in bronze", next_step="wait"
            )
        return present

    def _restart_at_oldest(self, last: Committed, lost: ResumePointLost) -> Committed:
        oplog = self.session.oplog
        token = self.session.retry(
            lambda: self.session.oplog.token_at(ResumePoint(cluster_time=(self.session.oplog.oldest(), 0)))
        )
        _log.warning(
            "the source no longer has the history after batch %d; capture continues at the oldest event in the oplog",
            last.batch,
        )
        present = self.session.retry(oplog.present_time)
        return commit_gap(
            self.session.writer,
            last,
            "restart_at_oldest",
            to_token=token,
            present=present,
            snapshot_id=last.snapshot_id,
            apart=self.session.settings.starts,
            reason=lost.message,
        )
