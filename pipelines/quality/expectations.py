"""The adapter to Great Expectations: suites in, plain results and Data Docs out. `data_docs` alone imports the library beside it."""

from __future__ import annotations

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
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # why: the library imports sre_constants, which Python has deprecated
        import great_expectations as gx
        from great_expectations.core.expectation_suite import ExpectationSuite
        from great_expectations.core.expectation_validation_result import ExpectationValidationResult
        from great_expectations.core.validation_definition import ValidationDefinition
        from great_expectations.data_context.types.base import ProgressBarsConfig
        from great_expectations.expectations.expectation import (
            ColumnMapExpectation,
            ColumnPairMapExpectation,
            MulticolumnMapExpectation,
        )
        from great_expectations.expectations.expectation import Expectation as GxExpectation
        from great_expectations.expectations.registry import (
            get_expectation_impl,
            list_registered_expectation_implementations,
        )

        from pipelines.quality.data_docs import site_config
except SystemExit as stopped:
    # why: it imports pyspark.sql.connect, which ends `python -c` with code 0 where grpc is missing
    raise ImportError("great_expectations cannot be imported from `python -c`; run a file or a module") from stopped

for _name in (
    "great_expectations",
    "great_expectations.data_context.types.base",
):  # the second one has a level of its own
    logging.getLogger(_name).setLevel(logging.WARNING)

_SITE = "strandline"
_KEY = "_key"
_OWN_SQL = "unexpected_rows_expectation"
_SHOWN = 20  # values and rows that are kept of a result, as the library does by itself
_LEFT_OUT = ("partial_unexpected_index_list", "unexpected_index_column_names", "unexpected_index_query")
_OURS = (
    "id",
    "batch_id",
    "rendered_content",
    "result_format",
    "catch_exceptions",
    "windows",
)  # set by the adapter or the library


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
_JUDGE_TYPES = (
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_be_in_type_list",
)  # of the column, in Spark


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
        self._context.add_data_docs_site(site_name=_SITE, site_config=site_config(self._docs_dir))
        self._source = self._context.data_sources.add_spark("lake", persist=False)

    def check(self, suite: Suite, rows: DataFrame) -> list[Check]:
        """Check *rows* against the expectations of *suite* that are the library's, one result for each, in the order of the file.

        I/O: runs Spark jobs over *rows* (read once or more per expectation); writes nothing.

        Raises:
            ConfigurationError: An argument has a value that the expectation does not take.
        """
        numbered = [
            (number, item) for number, item in enumerate(suite.expectations, start=1) if item.type not in TABLE_KINDS
        ]
        expectations = [_build(suite, number, item) for number, item in numbered]
        if not expectations:
            return []
        asset = self._source.add_dataframe_asset(suite.name)
        batch = asset.add_batch_definition_whole_dataframe(str(suite.table))
        held = self._context.suites.add(ExpectationSuite(name=suite.name, expectations=expectations))
        definition = self._context.validation_definitions.add(
            ValidationDefinition(name=suite.name, data=batch, suite=held)
        )
        # First only counts, in few jobs. Which rows are at fault costs some jobs for each expectation, and is asked where there are any.
        results = self._validated(suite, definition, rows, {"partial_unexpected_count": 0})
        if not all(result.success for result in results.values()):
            named = {"unexpected_index_column_names": [_KEY]} if _KEY in rows.columns else {}
            most = self._most_failing if suite.on_failure == "quarantine" else _SHOWN
            results = self._validated(suite, definition, rows, {"partial_unexpected_count": most, **named})
        pairs = [(item, results[built.id]) for (_, item), built in zip(numbered, held.expectations, strict=True)]
        return [self._check(suite, item, result, rows) for item, result in pairs]

    def _validated(
        self, suite: Suite, definition: ValidationDefinition, rows: DataFrame, wanted: Mapping[str, object]
    ) -> dict[str | None, ExpectationValidationResult]:
        """One run of the library's, by the expectations' ids; it shows on the pages."""
        checkpoint = gx.Checkpoint(
            name=f"{suite.name} {uuid.uuid4().hex}",
            validation_definitions=[definition],
            result_format={"result_format": "SUMMARY", **wanted},
        )
        outcome = self._context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": rows})
        return {
            result.expectation_config.id: result
            for validation in outcome.run_results.values()
            for result in validation.results
            if result.expectation_config is not None
        }

    def _check(
        self, suite: Suite, expectation: Expectation, result: ExpectationValidationResult, rows: DataFrame
    ) -> Check:
        raised = _exception(result.exception_info)
        if raised is not None:
            return checked(suite, expectation, "error", {"error": raised})
        seen = dict(result.result or {})
        own_sql = expectation.type == _OWN_SQL
        count: int | None = seen.get("observed_value" if own_sql else "unexpected_count")
        if result.success:
            return checked(suite, expectation, "passed", _observed(seen, ()), count)
        if own_sql:
            keys = _keys_of_query(str(expectation.arguments["unexpected_rows_query"]), rows, self._most_failing)
        else:
            keys = [row[_KEY] for row in seen.get("partial_unexpected_index_list") or () if _KEY in row]
        check = checked(suite, expectation, "failed", _observed(seen, keys), count)
        if suite.on_failure != "quarantine":
            return check
        if (count or 0) > self._most_failing:
            return broken(
                check,
                f"{count:,} rows fail, more than quality.max_quarantined_rows; is it the rows or the expectation?",
            )
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
        why = ", ".join(dict.fromkeys(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in details)) or str(
            error
        )
        raise ConfigurationError(
            f"{suite.file}: expectations, {number} ({expectation.type}): {why.replace('__root__: ', '')}",
            next_step="correct the file",
        ) from None
    return built


def _observed(seen: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """What is kept of a result: no list longer than what a person reads."""
    kept = {
        name: value[:_SHOWN] if isinstance(value, list) else value
        for name, value in seen.items()
        if name not in _LEFT_OUT
    }
    return {**kept, "rows": list(keys[:_SHOWN])} if keys else kept


def _keys_of_query(query: str, rows: DataFrame, most: int) -> list[str]:
    """The keys of what a user's query finds; none, where it does not show them."""
    view = f"strandline_checked_{uuid.uuid4().hex}"
    rows.createTempView(view)
    try:
        found = rows.sparkSession.sql(query.replace("{batch}", view))
        return [str(row[_KEY]) for row in found.select(_KEY).limit(most).collect()] if _KEY in found.columns else []
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
