"""The only importer of great_expectations: suites in, plain results and Data Docs out."""

from __future__ import annotations

import json
import logging
import os
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from pipelines.errors import ConfigurationError
from pipelines.quality.results import Check, broken, checked
from pipelines.quality.rules import Expectation, Kind, Suite
from pipelines.quality.table_checks import TABLE_KINDS

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # why here: it must stand before the import; nothing is ever to be sent

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # why: the library imports sre_constants, which Python has deprecated
        import great_expectations as gx
        from great_expectations.core.expectation_suite import ExpectationSuite
        from great_expectations.core.expectation_validation_result import ExpectationValidationResult
        from great_expectations.core.validation_definition import ValidationDefinition
        from great_expectations.data_context.types.base import ProgressBarsConfig
        from great_expectations.datasource.fluent.interfaces import Batch
        from great_expectations.expectations.expectation import ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation
        from great_expectations.expectations.expectation import Expectation as GxExpectation
        from great_expectations.expectations.registry import get_expectation_impl, list_registered_expectation_implementations
except SystemExit as stopped:
    # why: it imports pyspark.sql.connect, which ends `python -c` with code 0 where grpc is missing
    raise ImportError("great_expectations cannot be imported from `python -c`; run a file or a module") from stopped

for _name in ("great_expectations", "great_expectations.data_context.types.base"):  # the second one has a level of its own
    logging.getLogger(_name).setLevel(logging.WARNING)

_SITE = "strandline"
_KEY = "_key"
_OWN_SQL = "unexpected_rows_expectation"
_LEFT_OUT = ("partial_unexpected_index_list", "unexpected_index_column_names", "unexpected_index_query")
_OURS = ("id", "batch_id", "rendered_content", "result_format", "catch_exceptions", "windows")  # set by the adapter or the library


# Map expectations judge each row by itself, but for these.
_COMPARE_ROWS = (
    "expect_column_values_to_be_unique",
    "expect_compound_columns_to_be_unique",
    "expect_column_values_to_be_increasing",
    "expect_column_values_to_be_decreasing",
    "expect_column_value_z_scores_to_be_less_than",
    "expect_column_values_to_not_be_outliers",
    _OWN_SQL,  # whoever writes SQL may compare anything
)
_JUDGE_TYPES = ("expect_column_values_to_be_of_type", "expect_column_values_to_be_in_type_list")  # of the column, in Spark


def known_expectations() -> dict[str, Kind]:
    """Every expectation of the library."""
    return {name: _kind(name, get_expectation_impl(name)) for name in list_registered_expectation_implementations()}


def _kind(name: str, implementation: type[GxExpectation]) -> Kind:
    arguments = tuple(argument for argument in implementation.__fields__ if argument not in _OURS)
    by_row = issubclass(implementation, ColumnMapExpectation | ColumnPairMapExpectation | MulticolumnMapExpectation)
    if name in _COMPARE_ROWS:
        return Kind(arguments, "rows")
    return Kind(arguments, "row" if by_row and name not in _JUDGE_TYPES else "table")


class Checker:
    """Checks suites with one Great Expectations context; `write_docs` then writes the pages of all of them.

    The context lives in memory, sends nothing, shows no progress bars and never calls ``persist()`` (serverless refuses it).
    """

    def __init__(self, docs_dir: Path, *, most_failing: int = 10_000) -> None:
        """*most_failing*: rows at fault that one expectation of a quarantine suite may name."""
        self._most_failing = most_failing
        self._docs_dir = docs_dir.absolute()
        self._context = gx.get_context(mode="ephemeral")
        self._context.enable_analytics(False)
        self._context.variables.progress_bars = ProgressBarsConfig(globally=False)
        self._context.add_data_docs_site(
            site_name=_SITE,
            site_config={
                "class_name": "SiteBuilder",
                "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(self._docs_dir)},
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
            },
        )
        self._source = self._context.data_sources.add_spark("lake", persist=False)

    def check(self, suite: Suite, rows: DataFrame) -> list[Check]:
        """Check *rows* against the expectations of *suite* that are the library's, one result for each, in the order of the file.

        I/O: runs Spark jobs over *rows* (read once or more per expectation); writes nothing.

        Raises:
            ConfigurationError: An argument has a value that the expectation does not take.
        """
        numbered = [(number, item) for number, item in enumerate(suite.expectations, start=1) if item.type not in TABLE_KINDS]
        expectations = [_build(suite, number, item) for number, item in numbered]
        if not expectations:
            return []
        asset = self._source.add_dataframe_asset(suite.name)
        batch = asset.add_batch_definition_whole_dataframe(str(suite.table))
        held = self._context.suites.add(ExpectationSuite(name=suite.name, expectations=expectations))
        definition = self._context.validation_definitions.add(ValidationDefinition(name=suite.name, data=batch, suite=held))
        named = {"unexpected_index_column_names": [_KEY]} if _KEY in rows.columns else {}
        checkpoint = self._context.checkpoints.add(
            gx.Checkpoint(name=suite.name, validation_definitions=[definition], result_format={"result_format": "SUMMARY", **named})
        )
        outcome = checkpoint.run(batch_parameters={"dataframe": rows})
        results = {
            result.expectation_config.id: result
            for validation in outcome.run_results.values()
            for result in validation.results
            if result.expectation_config is not None
        }
        checks = [_check(suite, item, results[key.id]) for (_, item), key in zip(numbered, held.expectations, strict=True)]
        if suite.on_failure != "quarantine":
            return checks
        source = batch.get_batch(batch_parameters={"dataframe": rows})
        return [self._with_keys(check, built, source, rows) for check, built in zip(checks, expectations, strict=True)]

    def _with_keys(self, check: Check, expectation: GxExpectation, source: Batch, rows: DataFrame) -> Check:
        """The same check with the keys of all rows at fault; an error, where they cannot be told or are too many to be set aside."""
        if check.outcome != "failed":
            return check
        count = check.unexpected_count or 0
        if count > self._most_failing:
            return broken(check, f"{count:,} rows fail, more than quality.max_quarantined_rows; is it the rows or the expectation?")
        if check.expectation == _OWN_SQL:
            keys = _keys_of_query(json.loads(check.kwargs)["unexpected_rows_query"], rows)
        else:
            whole = {"result_format": "COMPLETE", "unexpected_index_column_names": [_KEY]}
            found = source.validate(expectation.copy(update={"id": None}), result_format=whole).result
            keys = [str(row[_KEY]) for row in found.get("unexpected_index_list") or ()]
        if not keys:
            return broken(check, f"the rows at fault cannot be told by {_KEY}")
        return replace(check, failing=tuple(sorted(set(keys))))

    def write_docs(self) -> Path:
        """I/O: writes the pages of everything checked so far into the folder; the index page is returned. Older pages stay."""
        self._context.build_data_docs(site_names=[_SITE])
        return self._docs_dir / "index.html"


def _build(suite: Suite, number: int, expectation: Expectation) -> GxExpectation:
    try:
        built: GxExpectation = get_expectation_impl(expectation.type)(**expectation.arguments)
    except ValueError as error:  # pydantic's ValidationError is one
        details = error.errors() if hasattr(error, "errors") else []
        why = ", ".join(dict.fromkeys(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in details)) or str(error)
        raise ConfigurationError(
            f"{suite.file}: expectations, {number} ({expectation.type}): {why.replace('__root__: ', '')}", next_step="correct the file"
        ) from None
    return built


def _check(suite: Suite, expectation: Expectation, result: ExpectationValidationResult) -> Check:
    raised = _exception(result.exception_info)
    if raised is not None:
        return checked(suite, expectation, "error", {"error": raised})
    observed = {key: value for key, value in (result.result or {}).items() if key not in _LEFT_OUT}
    count = observed.get("unexpected_count")
    if count is None and isinstance(observed.get("observed_value"), int) and expectation.type == _OWN_SQL:
        count = observed["observed_value"]
    at_fault = (result.result or {}).get("partial_unexpected_index_list") or observed.get("details", {}).get("unexpected_rows") or ()
    if rows := [row[_KEY] for row in at_fault if isinstance(row, Mapping) and _KEY in row]:
        observed["rows"] = rows
    return checked(suite, expectation, "passed" if result.success else "failed", observed, None if count is None else int(count))


def _keys_of_query(query: str, rows: DataFrame) -> list[str]:
    view = f"strandline_checked_{uuid.uuid4().hex}"
    rows.createTempView(view)
    try:
        found = rows.sparkSession.sql(query.replace("{batch}", view))
        return [str(row[_KEY]) for row in found.select(_KEY).collect()] if _KEY in found.columns else []
    finally:
        rows.sparkSession.catalog.dropTempView(view)


def _exception(info: Mapping[str, Any] | None) -> str | None:
    """The first line of what broke. The library gives one exception, or one for each of its metrics."""
    entries: Sequence[Any] = [info, *(info or {}).values()]
    for entry in entries:
        if isinstance(entry, Mapping) and entry.get("raised_exception"):
            lines = str(entry.get("exception_message") or "").strip().splitlines()
            return (lines[0] if lines else "the check raised an exception")[:500]
    return None
