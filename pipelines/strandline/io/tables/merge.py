"""MERGE by Spark, as one SQL statement."""

from __future__ import annotations

from pyspark.sql import DataFrame

from strandline.model.merge_rule import Clause, Merged, MergeRule, assignments
from strandline.model.query import SPARK

_ROWS = {"matched": "MATCHED", "new": "NOT MATCHED", "missing": "NOT MATCHED BY SOURCE"}


def merge(target: str, source: DataFrame, rule: MergeRule, *, among: str = "") -> Merged:
    """I/O: one commit, or none if no clause fits any row.

    This is SQL, because Delta's builder needs a plugin in a Spark Connect server, and Spark's `mergeInto` has no
    alias for the target. Delta refuses two source rows for one target row. A source row without a match is inserted
    each time it occurs.

    Args:
        target: Table name from `Lake.sql`.
        among: Condition on target rows (SQL): files and rows outside it are not read.
    """
    braces = str.maketrans({"{": "{{", "}": "}}"})  # `sql` formats its text, and a name may contain braces
    condition = rule.condition(SPARK) + (f" AND {among}" if among else "")
    head = f"MERGE INTO {target} AS t USING ".translate(braces)
    rest = f" AS s ON {condition} {' '.join(map(_sql, rule.clauses))}".translate(braces)
    (counts,) = source.sparkSession.sql(f"{head}{{source}}{rest}", source=source).collect()
    return Merged.of(counts["num_inserted_rows"], counts["num_updated_rows"], counts["num_deleted_rows"])


def _sql(clause: Clause) -> str:
    values = assignments(clause, SPARK)
    if clause.values is None:
        action = "DELETE"
    elif clause.rows == "new":
        action = f"INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"
    else:
        action = f"UPDATE SET {', '.join(f'{name} = {value}' for name, value in values.items())}"
    when = clause.condition(SPARK)
    return f"WHEN {_ROWS[clause.rows]}{f' AND ({when})' if when else ''} THEN {action}"
