"""Sources that capture refuses or reads with few rights: views, time series, misspelt targets, narrow roles."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from examined import examined
from guarded_server import guarded_server
from guarded_server import uri_of as guarded_uri
from lakehouse import assert_equal_to_source, land, pipeline, settings_for
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.jobs.offsets.show_offset import show_offset
from strandline.source.client import ConnectionOptions, find_collection, open_client
from strandline.source.mongod import EmbeddedMongod

Db = Database[dict[str, Any]]


def native(uri: str, database: str, root: Path, **capture: Any) -> DeltaRsContext:
    ctx = open_capture_without_spark(settings_for(uri, database, root, **{"engine": "native", **capture}))
    assert ctx is not None
    return ctx


def captured(ctx: DeltaRsContext, caplog: pytest.LogCaptureFixture) -> tuple[int, list[str]]:
    """Return the number of snapshot documents of a capture, and the warnings of its selection."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "strandline.capture"):
        documents = run_capture(ctx, once=True).documents
    return documents, [record.getMessage() for record in caplog.records if record.name == "strandline.capture"]


@pytest.fixture
def odd(database: Db) -> Db:
    """A database with a collection of three documents, a time-series collection and a view."""
    database.orders.insert_many([{"_id": number} for number in range(3)])
    database.create_collection("ts", timeseries={"timeField": "t"})
    database.ts.insert_one({"t": datetime(2024, 1, 1, tzinfo=UTC)})
    database.command("create", "v", viewOn="orders", pipeline=[])
    return database


def test_views_and_time_series_are_named_once_by_capture_doctor_and_status(
    mongo_uri: str, odd: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = native(mongo_uri, odd.name, tmp_path)
    documents, (warning,) = captured(ctx, caplog)
    assert documents == 3
    assert warning == (
        "left out, because MongoDB has no change stream for them: "
        f"{odd.name}.ts (a time-series collection), {odd.name}.v (a view of {odd.name}.orders); "
        "read a time series by schedule (capture.scheduled), or write its measurements to a normal collection, too; "
        "read a view by schedule (capture.scheduled), or capture the collection that it reads"
    )
    finding = examined(ctx)["source.selection"]
    assert (finding.severity, finding.found) == ("warning", warning)
    assert show_offset(ctx).left_out == warning
    excluding = native(mongo_uri, odd.name, tmp_path, collection_exclude_list=rf"{odd.name}\.(ts|v)")
    assert captured(excluding, caplog) == (0, [])
    assert show_offset(excluding).left_out is None


def test_an_included_time_series_or_view_is_logged_as_left_out(
    mongo_uri: str, odd: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("ts", "v"):
        ctx = native(mongo_uri, odd.name, tmp_path / name, collection_include_list=f"{odd.name}[.]{name}")
        documents, (warning, nothing) = captured(ctx, caplog)
        assert documents == 0
        assert f"{odd.name}.{name} (" in warning
        assert nothing == "NO COLLECTION IS CAPTURED: capture selects nothing else that exists now"
    both = native(mongo_uri, odd.name, tmp_path / "both", collection_include_list=f"{odd.name}[.](ts|orders)")
    documents, (warning,) = captured(both, caplog)
    assert documents == 3
    assert ".ts (a time-series collection);" in warning


@pytest.mark.parametrize(("name", "kind"), [("ts", "a time-series collection"), ("v", "a view")])
def test_a_view_or_time_series_as_target_is_refused_with_its_kind(
    mongo_uri: str, odd: Db, tmp_path: Path, name: str, kind: str
) -> None:
    ctx = native(mongo_uri, odd.name, tmp_path, scope="collection", target=f"{odd.name}.{name}")
    with pytest.raises(ConfigurationError, match=f"{name} is {kind}, and MongoDB has no change stream") as refused:
        run_capture(ctx, once=True)
    assert ("a view by" in refused.value.next_step, "time series" in refused.value.next_step) == (
        kind == "a view",
        kind != "a view",
    )
    findings = examined(ctx)
    assert findings["source.selection"].found == refused.value.message
    assert "(code 166): it is a view or a time-series collection" in findings["source.change_stream"].found
    assert all(finding.fix != "strandline doctor" for finding in findings.values())
    with closing(open_client(ConnectionOptions(mongo_uri), raw=True)) as client:
        assert find_collection(client[odd.name], name) is None


def test_a_misspelt_target_is_told_with_what_was_probably_meant(
    mongo_uri: str, odd: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for scope, target, told in (
        ("database", f"{odd.name}x", f"there is no database {odd.name}x now (did you mean {odd.name}?)"),
        ("collection", f"{odd.name}.order", f"there is no collection {odd.name}.order now (did you mean orders?)"),
        ("collection", f"{odd.name}.zzz", f"there is no collection {odd.name}.zzz now (there are: orders)"),
        ("collection", f"{odd.name}x.orders", f"there is no database {odd.name}x now (did you mean {odd.name}?)"),
    ):
        ctx = native(mongo_uri, odd.name, tmp_path / target, scope=scope, target=target)
        documents, (warning,) = captured(ctx, caplog)
        assert documents == 0
        assert warning == f"NO COLLECTION IS CAPTURED: {told}; it is captured as soon as it exists"
        assert examined(ctx)["source.selection"].found == warning


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMongod]:
    """A server with users, which refuses every scan of a collection."""
    with guarded_server(tmp_path_factory.mktemp("key"), "p", set_parameters={"notablescan": "1"}) as (server, _):
        yield server


uri_of = partial(guarded_uri, password="p")


def test_find_and_change_stream_on_one_collection_are_enough(
    spark: SparkSession, strict_server: EmbeddedMongod, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with MongoClient[dict[str, Any]](uri_of(strict_server, "root")) as root:
        root.shop.a.insert_many([{"_id": number, "x": number} for number in range(60)])
        root.shop.secret.insert_one({"_id": 1})
        privilege = {"resource": {"db": "shop", "collection": "a"}, "actions": ["find", "changeStream"]}
        root.admin.command("createRole", "of_a", privileges=[privilege], roles=[])
        root.admin.command("createUser", "narrow", pwd="p", roles=["of_a"])
        uri = uri_of(strict_server, "narrow")
        ctx = pipeline(
            spark, uri, "shop", tmp_path, scope="collection", target="shop.a", snapshot_chunk_size=20, engine="native"
        )
        with caplog.at_level(logging.WARNING, "strandline"):
            assert run_capture(ctx, once=True).documents == 60
        assert not [text for text in caplog.messages if "NO COLLECTION" in text or "left out" in text]
        root.shop.a.update_one({"_id": 1}, {"$set": {"x": -1}})
        root.shop.a.delete_one({"_id": 2})
        root.shop.a.insert_one({"_id": 60})
        land(ctx)
        assert_equal_to_source(ctx, root.shop, "a")
        findings = examined(ctx)
        assert {name: found.found for name, found in findings.items() if found.severity == "error"} == {}


def test_a_filter_is_accepted_by_a_server_that_refuses_scans(strict_server: EmbeddedMongod, tmp_path: Path) -> None:
    uri = uri_of(strict_server, "root")
    with MongoClient[dict[str, Any]](uri) as root:
        root.scans.a.insert_many([{"_id": number, "x": number % 10} for number in range(200)])
    filters = {"scans.a": '{"x": {"$gt": 4}}'}
    options = {"snapshot_collection_filter_overrides": filters, "snapshot_chunk_size": 20}
    assert run_capture(native(uri, "scans", tmp_path, **options), once=True).documents == 100
    wrong = options | {"snapshot_collection_filter_overrides": {"scans.a": '{"x": {"$nosuch": 4}}'}}
    with pytest.raises(ConfigurationError, match=r"the filter for scans\.a is refused"):
        run_capture(native(uri, "scans", tmp_path / "wrong", **wrong), once=True)
