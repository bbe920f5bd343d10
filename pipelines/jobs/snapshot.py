"""One snapshot: every captured collection in `_id` ranges, read on the executors, each chunk one commit with its manifest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from pipelines.bronze.envelope import ChunkStamp, Stamp, manifest_table, read_table
from pipelines.bronze.offsets import Committed
from pipelines.bronze.writer import BronzeWriter
from pipelines.control.sources import Gate
from pipelines.errors import RetriableError, StrandlineError
from pipelines.model.columns import BRONZE_DDL
from pipelines.model.snapshot_policy import query_document
from pipelines.settings import CaptureSettings
from pipelines.source.client import (
    AnyClient,
    Collection,
    ConnectionOptions,
    captured_collections,
    find_incarnation,
    open_client,
    operation_time,
)
from pipelines.source.ranges import ChunkManifest, Range, Reading, plan_chunks, read_range
from pipelines.source.stages import Selection

_CHUNK_ATTEMPTS = 5


@dataclass(frozen=True)
class Chunk:
    """One unit of resumption. Its lane and place in the plan never change, so a lane's transaction numbers only rise."""

    number: int
    collection: Collection
    range: Range
    query: str | None = None
    """Only documents that match (JSON)."""


@dataclass(frozen=True)
class Plan:
    """What a snapshot will read, committed before the first chunk."""

    chunks: tuple[Chunk, ...]
    lanes: int
    at: tuple[int, int] = (0, 0)
    """Operation time at which the collections were listed: one that is missing was gone then."""
    sweeps: bool = False
    """Whether silver retires what the snapshot did not meet: there was something before it, and it reads everything."""

    def to_json(self) -> str:
        entries = [
            {"db": chunk.collection.db, "collection": chunk.collection.name, "uuid": chunk.collection.uuid, "query": chunk.query}
            | chunk.range.to_json()
            for chunk in self.chunks
        ]
        return json.dumps({"lanes": self.lanes, "at": self.at, "sweeps": self.sweeps, "chunks": entries})

    @staticmethod
    def from_json(text: str) -> Plan:
        stored = json.loads(text)
        chunks = (
            Chunk(number, Collection(entry["db"], entry["collection"], entry["uuid"]), Range.from_json(entry), entry.get("query"))
            for number, entry in enumerate(stored["chunks"])
        )
        return Plan(tuple(chunks), stored["lanes"], tuple(stored.get("at", (0, 0))), stored.get("sweeps", False))


@dataclass(frozen=True)
class Means:
    """With what a capture reads and writes, beside the stream and in it."""

    writer: BronzeWriter
    options: ConnectionOptions
    selection: Selection
    settings: CaptureSettings
    gate: Gate
    report: Callable[[str, int], None]


def make_plan(
    means: Means,
    collections: Iterable[Collection] | None = None,
    taken_over: Iterable[tuple[Collection, Range]] = (),
    *,
    sweeps: bool = False,
) -> Plan:
    """I/O: lists the source's collections and samples them for the bounds of their chunks.

    Args:
        collections: Only these; default: all that are captured.
        taken_over: Chunks that another snapshot has not read.
    """
    with closing(open_client(means.options, raw=True)) as client:
        at = operation_time(client)
        wanted = _wanted(client, means) if collections is None else collections
        size = means.settings.snapshot_chunk_size
        fresh = [(collection, chunk) for collection in wanted for chunk in plan_chunks(client, collection, size)]
    queries = means.settings.snapshot_collection_filter_overrides
    chunks = (Chunk(number, where, part, queries.get(str(where))) for number, (where, part) in enumerate([*taken_over, *fresh]))
    reads_everything = not queries and not means.settings.snapshot_include_collection_list
    sweeps = sweeps and reads_everything and "delete" not in means.selection.skipped_operations
    return Plan(tuple(chunks), means.settings.snapshot_max_threads, at, sweeps)


def _wanted(client: AnyClient, means: Means) -> list[Collection]:
    """Captured collections that a snapshot reads."""
    patterns, selection = means.settings.snapshot_include_collection_list, means.selection
    captured = captured_collections(client, selection)
    return [where for where in captured if not patterns or any(selection.matches(pattern, str(where)) for pattern in patterns)]


class SnapshotRun:
    """Runs beside the stream in threads, one for each lane; resumes at the first chunk that is not in bronze."""

    def __init__(self, means: Means, snapshot_id: str, plan: Plan, done: set[int]) -> None:
        self._means, self._writer, self._selection = means, means.writer, means.selection
        self.id, self.plan, self._done = snapshot_id, plan, done
        self._pool = ThreadPoolExecutor(max_workers=plan.lanes, thread_name_prefix="strandline-snapshot")
        self._lanes: list[Future[int]] = []
        self._documents = 0
        self._stop = threading.Event()

    @staticmethod
    def of(means: Means, last: Committed) -> SnapshotRun | None:
        """I/O: reads the plan of the snapshot that *last* names and what of it has landed; plans and commits it where there is none yet.
        None where no snapshot is under way. Whatever is not the first batch of all has something before it, and sweeps."""
        if last.snapshot_id is None:
            return None
        writer = means.writer
        rows = writer.tables.read(writer.table).where((F.col("op") == "snapshot") & (F.col("snapshot_id") == last.snapshot_id))
        found = rows.select("operation_type", "chunk", "after").collect()
        plans = [row["after"] for row in found if row["operation_type"] == "plan"]
        if plans:
            done = {row["chunk"] for row in found if row["operation_type"] in ("chunk", "discarded", "completed")}
            return SnapshotRun(means, last.snapshot_id, Plan.from_json(plans[0]), done)
        return SnapshotRun.begin(means, last.snapshot_id, make_plan(means, sweeps=last.batch > 1))

    @staticmethod
    def begin(means: Means, snapshot_id: str, plan: Plan) -> SnapshotRun:
        """I/O: commits *plan*. It is read once a batch names *snapshot_id*."""
        _append_manifest(means.writer, snapshot_id, "plan", -1, plan.to_json())
        return SnapshotRun(means, snapshot_id, plan, set())

    def start(self) -> None:
        self._lanes = [self._pool.submit(self._run_lane, lane) for lane in range(self.plan.lanes)]

    def completed(self) -> bool:
        """Whether all lanes have ended and the completion row has landed. Raises what a lane failed with."""
        for lane in self._lanes:
            if lane.done():
                lane.result()
        if not all(lane.done() for lane in self._lanes) or not all(chunk.number in self._done for chunk in self.plan.chunks):
            return False
        self._documents = sum(lane.result() for lane in self._lanes)
        if len(self.plan.chunks) in self._done:  # an earlier run landed that row, and ended before the batch that tells of it
            return True
        content = {"chunks": len(self.plan.chunks), "documents_of_this_run": self._documents}
        _append_manifest(self._writer, self.id, "completed", len(self.plan.chunks), json.dumps(content))
        return True

    def close(self) -> int:
        """Let the chunks in hand end, start no other; documents landed by this run."""
        self._stop.set()
        self._pool.shutdown(wait=True)
        return self._documents

    def remaining(self) -> list[tuple[Collection, Range]]:
        """What another snapshot must take over from one that was closed."""
        return [(chunk.collection, chunk.range) for chunk in self.plan.chunks if chunk.number not in self._done]

    def _run_lane(self, lane: int) -> int:
        documents = 0
        self._stop.wait(self._means.settings.snapshot_delay_ms / 1000)
        for chunk in self.plan.chunks[lane :: self.plan.lanes]:
            if chunk.number in self._done:
                continue
            if not self._means.gate.passes(self._stop):
                break
            for attempt in Retrying(
                retry=retry_if_exception(_may_pass),
                stop=stop_after_attempt(_CHUNK_ATTEMPTS),
                wait=wait_exponential(multiplier=1, max=30),
                retry_error_callback=lambda state: _chunk_failed(state.outcome),
            ):
                with attempt:
                    documents += self._land(chunk, lane)
            self._done.add(chunk.number)
        return documents

    def _land(self, chunk: Chunk, lane: int) -> int:
        """One chunk, one commit, read under the name that the planned collection has now. One that is gone, or that the filters leave out
        under that name or since, is discarded, with a row that says so."""
        writer = self._writer
        app_id = writer.app_id(self.id, lane)
        with closing(open_client(self._means.options)) as client:
            now = find_incarnation(client, chunk.collection)
        selected = self._selection.admits(now.db, now.name) if now is not None else None
        if now is None or not selected:
            reason = json.dumps({"namespace": str(now or chunk.collection), "selected": selected})
            _append_manifest(writer, self.id, "discarded", chunk.number, reason, app_id)
            return 0
        reading = Reading(self._selection.fields, query_document(chunk.query), self._means.settings.snapshot_fetch_size)
        reader = chunk_reader(self._means.options, replace(chunk, collection=now), writer.stamp(), self.id, writer.stored_json, reading)
        rows = writer.tables.spark.range(0, 1, 1, 1).mapInArrow(reader, BRONZE_DDL)
        landed = writer.append_once(rows, app_id=app_id, sequence=chunk.number, what=f"chunk {chunk.number} of the snapshot")
        documents = landed - 1  # the manifest is a row, too
        self._means.report("documents", documents)
        return documents


def _may_pass(error: BaseException) -> bool:
    """Whether a chunk is worth another attempt: Spark wraps whatever an executor met, so all but our own refusals are."""
    return isinstance(error, Exception) and not isinstance(error, StrandlineError)


def _chunk_failed(outcome: Future[int] | None) -> None:
    cause = outcome.exception() if outcome is not None else None
    raise RetriableError(
        f"a snapshot chunk failed {_CHUNK_ATTEMPTS} times ({type(cause).__name__})",
        next_step="strandline capture: it goes on with the chunk",
    ) from cause


def _append_manifest(writer: BronzeWriter, snapshot_id: str, what: str, number: int, content: str, app_id: str | None = None) -> None:
    """One control row of the snapshot, exactly once."""
    stamp = ChunkStamp(writer.stamp(), snapshot_id, number, "", "", None, 0, 0)
    rows = writer.frame(manifest_table(stamp, what, content))
    writer.append_once(
        rows, app_id=app_id or writer.app_id(snapshot_id, what), sequence=max(number, 0), what=f"the {what} row of the snapshot"
    )


def chunk_reader(
    options: ConnectionOptions, chunk: Chunk, stamp: Stamp, snapshot_id: str, stored_json: bool, reading: Reading
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that an executor runs: read the range at one cluster time L, stamp its rows with L, close with the manifest."""

    def read(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(open_client(options, raw=True)) as client:
            seconds, increment = operation_time(client)
            where = chunk.collection
            read_stamp = ChunkStamp(stamp, snapshot_id, chunk.number, where.db, where.name, where.uuid, seconds, increment)
            manifest = ChunkManifest()
            for documents in read_range(client, where, chunk.range, (seconds, increment), reading):
                manifest.add(documents)
                yield from read_table(documents, read_stamp, stored_json=stored_json).to_batches()
            yield from manifest_table(read_stamp, "chunk", manifest.to_json(chunk.range)).to_batches()

    return read
