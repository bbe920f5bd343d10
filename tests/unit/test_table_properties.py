"""Delta properties that a user chooses for silver tables, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from configuration import refusal, write
from typer.testing import CliRunner

from strandline.bronze.bronze_properties import PROPERTIES as OF_BRONZE
from strandline.cli import app
from strandline.io.tables.file_maintenance import FILES_KEPT, LOG_KEPT
from strandline.model.table_properties import property_problems
from strandline.settings.configuration import load_settings
from strandline.silver.compatibility import MAPPED, properties_of, without_features
from strandline.silver.configured_properties import CONFIGURED, configured_in


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("delta.logRetentionDuration", "use maintenance.retention_hours and log_retention_hours"),
        ("DELTA.LOGRETENTIONDURATION", "use maintenance.retention_hours and log_retention_hours"),
        ("delta.enableChangeDataFeed", "need the change feed; remove it"),
        ("delta.enableRowTracking", "use silver.compatibility"),
        ("delta.feature.v2Checkpoint", "use silver.compatibility"),
        ("delta.columnMapping.mode", "use silver.field_name_adjustment_mode"),
        ("delta.dataSkippingNumIndexedCols", "use silver.layout"),
        ("strandline.shape", "stores the state of the table there"),
        ("team", "it is no property of Delta"),
    ],
)
@pytest.mark.parametrize("where", ["table_properties: {%s}", "table_properties_by_collection: {shop.orders: {%s}}"])
def test_a_property_that_strandline_depends_on_is_refused_at_the_start(
    conf: Path, where: str, name: str, instead: str
) -> None:
    write(conf, "here", f"silver: {{{where % f'{name}: 1'}}}")
    told = refusal(conf)
    assert f"table_properties: {name} cannot be chosen: " in told
    assert instead in told
    assert "\n" not in told


def test_every_property_that_strandline_sets_is_refused() -> None:
    own = {*properties_of("portable"), *properties_of("native"), *MAPPED, *OF_BRONZE, FILES_KEPT, LOG_KEPT, CONFIGURED}
    own -= {"delta.checkpointInterval"}  # of bronze alone, whose upkeep counts commits
    assert len(list(property_problems(own))) == len(own)
    assert not list(property_problems(["delta.checkpointInterval", "delta.targetFileSize", "delta.autoOptimize"]))


def test_a_collections_property_overrides_the_lakes_in_any_letter_case(conf: Path) -> None:
    write(
        conf,
        "here",
        "silver: {table_properties: {delta.checkpointInterval: 50, delta.targetFileSize: 64mb}, "
        "table_properties_by_collection: {shop.orders: {delta.CheckpointInterval: 7}}}",
    )
    silver = load_settings("here", conf).silver
    assert silver.properties_of("shop.orders") == {"delta.CheckpointInterval": "7", "delta.targetFileSize": "64mb"}
    assert silver.properties_of("shop.other") == {"delta.checkpointInterval": "50", "delta.targetFileSize": "64mb"}


def test_a_property_can_be_set_on_the_command_line(conf: Path) -> None:
    chosen = ["--set", "silver.table_properties.delta.appendOnly=true"]
    refused = CliRunner().invoke(app, ["--conf", str(conf), "--target", "here", *chosen, "status"])
    assert "delta.appendOnly cannot be chosen: a MERGE changes rows" in str(refused.exception)


def test_a_name_that_is_no_collection_is_refused(conf: Path) -> None:
    write(conf, "here", "silver: {table_properties_by_collection: {orders: {delta.checkpointInterval: 7}}}")
    assert "table_properties_by_collection: 'orders' is no database.collection" in refusal(conf)


def test_a_rebuild_keeps_properties_set_by_hand_and_none_that_the_setting_named() -> None:
    stored = {
        "delta.checkpointInterval": "7",
        "delta.parquet.format.version": "2.12.0",
        CONFIGURED: '["delta.CHECKPOINTINTERVAL"]',
    }
    assert configured_in(stored) == ("delta.CHECKPOINTINTERVAL",)
    assert without_features(stored) == {"delta.parquet.format.version": "2.12.0"}
