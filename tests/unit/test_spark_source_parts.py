"""The Spark data source without Spark and without MongoDB: offsets, options, and how Spark finds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable

import pyspark_strandline
from strandline.errors import ConfigurationError, ContractError
from strandline.jobs.spark_source.into_bronze import BronzeTarget
from strandline.jobs.spark_source.opened_source import START, settings_of
from strandline.jobs.spark_source.stream_position import Position
from strandline.jobs.spark_source.stream_reader import BronzeStreamReader
from strandline.model.table_schemas import BRONZE_DDL
from strandline.spark_source import StrandlineSource

_MIDDLE = Position(7, 2, '{"_data": "82FF"}', "0000000100000002", None, ends_outside_transaction=True)


def test_spark_finds_it_by_name() -> None:
    """Spark asks each package of this prefix for its `DefaultSource`."""
    found = pyspark_strandline.DefaultSource
    assert issubclass(found, DataSource)
    assert (found.name(), found({}).schema()) == ("strandline", BRONZE_DDL)


@pytest.mark.parametrize("position", [Position(), Position(1, token="{}", snapshot_id="s"), _MIDDLE])
def test_a_position_survives_the_checkpoint(position: Position) -> None:
    assert Position.from_json(json.loads(json.dumps(position.to_json()))) == position


@pytest.mark.parametrize("stored", [{}, {"format": 2}, {"format": 1, "batch": 1}])
def test_a_position_of_another_program_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match="was not written by this release of Strandline"):
        Position.from_json(stored)


def test_a_stream_begins_at_its_start_option() -> None:
    assert Position.from_json(BronzeStreamReader({}).initialOffset()) == Position()
    given = {START: json.dumps(_MIDDLE.to_json())}
    assert Position.from_json(BronzeStreamReader(given).initialOffset()) == _MIDDLE


def test_options_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRANDLINE_SOURCE__URI", raising=False)
    (tmp_path / "base.yml").write_text("capture: {max_batch_size: 5, poll_interval_ms: 7}", encoding="utf-8")
    options = {"conf": str(tmp_path), START: "{}", "source.uri": "mongodb://h/?x=1", "capture.max_batch_size": "6"}
    capture, source = settings_of(options).capture, settings_of(options).source
    assert (capture.max_batch_size, capture.poll_interval_ms) == (6, 7)
    assert source.uri is not None
    assert source.uri.get_secret_value() == "mongodb://h/?x=1"
    with pytest.raises(ConfigurationError, match=r"option capture.max_batch: unknown key capture.max_batch"):
        settings_of({"capture.max_batch": "1"})


@pytest.mark.parametrize(("name", "value"), [("snapshot_mode", "always"), ("on_history_lost", "heal")])
def test_settings_that_a_spark_stream_cannot_follow_are_refused(name: str, value: str) -> None:
    reader = BronzeStreamReader({f"capture.{name}": value})
    with pytest.raises(ConfigurationError, match=f"not capture.{name} {value}"):
        reader.latestOffset(Position().to_json(), ReadAllAvailable())


def test_a_target_does_not_show_the_connection_string() -> None:
    assert "secret" not in repr(BronzeTarget("t", None, {"source.uri": "mongodb://u:secret@h"}))
    assert StrandlineSource({}).name() == "strandline"
