"""Readings of a lake, as plain values for the templates of the pages."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from html import escape
from typing import Any, Final

from strandline.control.notifications import MAINTENANCE, newest_notification
from strandline.control.proof import ProofTable
from strandline.control.sources import state_of
from strandline.io.tables.measured_tables import TableSize
from strandline.io.tables.table_store import own_tables
from strandline.jobs.gold.planned import graph_of, plan_gold
from strandline.jobs.lake_context import LakeContext
from strandline.jobs.offsets.show_offset import offset_history, show_offset
from strandline.jobs.operations.cut_listing import list_cuts
from strandline.jobs.operations.dead_letters import error_metrics, list_dead_letters
from strandline.jobs.operations.engines import engine_of_rows
from strandline.jobs.operations.schema_changes import schema_history
from strandline.jobs.operations.status import TableStatus, docs_page, quarantined_rows, silver_tables, table_status
from strandline.jobs.snapshot.report import chunk_progress, list_snapshots
from strandline.model.bson.merge_key import key_name
from strandline.model.lake_format import is_ours
from strandline.model.query import Query
from strandline.model.table_schemas import HIDDEN, NOTIFICATIONS, QUALITY, RECONCILE, bronze_table
from strandline.model.tables import LAYERS, TableName
from strandline.settings.configuration import Settings
from strandline.web.guard import host_in_url
from strandline.web.watched_lake import WatchedTables

_TIMELINE: Final = 300
_ROWS: Final = 100
_COLUMNS: Final = 30
"""Maximum columns of a preview."""
_MAX_COUNTED_ROWS: Final = 2_000_000
"""Rows of a table up to which its rows are counted by kind. A larger table shows what its log says."""
_STATE_TIMEOUT: Final = 0.5
_LOG_CHARACTERS: Final = 12_000
"""Characters of the log on a page, as HTML. With the markup of its lines and the static files it stays below 100 KB."""
_MARKUP_CHARACTERS: Final = 100
_WITHOUT_PROXY: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass
class Readings:
    """Readings of one lake. Each method is I/O, and safe for several threads.

    Args:
        ctx: Context of the jobs that are asked. Its tables are *tables*.
    """

    ctx: LakeContext
    tables: WatchedTables
    _counts: dict[TableName, tuple[TableSize, TableStatus]] = field(default_factory=dict, init=False)
    """Rows by kind, and the size of the table when they were counted."""

    @property
    def settings(self) -> Settings:
        return self.ctx.settings

    @property
    def source(self) -> str:
        return self.settings.source.name

    def offset(self) -> dict[str, Any]:
        """Return the committed position, compared with the source, who set the state of the source, and the engine."""
        order, engine = state_of(self.tables, self.source), engine_of_rows(self.tables, bronze_table(self.source))
        return asdict(show_offset(self.ctx)) | {"order": asdict(order), "engine": engine}

    def throughput(self) -> list[int]:
        """Return the rows that bronze got in each of the last minutes, oldest first."""
        return self.tables.added_per_minute(bronze_table(self.source))

    def live(self) -> dict[str, Any] | None:
        """Return ``/state`` of the running capture. None: ``metrics.port`` is not set, or nothing answers there."""
        return self._from_capture("state")

    def log(self) -> list[dict[str, Any]] | None:
        """Return the newest log lines of the running capture, newest first. None: as `live`."""
        document = self._from_capture("log")
        if document is None:
            return None
        lines = [{**line, "at": datetime.fromisoformat(line["at"])} for line in document["lines"]]
        return list(_up_to(lines, _LOG_CHARACTERS))

    def _from_capture(self, name: str) -> dict[str, Any] | None:
        metrics = self.settings.metrics
        if metrics.port is None:
            return None
        host = "127.0.0.1" if metrics.address in ("0.0.0.0", "::") else metrics.address
        try:
            url = f"http://{host_in_url(host)}:{metrics.port}/{name}"
            with _WITHOUT_PROXY.open(url, timeout=_STATE_TIMEOUT) as answer:
                document: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return None
        return document if document.get("source") == self.source else None

    def notifications(self) -> list[dict[str, Any]]:
        """Return the newest notifications of the source, newest first."""
        if not self.tables.exists(NOTIFICATIONS):
            return []
        newest = Query(NOTIFICATIONS).select("timestamp", "aggregate_type", "type", "additional_data")
        return self.tables.query(newest.where(("source", "=", self.source)).order("-timestamp").limit(20))

    def snapshots(self) -> dict[str, Any]:
        """Return all snapshots, newest first, and the progress of the newest one by collection."""
        states = list_snapshots(self.ctx)
        progress = chunk_progress(self.ctx, states[0].snapshot_id) if states else []
        return {"all": [asdict(state) for state in states[:_ROWS]], "progress": progress}

    def offsets(self) -> dict[str, Any]:
        """Return the newest committed positions, newest first, and those that somebody moved or that lost events."""
        ends = [asdict(end) for end in offset_history(self.ctx, _TIMELINE)]
        for end in ends:
            end["note"] = json.loads(end["note"]) if end["note"] else {}
        moved = [end for end in ends if end["kind"] not in ("events", "heartbeat")]
        return {"ends": ends, "moved": moved[:_ROWS]}

    def silver(self) -> list[dict[str, Any]]:
        """Return size and row counts of every silver table, from the logs of the tables."""
        changes = Counter(change["table"] for change in schema_history(self.ctx, limit=10_000))
        rows = []
        for table, _ in silver_tables(self.tables):
            counted = self._counts.get(table)
            rows.append(
                asdict(self.tables.size(table))
                | {"table": str(table), "changes": changes[str(table)], "engine": engine_of_rows(self.tables, table)}
                | {"counted": None if counted is None else asdict(counted[1])}
            )
        return rows

    def count_silver(self) -> None:
        """Count the rows of silver tables by kind. A table that has not changed is not read again."""
        for table, _ in silver_tables(self.tables):
            size, counted = self.tables.size(table), self._counts.pop(table, None)
            if counted is not None and counted[0] == size:
                self._counts[table] = counted
            elif size.rows <= _MAX_COUNTED_ROWS and self.tables.can_query(table):
                self._counts[table] = size, table_status(self.tables, table)

    def preview(self, name: str) -> dict[str, Any] | None:
        """Return the first live rows of a silver or gold table, without most bookkeeping columns. None: no such table.

        No rows: only Spark reads the table, and this process has none.
        """
        names = (table for layer in ("silver", "gold") for table in self.tables.names(layer))
        table = next((table for table in names if str(table) == name), None)
        if table is None or not is_ours(table, self.tables.properties(table)):
            return None
        types = self.tables.column_types(table)
        columns = [column for column in types if column not in HIDDEN]
        query = Query(table).select(*columns[:_COLUMNS]).limit(self.settings.ui.preview_rows)
        is_live = [("_deleted", "=", False)] if "_deleted" in types else []
        rows = self.tables.query(query.where(*is_live)) if self.tables.can_query(table) else None
        return {"columns": columns[:_COLUMNS], "more": columns[_COLUMNS:], "rows": rows}

    def schema_changes(self) -> list[dict[str, Any]]:
        """Return the newest schema changes, newest first."""
        return schema_history(self.ctx, limit=20)

    def gold(self) -> list[dict[str, Any]]:
        """Return each gold node with its inputs, its engine, and what the next build would do with it and why."""
        nodes, stored_tables = graph_of(self.settings.gold).nodes, set(self.tables.names("gold"))
        return [
            asdict(result)
            | {
                "inputs": [str(table) for table in nodes[result.name].statement.tables()]
                if result.name in nodes
                else [],
                "description": nodes[result.name].header.description if result.name in nodes else "",
                "engine": engine_of_rows(self.tables, table) if table in stored_tables else None,
            }
            for result in plan_gold(self.ctx)
            for table in (TableName("gold", result.name),)
        ]

    def quality(self) -> dict[str, Any]:
        """Return the results of the newest run of each suite, the rows in quarantine, and the path of the Data Docs."""
        pages = docs_page(self.settings)
        return {
            "checks": self._checks(),
            "held": {name: count for name, count in quarantined_rows(self.ctx).items() if count},
            "pages": None if pages is None else str(pages),
        }

    def _checks(self) -> list[dict[str, Any]]:
        if not self.tables.exists(QUALITY):
            return []
        columns = ("ran_at", "table", "suite", "expectation", "column", "outcome", "unexpected_count", "on_failure")
        rows = self.tables.query(Query(QUALITY).select(*columns).order("-ran_at").limit(2_000))
        runs: dict[tuple[str, str], datetime] = {}  # the newest run of each suite
        checks = [row for row in rows if row["ran_at"] == runs.setdefault((row["table"], row["suite"]), row["ran_at"])]
        order = {"error": 0, "failed": 1}
        return sorted(checks, key=lambda row: (order.get(row["outcome"], 2), row["table"]))[:_ROWS]

    def dead_letters(self) -> dict[str, Any]:
        """Return the newest dead letters without their documents, and the totals of KIP-298."""
        letters = list_dead_letters(self.ctx, limit=_ROWS)
        return {"letters": [self._named(row) for row in letters], "totals": error_metrics(self.ctx)}

    def reconcile(self) -> dict[str, Any]:
        """Return the newest differences between source and silver, the continuous proof, and the newest cuts."""
        proof = ProofTable(self.tables, self.source).status()
        return {"proof": proof, "differences": self._differences(), "cuts": list_cuts(self.ctx, limit=20)}

    def _differences(self) -> list[dict[str, Any]]:
        if not self.tables.exists(RECONCILE):
            return []
        columns = ("at", "db", "collection", "kind", "key", "confirmed", "repaired_at")
        query = Query(RECONCILE).select(*columns).where(("source", "=", self.source))
        return [self._named(row) for row in self.tables.query(query.order("-at").limit(_ROWS))]

    def _named(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return *row* with the key of the document as the log names it."""
        key = row["key"]
        return {**row, "key": None if key is None else key_name(key, show=self.settings.logging.show_keys)}

    def maintenance(self) -> dict[str, Any]:
        """Return the end of the newest maintenance, and files and bytes of every table, from their logs."""
        names = own_tables(self.tables, *LAYERS)
        sizes = [asdict(self.tables.size(name)) | {"table": str(name)} for name in names]
        sizes.sort(key=lambda size: size["files"], reverse=True)
        total = {name: sum(size[name] for size in sizes) for name in ("files", "bytes")}
        ended = newest_notification(self.tables, self.source, MAINTENANCE)
        return {"ended": ended, "tables": sizes[:_ROWS], "count": len(sizes), "total": total}


def _up_to(lines: list[dict[str, Any]], characters: int) -> Iterator[dict[str, Any]]:
    """Yield *lines* until their HTML has more than *characters*."""
    for line in lines:
        characters -= _MARKUP_CHARACTERS + len(escape(line["text"]).encode())
        if characters < 0:
            return
        yield line
