"""Session settings on which the meaning of SQL and the results depend.

A cluster, a notebook or `spark-defaults.conf` may change them. One wrong setting writes other keys than silver has, and
a MERGE that finds no key inserts a second row. Almost all values are the defaults of Spark and Delta.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql.conf import RuntimeConfig

from strandline.errors import ConfigurationError

_log = logging.getLogger("strandline.session")
_FALSE, _TRUE = "false", "true"
_LEGACY = "spark.sql.legacy."
_DELTA = "spark.databricks.delta."


def _with_reason(reason: str, **groups: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    return {key: (value, reason) for value, keys in groups.items() for key in keys}


# Setting → required value, and the damage that another value would do.
PINNED: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({
    "spark.sql.session.timeZone": ("UTC", "a document's instant must not depend on where the process runs"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", "a column of type TIMESTAMP would hold times without a zone"),
    "spark.sql.caseSensitive": (_FALSE, "silver names columns so that they differ in more than their case"),
    "spark.sql.storeAssignmentPolicy": ("ANSI", "a value that does not fit its column would be cut without an error"),
    "spark.sql.ansi.enabled": (_TRUE, "a number that overflows would become another number without an error"),
    "spark.sql.mapKeyDedupPolicy": ("EXCEPTION", "of two entries with one key, one would be lost"),
    "spark.sql.jsonGenerator.ignoreNullFields": (_TRUE, "a quarantined row would be written in another form"),
    "spark.sql.timeTravelVersionKey": ("versionAsOf", "a table read at a version would be read at its newest"),
    "spark.sql.crossJoin.enabled": (_TRUE, "views that join without a condition would fail"),
    **_with_reason(
        "SQL text would be read in another way: a key that is written into a statement would be another key",
        false=(
            "spark.sql.parser.escapedStringLiterals",
            "spark.sql.parser.quotedRegexColumnNames",
            "spark.sql.ansi.doubleQuotedIdentifiers",
            "spark.sql.ansi.enforceReservedKeywords",
            "spark.sql.ansi.relationPrecedence",
            "spark.sql.variable.substitute",  # default true: ${env:X} in a path would be replaced
            f"{_LEGACY}setopsPrecedence.enabled",
            f"{_LEGACY}parser.havingWithoutGroupByAsWhere",
            f"{_LEGACY}exponentLiteralAsDecimal.enabled",
            f"{_LEGACY}consecutiveStringLiterals.enabled",
            f"{_LEGACY}bangEqualsNot",
            f"{_LEGACY}inlineCTEInCommands",
            f"{_LEGACY}interval.enabled",
            f"{_LEGACY}duplicateBetweenInput",
        ),
        true=(
            "spark.sql.groupByOrdinal",
            "spark.sql.orderByOrdinal",
            "spark.sql.groupByAliases",
            f"{_LEGACY}literal.pickMinimumPrecision",
        ),
        CORRECTED=(f"{_LEGACY}ctePrecedencePolicy",),
    ),
    **_with_reason(
        "an expression would have another result than on other clusters",
        false=(
            f"{_LEGACY}allowNegativeScaleOfDecimal",
            f"{_LEGACY}decimal.retainFractionDigitsOnTruncate",
            f"{_LEGACY}castComplexTypesToString.enabled",
            f"{_LEGACY}typeCoercion.datetimeToString.enabled",
            f"{_LEGACY}createEmptyCollectionUsingStringType",
            f"{_LEGACY}disableMapKeyNormalization",
            f"{_LEGACY}negativeIndexInArrayInsert",
            f"{_LEGACY}truncateForEmptyRegexSplit",
            f"{_LEGACY}codingErrorAction",
            f"{_LEGACY}javaCharsets",
            f"{_LEGACY}json.allowEmptyString.enabled",
            f"{_LEGACY}allowNullComparisonResultInArraySort",
            f"{_LEGACY}allowHashOnMapType",
            f"{_LEGACY}doLooseUpcast",
            f"{_LEGACY}inSubqueryNullability",
            f"{_LEGACY}scalarSubqueryCountBugBehavior",
            f"{_LEGACY}statisticalAggregate",
            f"{_LEGACY}percentileDiscCalculation",
            f"{_LEGACY}groupingIdWithAppendedUserGroupBy",
            f"{_LEGACY}integerGroupingId",
            f"{_LEGACY}charVarcharAsString",
            "spark.sql.variant.allowDuplicateKeys",
        ),
        true=(
            "spark.sql.decimalOperations.allowPrecisionLoss",
            f"{_LEGACY}followThreeValuedLogicInArrayExists",
        ),
        CORRECTED=(f"{_LEGACY}timeParserPolicy",),
    ),
    **_with_reason(
        "a file that is gone or damaged would be left out without an error",
        false=("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"),
    ),
    **_with_reason(
        "old or fine times would be stored or read as other times, bytes as text",
        CORRECTED=(
            "spark.sql.parquet.datetimeRebaseModeInRead",
            "spark.sql.parquet.datetimeRebaseModeInWrite",
            "spark.sql.parquet.int96RebaseModeInRead",
            "spark.sql.parquet.int96RebaseModeInWrite",
        ),
        TIMESTAMP_MICROS=("spark.sql.parquet.outputTimestampType",),  # INT96 has no statistics, and few readers
        false=(
            "spark.sql.parquet.int96TimestampConversion",
            "spark.sql.parquet.binaryAsString",
            "spark.sql.parquet.writeLegacyFormat",
            f"{_LEGACY}parquet.nanosAsLong",
            f"{_LEGACY}parquet.returnNullStructIfAllFieldsMissing",
        ),
    ),
    **_with_reason(
        "answers of commands, and what reaches Python's functions, would have another form",
        false=(
            f"{_LEGACY}keepCommandOutputSchema",
            f"{_LEGACY}dataFrameWriterV2IgnorePathOption",
            f"{_LEGACY}pathOptionBehavior.enabled",
            f"{_LEGACY}extraOptionsBehavior.enabled",
            f"{_LEGACY}useCurrentConfigsForView",
            f"{_LEGACY}storeAnalyzedPlanForView",
            "spark.sql.execution.arrow.useLargeVarTypes",
        ),
        true=("spark.sql.execution.pyspark.binaryAsBytes",),
    ),
    **_with_reason(
        "a write would change a table's columns, or skip what was to be checked",
        false=(f"{_DELTA}schema.autoMerge.enabled",),
        true=(
            f"{_DELTA}resolveMergeUpdateStructsByName.enabled",
            f"{_DELTA}checkLatestSchemaOnRead",
            f"{_DELTA}schema.typeCheck.enabled",
        ),
        auto=(f"{_DELTA}merge.materializeSource",),
    ),
    f"{_DELTA}stalenessLimit": ("0ms", "an older state of a table would be read"),
    f"{_DELTA}changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled": (
        _FALSE,
        "changes would be read with other columns",
    ),
})  # fmt: skip

# Other values that do no harm. A platform that does not let the setting be changed has one of them.
_HARMLESS: Final[Mapping[str, str]] = MappingProxyType({"spark.sql.parquet.outputTimestampType": "INT96"})

# Settings that must not be set at all, and the damage that they would do.
UNSET: Final[Mapping[str, str]] = MappingProxyType({
    f"{_DELTA}write.txnAppId": "Delta would take every write for a repetition of the first one, and leave it out",
    f"{_DELTA}write.txnVersion": "as write.txnAppId",
    f"{_DELTA}commitInfo.userMetadata": "a commit could not be told from that of another writer",
    f"{_DELTA}properties.defaults.setTransactionRetentionDuration": "a fenced writer could commit again",
    f"{_DELTA}properties.defaults.appendOnly": "silver could not be merged",
    f"{_DELTA}properties.defaults.columnMapping.mode": "the native engine could not write bronze",
})  # fmt: skip


def pinned_values() -> dict[str, str]:
    """Return the settings for a new session."""
    return {key: value for key, (value, _) in PINNED.items()}


@contextmanager
def without_deprecation_warnings() -> Iterator[None]:
    """Hide the warnings of a Spark Connect server about deprecated settings, such as `escapedStringLiterals`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=f"The SQL config '({'|'.join(map(re.escape, PINNED))})'")
        yield


def _is_harmful(key: str, value: str | None, required: str) -> bool:
    return value is not None and value.lower() not in (required.lower(), _HARMLESS.get(key, required).lower())


def _problem(values: Mapping[str, str]) -> str | None:
    """Return the first wrong setting of *values* with the reason. None: all are right."""
    for key, (required, reason) in PINNED.items():
        if _is_harmful(key, value := values.get(key), required):
            return f"{key} is {value}, and must be {required} ({reason})"
    return next((f"{key} must not be set ({reason})" for key, reason in UNSET.items() if key in values), None)


def refuse_own(conf: Mapping[str, str]) -> None:
    """Check the user's ``spark.conf`` before anything starts.

    Raises:
        ConfigurationError: A value would damage tables.
    """
    if (problem := _problem(conf)) is not None:
        raise ConfigurationError(f"spark.conf: {problem}", next_step="remove it from spark.conf")


def set_one_by_one(conf: RuntimeConfig, settings: Mapping[str, str]) -> None:
    """I/O: sets each setting that the session lets be set. `check_session` refuses a session with a harmful value."""
    for key, value in settings.items():
        try:
            conf.set(key, value)
        except PySparkException as error:
            _log.info("this Spark keeps its own %s (%s)", key, error.getCondition())


def check_session(conf: RuntimeConfig) -> None:
    """I/O: checks the settings of a session that was just built or joined with `pinned_values`.

    A platform such as serverless may refuse a change. That does no harm if the setting already has the required value.

    Raises:
        ConfigurationError: A setting has a harmful value and cannot be changed.
    """
    for key in UNSET.keys() & conf.getAll.keys():
        _try_to_unset(conf, key)
    values = conf.getAll
    not_shown = {key: value for key in PINNED.keys() - values.keys() if (value := setting(conf, key)) is not None}
    if (problem := _problem({**values, **not_shown})) is not None:
        raise ConfigurationError(
            f"this Spark does not let a setting be changed: {problem}",
            next_step="have it changed where Spark is configured",
        )


def _try_to_unset(conf: RuntimeConfig, key: str) -> None:
    try:
        conf.unset(key)
    except PySparkException:
        return  # whether it matters is asked afterwards


def setting(conf: RuntimeConfig, key: str) -> str | None:
    """Return the session's value of a setting. None: the session does not have or show it."""
    try:
        return conf.get(key, None)
    except PySparkException:
        return None
