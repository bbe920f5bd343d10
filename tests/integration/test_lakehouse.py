"""The public Python API on a real mongod, Spark and Delta: the names that it has, and what its methods return."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

import strandline
from strandline.jobs.reconcile.continuous import ProofStep
from strandline.lakehouse import Lakehouse, Progress

_METHODS = {
    "bronze": "property",
    "capture": "(self, *, once, stop, progress) -> CaptureResult",
    "columns": "(self) -> list[ColumnType]",
    "dead_letters": "(self, limit) -> list[dict[str, Any]]",
    "erase": "(self, collection, **request) -> ErasureResult",
    "gold": "(self, *names, check_quality) -> list[GoldResult]",
    "offset_history": "(self, limit) -> list[CommittedBatch]",
    "offsets": "(self) -> Offset",
    "prove": "(self, *collections, stop, repair, progress) -> ProofStatus | None",
    "quality_results": "(self) -> DataFrame",
    "read": "(self, table, *, using, everything) -> Any",
    "reconcile": "(self, *collections, typed, repair, wait_seconds) -> Reconciliation",
    "restore": "(self, as_of, *collections, to, keys, allow_inexact, resume, into_source) -> RestoreResult",
    "run": "(self, *, progress) -> RunResult",
    "settings": "property",
    "silver": "(self, *collections, progress) -> list[SilverResult]",
    "snapshot": "(self, *collections, filters, kind, replace, by) -> Signal",
    "snapshots": "(self) -> list[SnapshotState]",
    "spark": "property",
    "sql": "(self, query) -> DataFrame",
    "status": "(self, *, with_errors) -> PipelineStatus",
    "verify_snapshot": "(self, snapshot_id) -> list[CollectionCheck]",
    "wait": "(self, until, *, layer, timeout_seconds) -> Arrival",
    "versions": "(self, table) -> DataFrame",
}


def _described(member: Callable[..., Any] | property) -> str:
    if isinstance(member, property):
        return "property"
    signature = inspect.signature(member)
    empty = inspect.Parameter.empty
    bare = [parameter.replace(annotation=empty, default=empty) for parameter in signature.parameters.values()]
    return f"{inspect.Signature(bare)} -> {signature.return_annotation}"


def test_public_names_and_signatures_are_these() -> None:
    assert sorted(strandline.__all__) == [
        "ConfigurationError",
        "ContractError",
        "FencedError",
        "LakeUnavailable",
        "Lakehouse",
        "Progress",
        "QualityGateClosed",
        "ResumePointLost",
        "RetriableError",
        "StrandlineError",
        "TerminalError",
        "connect",
        "read",
    ]
    assert all(getattr(strandline, name).__module__.startswith("strandline.") for name in strandline.__all__)
    members = {name: member for name, member in vars(Lakehouse).items() if not name.startswith("_")}
    assert {name: _described(member) for name, member in members.items()} == _METHODS


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reed'"):
        strandline.reed  # type: ignore[attr-defined]  # noqa: B018  # why: that is the test


def test_importing_strandline_imports_no_dependency() -> None:
    heavy = "[name for name in ('pyspark', 'pymongo', 'pydantic', 'deltalake', 'pandas') if name in sys.modules]"
    code = f"import sys, strandline; strandline.connect; print({heavy})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"


@pytest.mark.usefixtures("spark")  # the object takes the session that runs
def test_a_run_returns_counts_and_the_other_methods_see_its_tables(
    mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    database.orders.insert_many([{"_id": number, "total": number * 10} for number in range(20)])
    steps: list[Progress] = []
    lakehouse = strandline.connect(
        tmp_path,
        source={"name": "shop", "uri": mongo_uri},
        capture={"scope": "database", "target": database.name},
        lake={"root": str(tmp_path / "lake")},
        quality={"docs_dir": str(tmp_path / "docs")},
        proof={"budget": 1000},
    )
    result = lakehouse.run(progress=steps.append)
    assert (result.capture.documents, [(str(each.table), each.inserted) for each in result.silver]) == (
        20,
        [("silver.orders", 20)],
    )
    assert sum(step.rows for step in steps if step.layer == "bronze" and step.name == "documents") == 20
    assert [step for step in steps if step.layer == "silver"] == [Progress("silver", "silver.orders", 20)]
    with pytest.raises(FrozenInstanceError):
        result.gold = ()  # type: ignore[misc]  # why: that is the test
    database.orders.delete_one({"_id": 3})
    assert lakehouse.capture().events == 1
    assert [each.updated for each in lakehouse.silver()] == [1]
    status = lakehouse.status()
    assert [(str(row.table), row.live, row.tombstones) for row in status.tables] == [("silver.orders", 19, 1)]
    assert lakehouse.offsets().batch == status.offset.batch == lakehouse.offset_history(1)[0].batch
    assert lakehouse.read("orders").num_rows == 19
    assert lakehouse.sql("select sum(total) from silver.orders where not _deleted").first()[0] == 1870
    assert lakehouse.reconcile().holds
    stop, proven = threading.Event(), list[ProofStep]()
    proof = lakehouse.prove(stop=stop, progress=lambda step: (proven.append(step), stop.set())[0])
    assert proof is not None
    assert (proven[0].documents, proof.unproven, proof.differences) == (19, 0, 0)
    assert lakehouse.snapshot(rf"{database.name}\.orders", by="ada").by == "ada"


def test_a_wrong_setting_names_its_key(tmp_path: Path) -> None:
    with pytest.raises(strandline.ConfigurationError, match=r"capture\.scop"):
        strandline.connect(tmp_path, capture={"scop": "database"})


def test_relative_folders_begin_at_the_project_above_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "base.yml").write_text("lake: {root: tables}\n", encoding="utf-8")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.delenv("STRANDLINE_CONF", raising=False)
    assert strandline.connect().settings.lake.root == str(tmp_path / "tables")
    assert strandline.connect(tmp_path / "conf").settings.lake.root == "tables"
