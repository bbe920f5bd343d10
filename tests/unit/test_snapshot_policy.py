"""Snapshot modes and filters, as settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from snapshotters import install

from strandline.errors import ConfigurationError
from strandline.jobs.snapshot.plan import Chunk, Plan
from strandline.model.snapshot_policy import SnapshotPolicy, query_document
from strandline.settings.capture import CaptureSettings
from strandline.source.client import Collection
from strandline.source.ranges import Range


@pytest.mark.parametrize(
    ("mode", "policy"),
    [
        ("always", SnapshotPolicy(first=True, every=True)),
        ("initial", SnapshotPolicy(first=True)),
        ("initial_only", SnapshotPolicy(first=True, streams=False)),
        ("no_data", SnapshotPolicy(first=False)),
        ("when_needed", SnapshotPolicy(first=True, heals=True)),
        ("configuration_based", SnapshotPolicy(first=False)),
    ],
)
def test_each_snapshot_mode_has_debeziums_policy(mode: str, policy: SnapshotPolicy) -> None:
    assert CaptureSettings(snapshot_mode=mode).snapshot_policy == policy  # type: ignore[arg-type]  # why: one of the words


def test_the_flags_of_configuration_based() -> None:
    settings = CaptureSettings(
        snapshot_mode="configuration_based",
        snapshot_mode_configuration_based_snapshot_data=True,
        snapshot_mode_configuration_based_start_stream=False,
        snapshot_mode_configuration_based_snapshot_on_data_error=True,
    )
    assert settings.snapshot_policy == SnapshotPolicy(first=True, streams=False, heals=True)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)


@pytest.mark.usefixtures("installed")
def test_mode_custom_is_what_an_installed_snapshotter_answers() -> None:
    settings = CaptureSettings(snapshot_mode="custom", snapshot_mode_custom_name="once")
    assert settings.snapshot_policy == SnapshotPolicy(first=True, every=False, streams=False, heals=True)
    failing = CaptureSettings(snapshot_mode="custom", snapshot_mode_custom_name="failing")
    with pytest.raises(ConfigurationError, match=r"failing \(.*:Failing\) failed: LookupError: no calendar"):
        _ = failing.snapshot_policy
    assert settings.snapshotter is settings.snapshotter, "one run has one snapshotter"
    assert CaptureSettings().snapshotter is None


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"snapshot_mode": "custom"}, "need each other"),
        ({"snapshot_mode_custom_name": "once"}, "need each other"),
        (
            {"snapshot_mode": "custom", "snapshot_mode_custom_name": "twice"},
            "no snapshotter 'twice' is installed, always, failing, once is",
        ),
    ],
)
def test_a_snapshotter_that_is_missing_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        CaptureSettings(**given)


# scenario: U13
@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("{n: 1", "is no JSON of a document"),
        ('{"n": {"$oid": "short"}}', "is no JSON of a document"),
        ("[1]", "is no document"),
        ('{"$where": "sleep(1000)"}', "uses $where"),
        ('{"$or": [{"a": 1}, {"$expr": {"$function": {"body": "…"}}}]}', "uses $function"),
    ],
)
def test_a_filter_that_is_none_or_runs_code_is_refused(query: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=r"the query of shop\.a") as refused:
        CaptureSettings(snapshot_collection_filter_overrides={"shop.a": query})
    assert problem in str(refused.value)


# scenario: N07
def test_a_plan_keeps_its_filters_word_by_word() -> None:
    query = '{"_id": {"$gt": {"$numberLong": "4"}}}'
    chunk = Chunk(0, Collection("shop", "a", "00"), Range(), query, sweeps=True)
    plan = Plan((chunk,), 2, (7, 1), complete=True, kind="blocking", signal="s1")
    assert Plan.from_json(Plan.from_json(plan.to_json()).to_json()) == plan
    assert query_document(query) == {"_id": {"$gt": 4}}
    assert query_document(None) == {}
