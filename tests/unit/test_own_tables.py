"""Tables of ours among clones and tables of other programs, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from strandline.errors import ConfigurationError, LakeUnavailable
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.table_store import own_tables
from strandline.model.tables import LAYERS, Lake, TableName

ORDERS, CUTS = TableName("silver", "orders"), TableName("control", "cuts")


def add_unknown_feature(table: Path) -> None:
    """I/O: the first commit asks readers for a feature that no library has."""
    first = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            features = {"readerFeatures": ["ofTomorrow"], "writerFeatures": ["ofTomorrow"]}
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    first.write_text("\n".join(map(json.dumps, actions)))


def test_copies_and_foreign_tables_are_not_ours_even_if_delta_rs_cannot_read_them(tmp_path: Path) -> None:
    tables = DeltaRsTables(Lake(root=str(tmp_path)))
    for table in (ORDERS, CUTS):
        tables.create_table(table, "_key STRING")
    for table, copy in ((ORDERS, "silver/orders_copy"), (CUTS, "control/cuts_copy"), (ORDERS, "gold/orders")):
        shutil.copytree(tables.lake.path(table), tmp_path / copy)
    for name in ("foreign", "tomorrow"):
        write_deltalake(tmp_path / "silver" / name, pa.table({"x": [1]}))
    add_unknown_feature(tmp_path / "silver" / "tomorrow")
    assert not tables.can_query(TableName("silver", "tomorrow"))
    assert own_tables(tables, *LAYERS) == [ORDERS, CUTS]
    assert own_tables(tables, "silver") == [ORDERS]


def test_a_name_of_ours_that_a_copy_has_is_refused(tmp_path: Path) -> None:
    tables = DeltaRsTables(Lake(root=str(tmp_path)))
    tables.create_table(ORDERS, "_key STRING")
    shutil.copytree(tables.lake.path(ORDERS), tables.lake.path(CUTS))
    with pytest.raises(ConfigurationError, match=r"control\.cuts is a table that Strandline has not made"):
        tables.insert_rows(CUTS, "_key STRING", [{"_key": "a"}], "_key")
    assert tables.version(CUTS) == 0


def test_a_table_of_ours_whose_log_is_damaged_is_not_passed_over(tmp_path: Path) -> None:
    tables = DeltaRsTables(Lake(root=str(tmp_path)))
    tables.create_table(ORDERS, "_key STRING")
    Path(tables.lake.path(ORDERS), "_delta_log", f"{0:020}.json").write_text('{"protocol":{"minReader')
    with pytest.raises(LakeUnavailable, match=r"silver\.orders"):
        own_tables(tables, "silver")
