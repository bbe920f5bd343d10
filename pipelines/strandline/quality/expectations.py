"""Adapter to Great Expectations: takes suites, returns plain results and writes Data Docs.

Only this module and `data_docs` import the library.
"""

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

from strandline.errors import ConfigurationError
from strandline.quality.plain_names import PlainNames
from strandline.quality.results import CheckResult, as_error, new_check
from strandline.quality.rules import Expectation, ExpectationKind, Suite
from strandline.quality.table_checks import TABLE_KINDS

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # why here: set before the import, so the library sends no usage data

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # why: the library imports the deprecated sre_constants
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

        from strandline.quality.data_docs import site_config
except SystemExit as stopped:
    # why: it imports pyspark.sql.connect, which ends `python -c` with code 0 where grpc is missing
    raise ImportError("great_expectations cannot be imported from `python -c`; run a file or a module") from stopped

# The second logger has its own level.
for _name in ("great_expectations", "great_expectations.data_context.types.base"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_SITE = "strandline"
_KEY = "_key"
_SQL_EXPECTATION = "unexpected_rows_expectation"
_MAX_SHOWN = 20  # values and rows kept of a result; the default of the library
_OMITTED_FIELDS = ("partial_unexpected_index_list", "unexpected_index_column_names", "unexpected_index_query")
# Arguments set by the adapter or by the library, not by a suite.
_RESERVED_ARGUMENTS = ("id", "batch_id", "rendered_content", "result_format", "catch_exceptions", "windows")
# Map expectations that compare rows with each other. All others check each row on its own.
_ROW_COMPARING_EXPECTATIONS = (
    "expect_column_values_to_be_unique",
    "expect_compound_columns_to_be_unique",
    "expect_column_values_to_be_increasing",
    "expect_column_values_to_be_decreasing",
    "expect_column_value_z_scores_to_be_less_than",
    "expect_column_values_to_not_be_outliers",
    _SQL_EXPECTATION,  # the SQL of a user may compare any rows
)
# Map expectations that check the column type in Spark, not the values.
_COLUMN_TYPE_EXPECTATIONS = ("expect_column_values_to_be_of_type", "expect_column_values_to_be_in_type_list")


def known_expectations() -> dict[str, ExpectationKind]:
    """Return every expectation of Great Expectations by name."""
    return {name: _kind(name, get_expectation_impl(name)) for name in list_registered_expectation_implementations()}


def _kind(name: str, implementation: type[GxExpectation]) -> ExpectationKind:
    arguments = tuple(argument for argument in implementation.__fields__ if argument not in _RESERVED_ARGUMENTS)
    by_row = issubclass(implementation, ColumnMapExpectation | ColumnPairMapExpectation | MulticolumnMapExpectation)
    if name in _ROW_COMPARING_EXPECTATIONS:
        return ExpectationKind(arguments, "rows")
    return ExpectationKind(arguments, "row" if by_row and name not in _COLUMN_TYPE_EXPECTATIONS else "table")


class Checker:
    """Checker of suites in one Great Expectations context. `write_docs` writes the pages of all checked suites.

    The context is in memory, sends no usage data, shows no progress bars and never calls ``persist()``: Databricks
    serverless rejects it.
    """

    def __init__(self, docs_dir: Path, *, max_failing_rows: int = 10_000) -> None:
        """Create the context.

        Args:
            docs_dir: Folder of the Data Docs.
            max_failing_rows: Maximum failing rows per expectation of a quarantine suite. Above it, the check breaks.
        """
        self._max_failing_rows = max_failing_rows
        self._docs_dir = docs_dir.absolute()
        self._context = gx.get_context(mode="ephemeral")
        self._context.enable_analytics(False)
        self._context.variables.progress_bars = ProgressBarsConfig(globally=False)
        self._context.add_data_docs_site(site_name=_SITE, site_config=site_config(self._docs_dir))
        self._source = self._context.data_sources.add_spark("lake", persist=False)

    def check(self, suite: Suite, rows: DataFrame) -> list[CheckResult]:
        """Check *rows* against the Great Expectations part of *suite*; built-in table checks are left out.

        I/O: runs Spark jobs over *rows*, at least one read per expectation; writes nothing.

        Returns:
            One result per checked expectation, in file order.

        Raises:
            ConfigurationError: An expectation rejects the value of an argument.
        """
        numbered = [
            (number, item) for number, item in enumerate(suite.expectations, start=1) if item.type not in TABLE_KINDS
        ]
        names = PlainNames.of(rows, [item for _, item in numbered])
        plain = [(number, item) for number, item in numbered if not names.renames(item)]
        renamed = [(number, item) for number, item in numbered if names.renames(item)]
        checks = self._check_group(suite, suite.name, plain, [item for _, item in plain], rows)
        checks |= self._check_group(
            suite, f"{suite.name} (plain names)", renamed, [names.renamed(item) for _, item in renamed], names.rows
        )
        return [checks[number] for number, _ in numbered]

    def _check_group(
        self,
        suite: Suite,
        name: str,
        numbered: Sequence[tuple[int, Expectation]],
        renamed: Sequence[Expectation],
        rows: DataFrame,
    ) -> dict[int, CheckResult]:
        """Check *numbered* expectations under the *name*. Return the results by number.

        Args:
            renamed: The same expectations with the names of columns in *rows*.
        """
        expectations = [
            _gx_expectation(suite, number, item) for (number, _), item in zip(numbered, renamed, strict=True)
        ]
        if not expectations:
            return {}
        asset = self._source.add_dataframe_asset(name)
        batch = asset.add_batch_definition_whole_dataframe(str(suite.table))
        gx_suite = self._context.suites.add(ExpectationSuite(name=name, expectations=expectations))
        definition = self._context.validation_definitions.add(
            ValidationDefinition(name=name, data=batch, suite=gx_suite)
        )
        # The first run only counts, in few jobs. Finding the failing rows costs several jobs per expectation.
        results = self._run_checkpoint(suite, definition, rows, {"partial_unexpected_count": 0})
        if not all(result.success for result in results.values()):
            key_column = {"unexpected_index_column_names": [_KEY]} if _KEY in rows.columns else {}
            most = self._max_failing_rows if suite.on_failure == "quarantine" else _MAX_SHOWN
            results = self._run_checkpoint(suite, definition, rows, {"partial_unexpected_count": most, **key_column})
        return {
            number: self._to_check(suite, item, results[built.id], rows)
            for (number, item), built in zip(numbered, gx_suite.expectations, strict=True)
        }

    def _run_checkpoint(
        self, suite: Suite, definition: ValidationDefinition, rows: DataFrame, result_format: Mapping[str, object]
    ) -> dict[str | None, ExpectationValidationResult]:
        """Run one checkpoint of the library. Return the results by expectation id. The run appears in the Data Docs."""
        checkpoint = gx.Checkpoint(
            name=f"{suite.name} {uuid.uuid4().hex}",
            validation_definitions=[definition],
            result_format={"result_format": "SUMMARY", **result_format},
        )
        outcome = self._context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": rows})
        return {
            result.expectation_config.id: result
            for validation in outcome.run_results.values()
            for result in validation.results
            if result.expectation_config is not None
        }

    def _to_check(
        self, suite: Suite, expectation: Expectation, result: ExpectationValidationResult, rows: DataFrame
    ) -> CheckResult:
        raised = _exception_text(result.exception_info)
        if raised is not None:
            return new_check(suite, expectation, "error", {"error": raised})
        seen = dict(result.result or {})
        is_sql = expectation.type == _SQL_EXPECTATION
        count: int | None = seen.get("observed_value" if is_sql else "unexpected_count")
        if result.success:
            return new_check(suite, expectation, "passed", _observed(seen, ()), count)
        if is_sql:
            keys = _keys_of_query(str(expectation.arguments["unexpected_rows_query"]), rows, self._max_failing_rows)
        else:
            keys = [row[_KEY] for row in seen.get("partial_unexpected_index_list") or () if _KEY in row]
        check = new_check(suite, expectation, "failed", _observed(seen, keys), count)
        if suite.on_failure != "quarantine":
            return check
        if (count or 0) > self._max_failing_rows:
            return as_error(
                check,
                f"{count:,} rows fail, more than quality.max_quarantined_rows; is it the rows or the expectation?",
            )
        if not keys:
            return as_error(check, f"the rows at fault cannot be told by {_KEY}")
        return replace(check, failing=tuple(sorted(set(keys))))

    def write_docs(self) -> Path:
        """Write the pages of all suites checked so far. Older pages stay.

        I/O: writes the Data Docs folder.

        Returns:
            Path of the index page.
        """
        self._context.build_data_docs(site_names=[_SITE])
        return self._docs_dir / "index.html"


def _gx_expectation(suite: Suite, number: int, expectation: Expectation) -> GxExpectation:
    try:
        built: GxExpectation = get_expectation_impl(expectation.type)(**expectation.arguments)
    except ValueError as error:  # includes ValidationError of pydantic
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
    """Return the part of a result to store. Lists are cut to 20 entries."""
    values = {
        name: value[:_MAX_SHOWN] if isinstance(value, list) else value
        for name, value in seen.items()
        if name not in _OMITTED_FIELDS
    }
    return {**values, "rows": list(keys[:_MAX_SHOWN])} if keys else values


def _keys_of_query(query: str, rows: DataFrame, most: int) -> list[str]:
    """Return the keys of the rows that a user query finds, at most *most*. Empty if it returns no ``_key`` column."""
    view = f"strandline_checked_{uuid.uuid4().hex}"
    rows.createTempView(view)
    try:
        keys = rows.sparkSession.sql(query.replace("{batch}", view))
        return [str(row[_KEY]) for row in keys.select(_KEY).limit(most).collect()] if _KEY in keys.columns else []
    finally:
        rows.sparkSession.catalog.dropTempView(view)


def _exception_text(info: Mapping[str, Any] | None) -> str | None:
    """Return the first line of the exception, or None. The library reports one exception, or one per metric."""
    entries: Sequence[Any] = [info, *(info or {}).values()]
    for entry in entries:
        if isinstance(entry, Mapping) and entry.get("raised_exception"):
            lines = str(entry.get("exception_message") or "").strip().splitlines()
            return (lines[0] if lines else "the check raised an exception")[:500]
    return None
