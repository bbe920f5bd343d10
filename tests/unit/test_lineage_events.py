"""Events of OpenLineage: names of datasets, and the events of a capture, a silver table, a gold node and a check."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from openlineage.client.event_v2 import RunEvent
from openlineage.client.naming.dataset import ABFSS, GCS, HDFS, S3, DatasetNaming, LocalFileSystem
from openlineage.client.serde import Serde

from strandline.errors import ContractError, QualityGateClosed
from strandline.gold.build import Built
from strandline.gold.graph import parse
from strandline.io.tables.lineage import tell_lineage_to
from strandline.io.telemetry.lineage_events import run_event
from strandline.jobs.capture.lineage import CaptureLineage
from strandline.jobs.gold.observed import observed_builds, observed_checks
from strandline.jobs.silver.lineage import merge_told
from strandline.model.lineage import Assertion, Dataset, Input, Job, Output, RunReport
from strandline.model.tables import Lake, TableName
from strandline.quality.results import CheckResult, QualityReport, raise_if_gate_closed
from strandline.settings.configuration import Settings

ORDERS = TableName("silver", "orders")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RUN = "0195d0a8-6c3f-7a3e-9b1e-111111111111"


@pytest.mark.parametrize(
    ("root", "naming"),
    [
        ("/data/lake", LocalFileSystem("/data/lake/silver/orders")),
        ("file:///data/lake", LocalFileSystem("/data/lake/silver/orders")),
        ("s3://bucket/lake", S3("bucket", "lake/silver/orders")),
        ("s3a://bucket/lake/", S3("bucket", "lake/silver/orders")),
        ("gs://bucket/lake", GCS("bucket", "lake/silver/orders")),
        ("abfss://box@store.dfs.core.windows.net/lake", ABFSS("box", "store", "lake/silver/orders")),
        ("hdfs://name:8020/lake", HDFS("name", "8020", "/lake/silver/orders")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_by_path_is_named_as_the_library_names_it(root: str, naming: DatasetNaming) -> None:
    expected = Dataset(naming.get_namespace(), naming.get_name())
    assert Dataset.of_table(Lake(root=root), ORDERS) == expected


def test_names_in_a_catalog_and_in_the_source() -> None:
    assert Dataset.of_table(Lake(catalog="main", schema="cdc"), ORDERS) == Dataset("main", "cdc_silver.orders")
    assert Dataset.of_table(Lake(root="dbfs:/lake"), ORDERS) == Dataset("dbfs", "/lake/silver/orders")
    assert Dataset.of_collection("b:27018,a", "shop.orders") == Dataset("mongodb://a,b:27018", "shop.orders")


def as_sent(report: RunReport) -> dict[str, Any]:
    event = run_event(report, "prod")
    assert isinstance(event, RunEvent)
    return Serde.to_dict(event)


def test_an_event_holds_its_facets_with_the_schemas_of_the_library() -> None:
    gold, silver = Dataset("file", "/lake/gold/late"), Dataset("file", "/lake/silver/flights")
    output = Output(gold, 7, {"carrier": "string"}, {"carrier": ((silver, "carrier", "IDENTITY"),)})
    checked = Input(silver, (Assertion("expect_column_values_to_not_be_null", "carrier", False, True),))
    job = Job("gold.late", "BUILD", sql="SELECT carrier FROM silver.flights")
    sent = as_sent(RunReport(job, RUN, "FAIL", AT, (checked,), (output,), "no table"))
    assert (sent["eventType"], sent["eventTime"], sent["run"]["runId"]) == ("FAIL", "2026-01-02T03:04:05+00:00", RUN)
    assert sent["run"]["facets"]["errorMessage"]["message"] == "no table"
    facets = sent["job"]["facets"]
    assert (sent["job"]["namespace"], sent["job"]["name"]) == ("prod", "gold.late")
    assert (facets["jobType"]["processingType"], facets["jobType"]["integration"]) == ("BATCH", "STRANDLINE")
    assert facets["sql"]["query"] == job.sql
    (assertion,) = sent["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    expected = {
        "assertion": "expect_column_values_to_not_be_null",
        "column": "carrier",
        "success": False,
        "severity": "error",
    }
    assert expected.items() <= assertion.items()
    (written,) = sent["outputs"]
    assert (written["namespace"], written["name"]) == ("file", "/lake/gold/late")
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert written["facets"]["schema"]["fields"] == [{"name": "carrier", "type": "string", "fields": []}]
    assert written["facets"]["columnLineage"]["fields"]["carrier"]["inputFields"] == [
        {
            "namespace": "file",
            "name": "/lake/silver/flights",
            "field": "carrier",
            "transformations": [{"type": "DIRECT", "subtype": "IDENTITY"}],
        }
    ]
    assert written["facets"]["columnLineage"]["_producer"] == sent["producer"]
    assert "/ColumnLineageDatasetFacet.json" in written["facets"]["columnLineage"]["_schemaURL"]


@dataclass
class Heard:
    """A receiver that keeps the reports."""

    reports: list[RunReport] = field(default_factory=list)
    show_keys: bool = False

    def tell(self, report: RunReport) -> None:
        self.reports.append(report)


@pytest.fixture
def heard() -> Any:
    receiver = Heard()
    tell_lineage_to(receiver)
    yield receiver
    tell_lineage_to(None)


def capture_lineage(heartbeat_ms: int) -> CaptureLineage:
    capture = Settings().capture.model_copy(update={"heartbeat_interval_ms": heartbeat_ms})
    return CaptureLineage(Settings(capture=capture), Lake(root="/lake"))


@pytest.mark.parametrize(
    ("failure", "stopped", "state"),
    [(None, False, "COMPLETE"), (None, True, "ABORT"), (ContractError("gone"), True, "FAIL")],
)
def test_a_capture_is_one_streaming_run(heard: Heard, failure: Exception | None, stopped: bool, state: str) -> None:
    run = capture_lineage(60_000)
    run.add_rows(3)  # before the source is open nothing is told, but it counts
    for _ in range(2):  # a second attempt opens its connections again
        run.begin("mongodb://user:s3cret@b:27018,a:27017/?replicaSet=rs", ["shop.orders"])
    run.add_rows(4)  # sooner than a heartbeat
    run.end(failure, stopped=stopped)
    assert [report.state for report in heard.reports] == ["START", state]
    assert len({report.run_id for report in heard.reports}) == 1
    sent = as_sent(heard.reports[-1])
    assert sent["job"]["name"] == "capture.mongo"
    assert sent["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert (sent["inputs"][0]["namespace"], sent["inputs"][0]["name"]) == ("mongodb://a:27017,b:27018", "shop.orders")
    assert sent["outputs"][0]["name"] == "/lake/bronze/mongo"
    assert sent["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert "s3cret" not in str(sent)
    assert ("errorMessage" in sent["run"]["facets"]) == (failure is not None)


def test_a_capture_tells_at_the_pace_of_heartbeats(heard: Heard) -> None:
    run = capture_lineage(100)
    run.begin("mongodb://a", ["shop.orders"])
    run._told_at -= 1.0
    run.add_rows(0)  # an idle stream commits a heartbeat
    run.add_rows(5)
    run.end()
    assert [report.state for report in heard.reports] == ["START", "RUNNING", "COMPLETE"]


def test_a_capture_that_never_opened_its_source_tells_nothing(heard: Heard) -> None:
    capture_lineage(100).end(ContractError("gone"))
    assert heard.reports == []


class _Unreadable:
    """Tables whose schema cannot be read."""

    lake = Lake(root="/lake")

    def column_types(self, table: TableName) -> dict[str, str]:
        raise OSError(f"{table} is gone")


def test_a_schema_that_cannot_be_read_is_one_line_and_no_failure(
    heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    with merge_told(_Unreadable(), TableName("bronze", "mongo"), ORDERS) as wrote:  # type: ignore[arg-type]  # why: the part that it uses
        wrote(5)
    assert [report.state for report in heard.reports] == ["START", "COMPLETE"]
    assert heard.reports[-1].outputs == (Output(Dataset("file", "/lake/silver/orders"), 5, {}),)
    assert caplog.messages == ["a lineage event lacks the columns of silver.orders: silver.orders is gone"]


class _Stored:
    """Tables of a lake: their columns."""

    lake = Lake(root="/lake")

    def column_types(self, table: TableName) -> dict[str, str]:
        return {"late": {"City": "string", "n": "bigint"}, "orders": {"city": "string", "_deleted": "boolean"}}[
            table.name
        ]

    def columns(self, table: TableName) -> list[str]:
        return list(self.column_types(table))


def test_a_gold_node_tells_its_inputs_its_query_and_where_its_columns_come_from(heard: Heard) -> None:
    sql = "-- materialized: table\nSELECT upper(city) AS City, count(*) AS n FROM silver.orders GROUP BY city"
    graph = parse({"late.sql": sql})
    around = observed_builds(_Stored(), graph)  # type: ignore[arg-type]  # why: the part that it uses
    built = Built(2, "full: first build", "Spark")
    assert around(graph.nodes["late"], lambda: built) == built
    start, end = map(as_sent, heard.reports)
    assert (start["eventType"], end["eventType"], end["job"]["name"]) == ("START", "COMPLETE", "gold.late")
    assert end["job"]["facets"]["sql"]["query"].startswith("SELECT upper(city)")
    assert [each["name"] for each in end["inputs"]] == ["/lake/silver/orders"]
    facets = end["outputs"][0]["facets"]
    assert [each["name"] for each in facets["schema"]["fields"]] == ["City", "n"]
    fields = facets["columnLineage"]["fields"]
    assert fields.keys() == {"City", "n"}, "named as the table names them"
    assert [(each["name"], each["field"]) for each in fields["City"]["inputFields"]] == [
        ("/lake/silver/orders", "city")
    ]
    assert fields["n"]["inputFields"] == []
    assert end["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2


def test_a_failed_gold_node_sends_a_fail_event(heard: Heard) -> None:
    graph = parse({"late.sql": "SELECT city FROM silver.orders"})

    def fail() -> tuple[None, str]:
        raise ContractError("no such column")

    with pytest.raises(ContractError):
        observed_builds(_Stored(), graph)(graph.nodes["late"], fail)  # type: ignore[arg-type]  # why: the part that it uses
    assert [(report.state, report.error) for report in heard.reports] == [("START", None), ("FAIL", "no such column")]


def test_a_quality_run_tells_the_outcome_of_each_expectation_and_no_value(heard: Heard) -> None:
    kept = CheckResult(ORDERS, "orders", "expect_a", "city", "{}", "passed", "{}", None, "warn")
    closing = replace(
        kept, expectation="expect_b", outcome="failed", observed='{"rows": ["s3cret"]}', on_failure="block"
    )
    report = QualityReport("run", AT, (kept, closing), show_keys=True)

    def check() -> None:
        with observed_checks(_Stored(), ()) as checked:  # type: ignore[arg-type]  # why: the part that it uses
            checked(report)
            raise_if_gate_closed(report)

    with pytest.raises(QualityGateClosed, match="s3cret"):
        check()
    sent = as_sent(heard.reports[-1])
    assert (sent["eventType"], sent["run"]["facets"]["errorMessage"]["message"]) == ("FAIL", "QualityGateClosed")
    (read,) = sent["inputs"]
    assert read["name"] == "/lake/silver/orders"
    assertions = read["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(each["assertion"], each["success"], each["severity"]) for each in assertions] == [
        ("expect_a", True, "warn"),
        ("expect_b", False, "error"),
    ]
    assert "s3cret" not in str(sent)
