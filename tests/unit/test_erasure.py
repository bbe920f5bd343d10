"""Parts of an erasure that need no Spark: rows of bronze, the search for values, and the removal of a log."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.bronze.envelope import SCHEMA
from strandline.bronze.erasure import ErasureRule, token_in, without_token
from strandline.control.erasures import ErasedDocuments, Erasures, Request, key_hash
from strandline.errors import ConfigurationError
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.table_upkeep import write_checkpoint
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.capture.erased_events import ErasedEvents
from strandline.jobs.erase.places import PLACES
from strandline.jobs.erase.remove_files import remove_commits
from strandline.jobs.erase.verify import Trace, find_values
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import ERASURES, ERASURES_DDL
from strandline.model.tables import Lake, TableName
from strandline.settings.configuration import Settings
from strandline.source.change_batch import ChangeBatch
from strandline.source.ranges import Range, covers_all_ids

CANARY = "canary-é'person"
TIME = "63f0e7ce00000001"
TOKEN = f"82{TIME.upper()}2B042C0100296E5A100446645F6964003C{CANARY.encode().hex().upper()}000004"
END = json.dumps({"_data": TOKEN})
NAMES = frozenset({Namespace("shop", "people")})


def row(key: str | None = None, **values: Any) -> dict[str, Any]:
    own = {} if key is None else {"key": key, "db": "shop", "collection": "people", "op": "c", "envelope": b"x"}
    return own | {"batch": 1} | values


def erased(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that are left of *rows* when the canary is erased, without their nulls."""
    batch = pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)
    rule = ErasureRule(frozenset({json.dumps(CANARY, ensure_ascii=False)}), NAMES)
    goes = rule.goes(batch)
    left = rule.cleaned(batch.filter(pc.invert(goes))).to_pylist()
    return [{name: value for name, value in one.items() if value is not None} for one in left]


def test_rows_of_the_document_go_and_rows_of_others_stay() -> None:
    key, position = f'"{CANARY}"', f"{TIME}:{TOKEN}"
    others = [row('"other"', position=f"{TIME}:~"), row(key, collection="orders", position=f"{TIME}:~")]
    assert erased(row(key, position=position), *others, row(key, position=f"{TIME}:~")) == others


def test_the_end_of_a_batch_becomes_a_heartbeat_whose_token_names_no_event() -> None:
    at_time = json.dumps({"_data": f"82{TIME.upper()}2B0429296E1404"})
    end = row(f'"{CANARY}"', position=f"{TIME}:{TOKEN}", resume_token=END, epoch=3, before="{}")
    later = row(op="heartbeat", batch=2, resume_token=END)
    assert erased(end, later) == [
        {"batch": 1, "epoch": 3, "op": "heartbeat", "resume_token": at_time},
        later | {"resume_token": at_time},
    ]


def test_the_position_of_the_source_stays_where_it_is() -> None:
    """It is not of the document: `require_erasable`. Another one has the same `_id`."""
    rows = pa.RecordBatch.from_pylist([row(op="heartbeat", resume_token=END)], schema=SCHEMA)
    assert ErasureRule(frozenset({json.dumps(CANARY, ensure_ascii=False)}), NAMES, END).cleaned(rows) == rows


@pytest.mark.parametrize("op", ["gap", "offset"])
def test_the_note_of_a_moved_offset_names_times_and_no_event(op: str) -> None:
    """The event itself may have been compacted, or never captured."""
    at_time = json.dumps({"_data": f"82{TIME.upper()}2B0429296E1404"})
    note = {"by": "ops", "from": END, "to": at_time, "after": f"{TIME}:{TOKEN}", "before": f"{TIME}:~"}
    (changed,) = erased(row(op=op, resume_token=END, after=json.dumps(note)))
    assert changed["resume_token"] == at_time
    assert json.loads(changed["after"]) == note | {"from": at_time, "after": f"{TIME}:"}
    assert erased(row(op=op, after=json.dumps({"from": None, "to": at_time}))) != []


def test_a_bound_in_the_plan_of_a_snapshot_is_replaced_and_the_chunks_still_cover_all_ids() -> None:
    bound, other = (b64encode(bson.encode({"_id": value})).decode() for value in (CANARY, "other"))
    bounds = [None, bound, other, None]
    chunks = [{"lower": lower, "upper": upper} for lower, upper in pairwise(bounds)]
    (plan,) = erased(row(op="snapshot", operation_type="plan", after=json.dumps({"chunks": chunks})))
    assert bound not in plan["after"]
    assert covers_all_ids([Range.from_json(chunk) for chunk in json.loads(plan["after"])["chunks"]])
    assert other in plan["after"]


def test_a_position_has_a_token_unless_a_snapshot_read_it() -> None:
    assert token_in(f"{TIME}:{TOKEN}") == TOKEN == token_in(f"{TIME}:{TOKEN}#{TIME}:~")
    assert token_in(f"{TIME}:~") is token_in(f"{TIME}:") is token_in(None) is None
    assert without_token(f"{TIME}:{TOKEN}") == f"{TIME}:~"


@pytest.mark.parametrize(
    ("content", "is_a_trace"),
    [
        (CANARY.encode(), True),
        (json.dumps({"predicate": f"_key = '{CANARY.replace(chr(39), chr(39) * 2)}'"}).encode(), True),
        (END.encode(), True),
        (b64encode(bson.encode({"_id": CANARY})), True),
        (b"<td>canary-\xc3\xa9&#x27;person</td>", True),
        (b"y" * (16 << 20) + CANARY.encode(), True),
        (b"y" * ((16 << 20) - 3) + CANARY.encode(), True),
        (b"canary-e'person", False),
    ],
)
def test_a_value_is_found_in_every_form_that_files_give_it(tmp_path: Path, content: bytes, is_a_trace: bool) -> None:
    (tmp_path / "log.json").write_bytes(content)
    assert bool(search(tmp_path)) == is_a_trace


def test_an_object_id_is_found_as_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bson.encode({"_id": bson.ObjectId("63f0e7ce63f0e7ce63f0e7ce")}))
    assert search(tmp_path, "63f0e7ce63f0e7ce63f0e7ce")


def test_a_short_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="fewer than 4 characters"):
        search(tmp_path, "abc")


def search(root: Path, value: str = CANARY) -> tuple[Trace, ...]:
    settings = Settings(lake={"root": str(root)}, quality={"docs_dir": str(root / "docs")})  # type: ignore[arg-type]  # why: pydantic builds the sections
    return find_values(settings, [value]).traces


def test_compressed_parquet_statistics_and_the_log_show_a_value_until_files_and_commits_are_removed(
    tmp_path: Path,
) -> None:
    table = tmp_path / "silver" / "people"
    rows = pa.table({"_key": [CANARY, "a" * 9], "nested": [[{"text": CANARY * 9}], None]})
    write_deltalake(str(table), rows, configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(str(table)).delete("_key LIKE 'canary%'")
    places = {(trace.file.split("/")[2], trace.place) for trace in search(tmp_path)}
    assert {("_delta_log", "bytes"), ("_change_data", "_key"), ("_change_data", "nested")} <= places

    DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert {trace.file.split("/")[2] for trace in search(tmp_path)} == {"_delta_log"}
    folder = LocalFolder(table)
    remove_commits(folder, write_checkpoint(folder) - 1)
    assert search(tmp_path) == ()
    assert DeltaTable(str(table)).to_pyarrow_table()["_key"].to_pylist() == ["a" * 9]


def test_erasures_are_stored_by_a_keyed_hash_once_for_each_document(tmp_path: Path) -> None:
    erasures = Erasures(DeltaRsTables(Lake(root=str(tmp_path))))
    request = Request("1", "test", Namespace("shop", "people"), NAMES, f"{TIME}:~", datetime.now(UTC), "ops", None)
    erasures.add(request, [f'"{CANARY}"', "17"])
    erasures.add(request, ["17"])
    assert erasures.unfinished("test", ["17", "18"], "hidden_at") == {"17"}
    erasures.hide("1", datetime.now(UTC), {TableName("silver", "people"): 3})
    assert erasures.unfinished("test", ["17"], "hidden_at") == set()
    assert erasures.unfinished("test", ["17"], "gone_at") == {"17"}
    (row,) = erasures.all("test")
    assert (row["documents"], row["tables"], row["gone_at"]) == (2, '{"silver.people": 3}', None)
    erasures.finish("1", datetime.now(UTC))
    assert erasures.all("test")[0]["gone_at"] is not None
    assert search(tmp_path) == ()
    assert key_hash("17", erasures.secret()) != key_hash("17", b"another key")


def event(key: Any, *, at: int, collection: str = "people") -> bytes:
    """A deletion, *at* seconds after the erasure of the canary."""
    seconds = int(TIME[:8], 16) + at
    canary, own = (one.encode().hex().upper() for one in (CANARY, str(key)))
    token = f"82{seconds:08X}00000001" + TOKEN[18:].replace(canary, own)
    fields = {"_id": {"_data": token}, "operationType": "delete", "clusterTime": bson.Timestamp(seconds, 1)}
    return bson.encode({**fields, "ns": {"db": "shop", "coll": collection}, "documentKey": {"_id": key}})


def test_events_up_to_an_erasure_do_not_land_and_later_events_and_other_documents_do(tmp_path: Path) -> None:
    tables = DeltaRsTables(Lake(root=str(tmp_path)))
    check = ErasedEvents(ErasedDocuments(tables, "test"))
    old, later = event(CANARY, at=-5), event(CANARY, at=1)
    before = ChangeBatch((old,), json.dumps({"_data": "82"}))
    assert check.before_commit(before) is before
    tables.create_table(ERASURES, ERASURES_DDL)  # as the first erasure does first
    assert check.before_commit(before) is before
    names = NAMES | {Namespace("shop", "guests")}
    request = Request("1", "test", Namespace("shop", "people"), names, f"{TIME}:~", datetime.now(UTC), "ops", None)
    Erasures(tables).add(request, [json.dumps(CANARY, ensure_ascii=False)])
    others = (event("other", at=-4), event(CANARY, at=-3, collection="orders"), bson.encode({"damaged": True}))
    renamed, at_erasure = event(CANARY, at=-2, collection="guests"), event(CANARY, at=0)
    batch = ChangeBatch((old, *others, renamed, at_erasure, later), json.dumps({"_data": "82"}))
    assert check.before_commit(batch) == replace(batch, events=(*others, later))
    newer = ChangeBatch((later,), json.dumps({"_data": "82"}))
    assert check.before_commit(newer) is newer


def test_a_batch_that_ends_with_an_erased_document_ends_with_a_token_of_its_time(tmp_path: Path) -> None:
    tables = DeltaRsTables(Lake(root=str(tmp_path)))
    request = Request("1", "test", Namespace("shop", "people"), NAMES, f"{TIME}:~", datetime.now(UTC), "ops", None)
    Erasures(tables).add(request, [json.dumps(CANARY, ensure_ascii=False)])
    check = ErasedEvents(ErasedDocuments(tables, "test"))
    end = check.before_commit(ChangeBatch((event(CANARY, at=0),), END))
    assert end == ChangeBatch((), json.dumps({"_data": f"82{TIME.upper()}2B0429296E1404"}))


def test_a_document_that_the_source_brought_again_is_counted(tmp_path: Path) -> None:
    erasures, people = Erasures(DeltaRsTables(Lake(root=str(tmp_path)))), Namespace("shop", "people")
    request = Request("1", "test", people, NAMES, f"{TIME}:~", datetime.now(UTC), "ops", None)
    erasures.add(request, ["17", "18"])
    erasures.note_again("test", people, {key_hash("17", erasures.secret())}, datetime.now(UTC))
    assert erasures.all("test")[0]["again"] == 1


def test_the_documentation_lists_every_place() -> None:
    page = (Path(__file__).parents[2] / "docs" / "erase.md").read_text("utf-8")
    table = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", page.split("## Where values are")[1], re.MULTILINE)
    assert tuple(table[1:]) == PLACES
