"""Plain names for columns whose names Great Expectations cannot follow: with a dot, a space, a quote or a back-tick.

The library finds ``due.date`` while it counts, and breaks when it lists the rows that fail. Fields of documents, such
as ``customer.city``, get a plain name for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline.model.tables import quoted
from strandline.quality.rules import Expectation

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ARGUMENTS: Final = ("column", "column_A", "column_B", "column_list")
_OF_TABLES: Final = "expect_table_"
"""Beginning of the names of expectations that compare the list of columns itself."""


@dataclass(frozen=True)
class PlainNames:
    """*rows* have one more column for each entry of *names*: a plain name by the name that a suite uses."""

    rows: DataFrame
    names: Mapping[str, str]

    @staticmethod
    def of(rows: DataFrame, expectations: Sequence[Expectation]) -> PlainNames:
        """Return a plain name for every column of *expectations* that needs one. Reads the schema only."""
        by_small = {name.lower(): name for name in rows.columns}
        names: dict[str, str] = {}
        for used in (name for item in expectations for name in _columns(item)):
            column_name = by_small.get(used.lower()) or by_small.get(_unquoted(used).lower())
            if used in names or (column_name == used and _PLAIN.fullmatch(used)):
                continue
            column = F.col(used if column_name is None else quoted(column_name))
            if column_name is None and not _is_there(rows, column):
                continue  # the library names the missing column
            plain = re.sub(r"\W", "_", _unquoted(used), flags=re.ASCII)
            while plain.lower() in by_small:
                plain += "_"
            by_small[plain.lower()] = plain
            names[used], rows = plain, rows.withColumn(plain, column)
        return PlainNames(rows, names)

    def renames(self, expectation: Expectation) -> bool:
        """Return True if *expectation* uses a column that needs a plain name."""
        return any(name in self.names for name in _columns(expectation))

    def renamed(self, expectation: Expectation) -> Expectation:
        """Return *expectation* with plain names."""
        arguments = {
            key: self._plain(value) if key in _ARGUMENTS else value for key, value in expectation.arguments.items()
        }
        return replace(expectation, arguments=arguments)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.names.get(value, value)
        return [self._plain(item) for item in value] if isinstance(value, list) else value


def _columns(expectation: Expectation) -> list[str]:
    if expectation.type.startswith(_OF_TABLES):
        return []
    values = [expectation.arguments.get(key) for key in _ARGUMENTS]
    return [
        name for value in values for name in (value if isinstance(value, list) else [value]) if isinstance(name, str)
    ]


def _is_there(rows: DataFrame, column: Column) -> bool:
    try:
        _ = rows.select(column).schema  # a session of Spark Connect looks only here
    except (AnalysisException, ParseException):
        return False
    return True


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if len(name) > 2 and name[0] == name[-1] == "`" else name
