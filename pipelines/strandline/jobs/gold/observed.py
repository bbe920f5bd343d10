"""Spans and lineage of gold nodes and of quality runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from strandline.gold.build import Built
from strandline.gold.graph import Graph, Node
from strandline.gold.publish import Around
from strandline.io.tables.lineage import LineageRun, columns_of, gathered, is_told, told_run
from strandline.io.tables.table_store import TableStore
from strandline.io.telemetry.tracing import annotate, span
from strandline.model.lineage import Assertion, Dataset, Input, Job, Output
from strandline.model.tables import TableName
from strandline.quality.results import QualityReport
from strandline.quality.rules import Suite


def observed_builds(tables: TableStore, graph: Graph) -> Around:
    """Return what `publish` calls around each build: a span, and a run of lineage."""

    def around(node: Node, build: Callable[[], Built]) -> Built:
        with (
            span("gold node", table=str(node.table), materialized=node.materialized),
            _told_build(tables, node) as run,
        ):
            built = build()
            annotate(rows=built.rows, mode=None if node.materialized == "view" else built.how.partition(":")[0])
            if run is not None:
                run.outputs = (_output(tables, graph, node, built.rows),)
        return built

    return around


@contextmanager
def _told_build(tables: TableStore, node: Node) -> Iterator[LineageRun | None]:
    if not is_told():
        yield None
        return
    inputs = tuple(Input(Dataset.of_table(tables.lake, table)) for table in node.statement.tables())
    job = Job(str(node.table), "BUILD", sql=node.statement.rewrite(str))
    with told_run(LineageRun(job, inputs, (Output(Dataset.of_table(tables.lake, node.table)),))) as run:
        yield run


def _output(tables: TableStore, graph: Graph, node: Node, rows: int | None) -> Output:
    """Return the table of *node* with its columns and their sources. I/O: reads schemas."""
    from strandline.gold.column_lineage import column_lineage  # sqlglot's optimizer: only reports wait for it

    lineage = gathered(f"column lineage of {node.table}", lambda: column_lineage(graph, node, tables.columns)) or {}
    has_columns = node.materialized != "view" or not tables.lake.by_path
    columns = columns_of(tables, node.table) if has_columns else {}
    as_stored = {name.lower(): name for name in columns}
    named = {
        as_stored.get(column.lower(), column): tuple(
            (Dataset.of_table(tables.lake, column_source.table), column_source.column, column_source.transformation)
            for column_source in assertions
        )
        for column, assertions in lineage.items()
    }
    return Output(Dataset.of_table(tables.lake, node.table), rows, columns, named)


@contextmanager
def observed_checks(tables: TableStore, suites: Sequence[Suite]) -> Iterator[Callable[[QualityReport], None]]:
    """Trace and tell a quality run. Call the yielded function with its report, before a closed gate is raised."""
    names = dict.fromkeys(suite.table for suite in suites)
    run = LineageRun(Job("quality", "CHECK"), tuple(Input(Dataset.of_table(tables.lake, name)) for name in names))

    def checked(report: QualityReport) -> None:
        outcomes = [check.outcome for check in report.checks]
        annotate(checks=len(outcomes), failed=outcomes.count("failed"), broken=outcomes.count("error"))
        if is_told():
            run.inputs = _checked_inputs(tables, report)

    with span("quality run", suites=len(suites)), told_run(run):
        yield checked


def _checked_inputs(tables: TableStore, report: QualityReport) -> tuple[Input, ...]:
    assertions: dict[TableName, list[Assertion]] = {}
    for check in report.checks:
        blocks = check.on_failure == "block"
        assertion = Assertion(check.expectation, check.column, check.outcome == "passed", blocks)
        assertions.setdefault(check.table, []).append(assertion)
    return tuple(Input(Dataset.of_table(tables.lake, table), tuple(checks)) for table, checks in assertions.items())
