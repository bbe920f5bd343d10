"""Wait until bronze, silver or gold holds every change up to a cluster time. Nothing is captured or built here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from strandline.bronze.offsets import committed
from strandline.errors import RetriableError
from strandline.gold.build_decision import built_from
from strandline.gold.build_plan import plan
from strandline.gold.graph import Graph
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.lake_context import LakeContext, PipelineContext
from strandline.jobs.silver.bronze_rows import BronzeRows
from strandline.jobs.silver.table_names import holder_of, table_of
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.silver_metadata import SilverMetadata
from strandline.source.oplog import Oplog

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class CatchUp:
    """Waits for the layers of a lake. A capture, silver and gold may be at work meanwhile."""

    ctx: LakeContext | PipelineContext
    oplog: Oplog
    wait_seconds: float
    """Maximum wait for each layer."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Ends a wait when it is set."""

    @property
    def _bronze(self) -> TableName:
        return bronze_table(self.ctx.settings.source.name)

    def bronze(self, at: tuple[int, int]) -> int:
        """Wait until bronze holds every event up to cluster time *at*. Return its version then.

        I/O: asks the source; reads the end of bronze.

        Raises:
            RetriableError: Bronze is still behind after the wait, or a snapshot is running.
        """
        self._wait(partial(self._behind_in_bronze, at), next_step="strandline run --once, then again")
        return self.ctx.tables.version(self._bronze)

    def _behind_in_bronze(self, at: tuple[int, int]) -> str | None:
        last = committed(self.ctx.tables, self._bronze) if self.ctx.tables.exists(self._bronze) else None
        if last is not None and last.snapshot_id is not None:
            return "a snapshot still runs"
        if last is None or last.resume_token is None or not self.oplog.has_no_events(last.resume_token, at):
            return "bronze lacks events that the source has"
        return None

    def silver(self, version: int, namespaces: Sequence[Namespace] | None = None) -> None:
        """Wait until silver holds every change of bronze up to *version*.

        I/O: reads silver's progress, and rows of bronze that silver has not reached.

        Args:
            namespaces: Collections to wait for. None: all.

        Raises:
            RetriableError: Silver is still behind after the wait.
        """
        self._wait(partial(self._behind_in_silver, version, namespaces), next_step="strandline silver, then again")

    def _behind_in_silver(self, version: int, namespaces: Sequence[Namespace] | None) -> str | None:
        lagging: dict[int, list[Namespace]] = {}
        index = ProgressIndex.read(self.ctx.tables, self._bronze)
        if namespaces is None and index.complete_through < version:
            lagging[index.complete_through] = []
        for namespace in namespaces or ():
            progress = SilverMetadata(self.ctx.tables, table_of(self.ctx, namespace)).progress()
            merged = (
                index.complete_through
                if progress is None
                else index.reached_version(holder_of(self.ctx.settings.silver, namespace), progress)
            )
            if merged < version:
                lagging.setdefault(merged, []).append(namespace)
        # Silver stores no progress for heartbeats, so the rows themselves are looked at.
        behind = [names for merged, names in lagging.items() if not self._is_empty(merged, version)]
        if not behind:
            return None
        names = [str(name) for some in behind for name in some]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return f"silver lacks what bronze has{f' of {names[0]}{more}' if names else ''}"

    def _is_empty(self, after: int, through: int) -> bool:
        """Return True if bronze has no change above version *after* up to *through*. I/O: reads these rows."""
        tables = self.ctx.tables
        if isinstance(tables, DeltaRsTables):
            rows = BronzeRows.read(tables, self._bronze, after, through)
            return rows is not None and rows.increment.is_empty
        from strandline.io.tables.spark_tables import Tables  # imports PySpark

        assert isinstance(tables, Tables)
        return BronzeIncrement.read(tables, self._bronze, after, through).is_empty

    def gold(self, graph: Graph, versions: Mapping[TableName, int]) -> None:
        """Wait until every table of *graph* was built from these versions of silver, or from later ones.

        I/O: reads properties and histories of tables.

        Raises:
            RetriableError: Gold is still behind after the wait.
        """
        self._wait(partial(self._behind_in_gold, graph, dict(versions)), next_step="strandline gold, then again")

    def _behind_in_gold(self, graph: Graph, versions: dict[TableName, int]) -> str | None:
        """Return the tables that are behind. The version of each other gold table is added to *versions*."""
        tables = self.ctx.tables
        actions = {build.name: build.action for build in plan(tables, graph)}
        behind = []
        for node in graph.order():
            inputs = graph.inputs(node.statement)
            needed = {name: versions[name] for name in inputs if name in versions}
            is_current = actions[node.name] in ("view", "unchanged") or self._is_built_from(node.table, needed)
            if not is_current or any(name in behind for name in inputs):
                behind.append(node.table)
            elif node.materialized != "view":
                versions.setdefault(node.table, tables.version(node.table))
        return f"{_listed(behind)} not built from what silver has" if behind else None

    def _is_built_from(self, table: TableName, versions: Mapping[TableName, int]) -> bool:
        tables = self.ctx.tables
        inputs = built_from(tables.properties(table)) if tables.exists(table) else {}
        return bool(inputs) and all(inputs.get(name, -1) >= version for name, version in versions.items())

    def _wait(self, behind: Callable[[], str | None], *, next_step: str) -> None:
        deadline = time.monotonic() + self.wait_seconds
        while (reason := behind()) is not None:
            if time.monotonic() >= deadline or self.stop.wait(_POLL_SECONDS):
                raise RetriableError(reason, next_step=next_step)


def _listed(names: Iterable[TableName]) -> str:
    first, *others = map(str, names)
    return f"{first} and {len(others)} more are" if others else f"{first} is"
