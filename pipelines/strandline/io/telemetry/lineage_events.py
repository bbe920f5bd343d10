"""Events of OpenLineage from plain values. Pure. Imports the library: only a process that sends events imports this."""

from __future__ import annotations

from typing import Final

from openlineage.client.event_v2 import InputDataset, OutputDataset, Run, RunEvent, RunState
from openlineage.client.event_v2 import Job as EventJob
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    RunFacet,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    sql_job,
)

from strandline import __version__
from strandline.model.lineage import Input, Job, Output, RunReport

PRODUCER: Final = f"urn:strandline:{__version__}"
"""URI of what has made the events."""
_DIALECT: Final = "spark"


def run_event(report: RunReport, namespace: str) -> RunEvent:
    """Return the event of *report*.

    Args:
        namespace: Namespace of the job.
    """
    engine = processing_engine_run.ProcessingEngineRunFacet(version=__version__, name="strandline", producer=PRODUCER)
    facets: dict[str, RunFacet] = {"processing_engine": engine}
    if report.error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=report.error, programmingLanguage="PYTHON", producer=PRODUCER
        )
    return RunEvent(
        eventTime=report.at.isoformat(),
        producer=PRODUCER,
        run=Run(report.run_id, facets=facets),
        job=EventJob(namespace, report.job.name, facets=_job_facets(report.job)),
        eventType=RunState(report.state),
        inputs=[_input(table) for table in report.inputs],
        outputs=[_output(table) for table in report.outputs],
    )


def _job_facets(job: Job) -> dict[str, JobFacet]:
    processing = "STREAMING" if job.streams else "BATCH"
    facets: dict[str, JobFacet] = {
        "jobType": job_type_job.JobTypeJobFacet(processing, "STRANDLINE", jobType=job.kind, producer=PRODUCER)
    }
    if job.sql is not None:
        facets["sql"] = sql_job.SQLJobFacet(job.sql, dialect=_DIALECT, producer=PRODUCER)
    return facets


def _input(item: Input) -> InputDataset:
    dataset = InputDataset(item.dataset.namespace, item.dataset.name)
    if item.assertions:
        dataset.inputFacets = {
            "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
                [
                    data_quality_assertions_dataset.Assertion(
                        assertion.expectation,
                        assertion.passed,
                        assertion.column,
                        "error" if assertion.blocks else "warn",
                    )
                    for assertion in item.assertions
                ],
                producer=PRODUCER,
            )
        }
    return dataset


def _output(item: Output) -> OutputDataset:
    facets: dict[str, DatasetFacet] = {}
    if item.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(*column) for column in item.columns.items()]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)
    if item.sources:
        facets["columnLineage"] = _column_lineage(item)
    dataset = OutputDataset(item.dataset.namespace, item.dataset.name, facets=facets)
    if item.rows is not None:
        dataset.outputFacets = {
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=item.rows, producer=PRODUCER
            )
        }
    return dataset


def _column_lineage(item: Output) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    return column_lineage_dataset.ColumnLineageDatasetFacet(
        {
            column: column_lineage_dataset.Fields(
                [
                    column_lineage_dataset.InputField(
                        dataset.namespace,
                        dataset.name,
                        source,
                        [column_lineage_dataset.Transformation("DIRECT", subtype=transformation)],
                    )
                    for dataset, source, transformation in sources
                ]
            )
            for column, sources in item.sources.items()
        },
        producer=PRODUCER,
    )
