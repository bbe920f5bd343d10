"""Erasure of documents from bronze, by the engine that writes bronze."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from strandline.bronze.erasure import CONTROL_OPS, HEARTBEAT_COLUMNS, READS, ErasureRule
from strandline.bronze.offsets import Committed, committed
from strandline.errors import RetriableError
from strandline.io.delta_log.plain_protocol import make_plain
from strandline.io.delta_log.sorted_rewrite import key_columns, remove_rows
from strandline.io.spark.conflicts import LOST_RACES
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.erase.places import Scope
from strandline.model.ids_in_tokens import IdsInTokens
from strandline.model.merge_rule import MergeRule
from strandline.model.namespaces import Namespace
from strandline.model.query import Query
from strandline.model.resume_token import ResumeToken
from strandline.model.tables import TableName, literals

_APPEND_ONLY: Final = "delta.appendOnly"
AGAIN: Final = "repeat the command"


def require_erasable(scope: Scope, last: Committed | None) -> None:
    """Raise RetriableError if the end of bronze, the position of the source itself, names one of the documents.

    I/O: reads one event of bronze if the position names a similar `_id`.
    """
    token = None if last is None or last.resume_token is None else ResumeToken.parse(last.resume_token).data
    if token is not None and token in IdsInTokens(scope.keys) and not _is_of_another(scope, token):
        raise RetriableError(
            "the position of the source is the change of a document that is to be erased",
            next_step="strandline run --once, which moves the position on; then erase again",
        )


def _is_of_another(scope: Scope, token: str) -> bool:
    """I/O: returns True if bronze has the event of a *token*, and it is of another document with a similar `_id`."""
    position = f"{token[2:18].lower()}:{token}"
    rows = Query(scope.bronze).where(("position", ">=", position), ("position", "<=", f"{position}~"))
    events = scope.ctx.tables.query(rows.select("db", "collection", "key").limit(1))
    its = [(Namespace(row["db"], row["collection"]), row["key"]) for row in events]
    return any(name not in scope.names or key not in scope.keys for name, key in its)


def erase_from_bronze(scope: Scope, erasure: ErasureRule) -> None:
    """Remove the rows of the documents from bronze, and what names them from other rows.

    I/O: where delta-rs writes bronze, reads key columns, and rewrites files in commits that change no data. Spark
    deletes and updates rows.

    Raises:
        RetriableError: A writer was at work, or as `require_erasable`. Some files may hold the documents still.
            Calling again is safe.
    """
    store, end = scope.ctx.for_capture().tables, committed(scope.ctx.tables, scope.bronze)
    require_erasable(scope, end)  # a capture may have landed a change meanwhile
    erasure = replace(erasure, end=None if end is None else end.resume_token)
    try:
        erased = _by_delta_rs(store, scope, erasure) if isinstance(store, DeltaRsTables) else _by_spark(scope, erasure)
    except LOST_RACES:
        erased = False
    if not erased:
        raise RetriableError("bronze was changed by a writer at the same moment", next_step=AGAIN)


def _by_delta_rs(store: DeltaRsTables, scope: Scope, erasure: ErasureRule) -> bool:
    with table_errors(scope.bronze):
        folder = store.folder(scope.bronze)
        make_plain(folder)
        naming, holding = dict[str, NDArray[np.bool_]](), dict[str, NDArray[np.bool_]]()
        for path, _, batches in key_columns(folder, READS, lambda _: True):
            rows = [(np.asarray(erasure.goes(batch)), erasure.names_documents(batch)) for batch in batches]
            if any(named or goes.any() for goes, named in rows):
                gone = np.concatenate([goes for goes, _ in rows])
                (holding if gone.any() else naming)[path] = gone
        # The rows go last: after a kill they tell the keys. Each call makes a commit for each GiB.
        return all(None not in list(remove_rows(folder, some, erasure.cleaned)) for some in (naming, holding))


def _by_spark(scope: Scope, erasure: ErasureRule) -> bool:
    """Bronze accepts other changes than appends until the end. The rows go last, as above."""
    tables, bronze = scope.ctx.tables, scope.bronze
    (table, *_) = scope.keyed
    tables.set_properties(bronze, {_APPEND_ONLY: "false"})
    try:
        ends = tables.read(bronze).where("resume_token IS NOT NULL").select("resume_token").distinct()
        replace_values(tables, bronze, "resume_token", erasure.new_tokens(row[0] for row in ends.toLocalIterator()))
        notes = tables.read(bronze).where(f"op IN ({literals(CONTROL_OPS)}) AND after IS NOT NULL").select("after")
        replace_values(tables, bronze, "after", erasure.new_texts(row[0] for row in notes.distinct().toLocalIterator()))
        rest = {name: "NULL" for name in tables.columns(bronze) if name not in HEARTBEAT_COLUMNS}
        rule = MergeRule(("key",)).delete(when="t.resume_token IS NULL").update([], rest | {"op": "'heartbeat'"})
        tables.merge(bronze, scope.key_rows().withColumnRenamed("erased", "key"), rule, among=table.among)
        purge_marked_rows(tables, bronze)
    finally:
        tables.set_properties(bronze, {_APPEND_ONLY: "true"})
    return True


def replace_values(tables: Tables, table: TableName, column: str, new: Mapping[str, str]) -> None:
    """I/O: one MERGE that replaces values of a column. The commit names none of them. None without values."""
    if new:
        rows = tables.spark.createDataFrame(list(new.items()), f"{column} STRING, replacement STRING")
        rule = MergeRule((column,)).update([], {column: "s.replacement"})
        tables.merge(table, rows, rule, among=f"t.{column} IS NOT NULL")


def purge_marked_rows(tables: Tables, table: TableName) -> None:
    """I/O: writes files anew that hold deleted rows, which only a deletion vector marks."""
    if tables.properties(table).get("delta.enableDeletionVectors") == "true":
        tables.spark.sql(f"REORG TABLE {tables.lake.sql(table)} APPLY (PURGE)").collect()
