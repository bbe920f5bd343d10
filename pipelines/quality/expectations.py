"""The only importer of great_expectations: suites in, plain results and Data Docs out."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame

from pipelines.errors import ConfigurationError
from pipelines.quality.results import Check
from pipelines.quality.rules import Expectation, Suite

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # why here: it must stand before the import; nothing is ever to be sent

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # why: the library imports sre_constants, which Python has deprecated
        import great_expectations as gx
        from great_expectations.core.expectation_suite import ExpectationSuite
        from great_expectations.core.expectation_validation_result import ExpectationValidationResult
        from great_expectations.core.validation_definition import ValidationDefinition
        from great_expectations.data_context.types.base import ProgressBarsConfig
        from great_expectations.expectations.expectation import Expectation as GxExpectation
        from great_expectations.expectations.registry import get_expectation_impl, list_registered_expectation_implementations
except SystemExit as stopped:
    # why: it imports pyspark.sql.connect, which ends `python -c` with code 0 where grpc is missing
    raise ImportError("great_expectations cannot be imported from `python -c`; run a file or a module") from stopped

_SITE = "strandline"
_OURS = ("id", "batch_id", "rendered_content", "result_format", "catch_exceptions", "windows")  # set by the adapter or the library


def known_expectations() -> dict[str, tuple[str, ...]]:
    """Every expectation of the library, with the names of the arguments that a suite may give."""
    return {
        name: tuple(argument for argument in get_expectation_impl(name).__fields__ if argument not in _OURS)
        for name in list_registered_expectation_implementations()
    }


class Checker:
    """Checks suites with one Great Expectations context; `write_docs` then writes the pages of all of them.

    The context lives in memory, sends nothing, shows no progress bars and never calls ``persist()`` (serverless refuses it).
    """

    def __init__(self, docs_dir: Path) -> None:
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
        """Check *rows* against *suite*, one result per expectation, in the order of the file.

        I/O: runs Spark jobs over *rows* (read once or more per expectation); writes nothing.

        Raises:
            ConfigurationError: An argument has a value that the expectation does not take.
        """
        expectations = [_build(suite, number, item) for number, item in enumerate(suite.expectations, start=1)]
        asset = self._source.add_dataframe_asset(suite.name)
        batch = asset.add_batch_definition_whole_dataframe(str(suite.table))
        held = self._context.suites.add(ExpectationSuite(name=suite.name, expectations=expectations))
        definition = self._context.validation_definitions.add(ValidationDefinition(name=suite.name, data=batch, suite=held))
        checkpoint = self._context.checkpoints.add(
            gx.Checkpoint(name=suite.name, validation_definitions=[definition], result_format={"result_format": "SUMMARY"})
        )
        outcome = checkpoint.run(batch_parameters={"dataframe": rows})
        results = {
            result.expectation_config.id: result
            for validation in outcome.run_results.values()
            for result in validation.results
            if result.expectation_config is not None
        }
        ids = [item.id for item in held.expectations]
        return [_check(suite, item, results[key]) for item, key in zip(suite.expectations, ids, strict=True)]

    def write_docs(self) -> Path:
        """I/O: writes the pages of everything checked so far into the folder; the index page is returned. Older pages stay."""
        self._context.build_data_docs(site_names=[_SITE])
        return self._docs_dir / "index.html"


def broken_suite(suite: Suite, reason: str) -> list[Check]:
    """Results of a suite that could not be run at all (its table is missing, its condition is refused)."""
    return [_result(suite, item, "error", {"error": reason}, None) for item in suite.expectations]


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
    broken = _exception(result.exception_info)
    if broken is not None:
        return _result(suite, expectation, "error", {"error": broken}, None)
    observed = {key: value for key, value in (result.result or {}).items() if key != "partial_unexpected_index_list"}
    count = observed.get("unexpected_count")
    if count is None and isinstance(observed.get("observed_value"), int) and expectation.type == "unexpected_rows_expectation":
        count = observed["observed_value"]
    return _result(suite, expectation, "passed" if result.success else "failed", observed, None if count is None else int(count))


def _result(
    suite: Suite, expectation: Expectation, outcome: Literal["passed", "failed", "error"], observed: Mapping[str, Any], count: int | None
) -> Check:
    return Check(
        table=str(suite.table),
        suite=suite.name,
        expectation=expectation.type,
        column=expectation.column,
        kwargs=_json(expectation.arguments),
        outcome=outcome,
        observed=_json(observed),
        unexpected_count=count,
        on_failure=suite.on_failure,
    )


def _exception(info: Mapping[str, Any] | None) -> str | None:
    """The first line of what broke. The library gives one exception, or one for each of its metrics."""
    entries: Sequence[Any] = [info, *(info or {}).values()]
    for entry in entries:
        if isinstance(entry, Mapping) and entry.get("raised_exception"):
            lines = str(entry.get("exception_message") or "").strip().splitlines()
            return (lines[0] if lines else "the check raised an exception")[:500]
    return None


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), default=str, sort_keys=True, ensure_ascii=False)
