"""Port to the engines that append rows to bronze, exactly once or not at all. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from strandline.bronze.envelope import Batch
from strandline.errors import ConfigurationError, RetriableError
from strandline.io.delta_log.append_result import AlreadyAppended, Appended

Reader = Callable[[], Iterator[pa.RecordBatch]]
"""Function that reads rows for bronze. It can be sent to another process."""


class ReadFailed(Exception):
    """A read failed, wherever it ran. The caller decides whether to retry."""


def read_failure(error: Exception) -> Exception:
    """Return the error that an engine raises after a failed read.

    Refusals and missing answers of the source stay as they are. Every other error may pass: for example, the next
    attempt finds that the collection was dropped.
    """
    return error if isinstance(error, RetriableError | ConfigurationError) else ReadFailed(type(error).__name__)


@dataclass(frozen=True)
class TransactionId:
    """Idempotency key of an append, and the proof of its writer."""

    app_id: str
    sequence: int
    proof: str
    """Unique text, stored in the commit's ``userMetadata``: the application id, the writer, and the sequence or a word
    that ends all sequences, joined by colons."""

    def is_taken_by(self, proof: str | None) -> bool:
        """Return True if the commit with *proof* is of another writer that took this sequence or a later one."""
        app_id, *rest = (proof or "").rsplit(":", 2)
        if proof == self.proof or app_id != self.app_id or len(rest) < 2:
            return False
        return not rest[1].isdecimal() or int(rest[1]) >= self.sequence


class Engine(Protocol):
    """I/O: each append is one commit that carries this writer's proof, or none if the sequence is taken.

    `SparkEngine` appends with Spark, to a table in any place. `NativeEngine` appends with delta-rs, to a folder.
    """

    def append_batch(self, batch: Batch, once: TransactionId) -> Appended | AlreadyAppended:
        """Append the events of a batch."""

    def append_rows(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended:
        """Append a few rows."""

    def append_read(self, reader: Reader, once: TransactionId) -> Appended | AlreadyAppended:
        """Append rows that another process reads. A failed read is raised as `read_failure` says."""

    def append_beside_writers(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended:
        """Append a few rows while other writers of the same application commit.

        Raises:
            RetriableError: Another writer was faster at every attempt. Nothing was written.
        """

    def end_reads(self) -> None:
        """End the reads in progress, which may wait for the source for ever. They raise an error. No more may begin."""

    def close(self) -> None:
        """Stop the processes of the engine."""
