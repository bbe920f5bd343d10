"""The rule of compaction: of a few rows of bronze, which stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.bronze import compact_files
from strandline.bronze.compact_files import removable_rows
from strandline.bronze.compaction import CompactionRule
from strandline.bronze.envelope import SCHEMA
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.sorted_rewrite import remove_rows
from strandline.io.tables.delta_schema import delta_schema
from strandline.model.horizon import Horizon
from strandline.model.namespaces import Namespace, NamespaceEvent
from strandline.model.table_schemas import BRONZE_DDL

A, B = Namespace("shop", "a"), Namespace("shop", "b")


class Row(NamedTuple):
    """An event. Its operation is a capital letter if it has the document."""

    at: int
    op: str
    key: str = "1"
    of: str = "a"
    more: dict[str, Any] = {}  # noqa: RUF012  # why: never changed


def position(at: int) -> str:
    return f"{at:016x}:82{at:02X}"


def rule(horizon: int, *events: NamespaceEvent, **more: Any) -> CompactionRule:
    by_name: dict[Namespace, tuple[NamespaceEvent, ...]] = {}
    for event in events:
        for name in {event.namespace, event.to or event.namespace}:
            by_name[name] = (*by_name.get(name, ()), event)
    facts = {"arrivals": frozenset(), "seen": {}, "watermarks": {}, **more}
    return CompactionRule(Horizon(position(horizon), horizon), events=by_name, **facts)


def kept(folder: Path, chosen: CompactionRule, *rows: Row, in_a_file: int = 2) -> list[int]:
    """Compact a table of *rows*. Return the times of the rows that stay."""
    DeltaTable.create(str(folder), delta_schema(BRONZE_DDL), configuration={"delta.appendOnly": "true"})
    columns = [
        {
            "position": None if row.op == "heartbeat" else position(row.at),
            "op": row.op if len(row.op) > 1 else row.op.lower(),
            "db": "shop",
            "collection": row.of,
            "key": row.key,
            "batch": row.at,
            "document_size": 5 if row.op.isupper() else None,
            **row.more,
        }
        for row in rows
    ]
    for number in range(0, len(columns), in_a_file):
        rows_of_file = pa.Table.from_pylist(columns[number : number + in_a_file], SCHEMA)
        write_deltalake(str(folder), rows_of_file, mode="append")
    list(remove_rows(LocalFolder(folder), removable_rows(LocalFolder(folder), chosen)))
    return sorted(DeltaTable(str(folder)).to_pyarrow_table()["batch"].to_pylist())


@pytest.fixture(autouse=True)
def any_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_files, "_MIN_SHARE", 0)


HISTORY = (Row(1, "C"), Row(2, "U"), Row(3, "u"), Row(4, "U"), Row(5, "u"), Row(6, "d"), Row(7, "C"))


@pytest.mark.parametrize(
    ("horizon", "stays"),
    [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [2, 3, 4, 5, 6, 7]), (4, [2, 3, 4, 5, 6, 7]), (6, [4, 5, 6, 7]), (8, [7])],
)
def test_the_newest_document_before_the_horizon_stays_with_what_follows(
    tmp_path: Path, horizon: int, stays: list[int]
) -> None:
    assert kept(tmp_path, rule(horizon), *HISTORY) == stays


@pytest.mark.parametrize(("watermark", "stays"), [(6, [4, 5, 6]), (7, [])])
def test_a_purged_deletion_goes_with_its_document(tmp_path: Path, watermark: int, stays: list[int]) -> None:
    assert kept(tmp_path, rule(9, watermarks={A: position(watermark)}), *HISTORY[:-1]) == stays


def test_a_repeated_row_and_a_row_without_a_key_stay(tmp_path: Path) -> None:
    rows = (Row(1, "C"), Row(2, "U"), Row(2, "U"), Row(1, "C"), Row(3, "C", more={"key": None}))
    assert kept(tmp_path, rule(9), *rows) == [2, 2, 3]


def test_a_name_that_was_dropped_keeps_the_documents_of_both_lives_until_silver_has_purged_the_first(
    tmp_path: Path,
) -> None:
    rows, drop = (Row(1, "C"), Row(2, "U"), Row(4, "C"), Row(5, "U")), NamespaceEvent(position(3), A, None)
    assert kept(tmp_path / "kept", rule(9, drop), *rows) == [2, 5]
    assert kept(tmp_path / "purged", rule(9, drop, watermarks={A: position(4)}), *rows) == [5]
    assert kept(tmp_path / "ends nothing", rule(9, drop, watermarks={A: position(4)}, drops=False), *rows) == [2, 5]


def test_documents_that_a_rename_brought_go_when_the_name_that_has_them_was_dropped_and_purged(tmp_path: Path) -> None:
    rename, drop = NamespaceEvent(position(3), A, None, to=B), NamespaceEvent(position(5), B, None)
    rows = (Row(1, "C"), Row(2, "U"), Row(4, "C", of="b"))
    assert kept(tmp_path / "kept", rule(9, rename, drop, watermarks={B: position(5)}), *rows) == [2, 4]
    assert kept(tmp_path / "purged", rule(9, rename, drop, watermarks={B: position(6)}), *rows) == []
    assert kept(tmp_path / "later", rule(5, rename, drop, watermarks={B: position(6)}), *rows) == [2, 4]


def test_a_deletion_stays_if_a_rename_may_have_brought_its_document(tmp_path: Path) -> None:
    rename = NamespaceEvent(position(2), A, None, to=B)
    rows = (Row(1, "C"), Row(3, "U", of="b"), Row(4, "d", of="b"))
    assert kept(tmp_path, rule(9, rename, watermarks={B: position(8)}), *rows) == [1, 3, 4]


def test_old_heartbeats_go_and_the_first_row_of_a_uuid_and_the_end_of_a_batch_stay(tmp_path: Path) -> None:
    token = {"resume_token": "{}"}
    rows = (
        Row(1, "C"),
        Row(2, "C", more=token),
        Row(3, "C", more={**token, "snapshot_id": "s"}),
        Row(4, "heartbeat", more={"db": None, "collection": None, "key": None}),
        Row(5, "C"),
        Row(6, "heartbeat", more={"db": None, "collection": None, "key": None}),
    )
    chosen = rule(5, arrivals=frozenset({("shop", "a", "1", position(1))}))
    assert kept(tmp_path, CompactionRule(**{**vars(chosen), "horizon": Horizon(position(6), 4)}), *rows) == [1, 3, 5, 6]


def test_parts_by_key_give_what_one_part_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(5)
    rows = [Row(int(at), chance.choice([*"CUud"]), str(chance.integers(40))) for at in range(400)]
    whole = kept(tmp_path / "whole", rule(350), *rows, in_a_file=130)
    monkeypatch.setattr(compact_files, "_PART_ROWS", 30)
    assert kept(tmp_path / "parts", rule(350), *rows, in_a_file=130) == whole
    last = {row.key: row.at for row in rows if row.op.isupper() and row.at < 350}
    assert whole == [row.at for row in rows if row.at >= last.get(row.key, 0) or row.at >= 350]
