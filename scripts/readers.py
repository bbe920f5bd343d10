"""Generate docs/readers.md from tests/readers.yml: what each reader of Delta reads of a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parent.parent
_HEAD: Final = """# Which reader reads which table

Every table of a lake is a Delta table. A reader must know the Delta features of a table. This page lists which reader
reads which table. Each cell is the result of a test. (For contributors: `make test` tries the readers without Spark,
`make places` those with Spark, and `make docs` generates this page.)

In a lake by path (`lake.root`) a table is a folder: `<lake.root>/<layer>/<name>`, for example `lake/silver/orders`. The
layers are `bronze`, `silver`, `gold` and `control` (what Strandline itself remembers). In a catalog, tables have
[names](catalogs.md).

A new silver table is *portable*: it uses no feature that a reader must know, unless a field name needs column mapping
(see below). A *native* table (`silver.compatibility: native`) uses VARIANT, type widening, deletion vectors and column
mapping. A table of an older release is native until it is rebuilt. The table property `strandline.compatibility` names
the kind; a table without it is native. The history of a table has the features that its table had when the history was
created: the column `history` is about a portable one. Spark 4.1 or newer with Delta 4.4 reads both kinds (the matrix
was tried with 4.2).
[Portable and native tables](columns.md#portable-and-native-tables) shows the differences.

"""
_READ: Final = ("reads", "wrong rows")
_SPARK: Final = """
These sessions have Spark and Delta, and nothing of Strandline. With Spark 4.0, Strandline itself uses
[a newer Delta](spark-versions.md).

`table` is `spark.read.format("delta").load(path)`, every column of every row. `change feed` has the option
`readChangeFeed` from version 0, and `an older version` has `versionAsOf`. A [rebuild](change-feed.md#after-a-rebuild)
ends the change feed of a table.

Delta's extension is two settings of a session: `spark.sql.extensions` is `io.delta.sql.DeltaSparkSessionExtension`, and
`spark.sql.catalog.spark_catalog` is `org.apache.spark.sql.delta.catalog.DeltaCatalog`. Its check is
`spark.databricks.delta.requiredSparkConfsCheck.enabled`. 

**Wrong rows, with no error.** Spark 4.2 without the extension and without the check ignores deletion vectors: of a
native table it also returns rows that were deleted or replaced. pyarrow ignores everything but the files: columns of a
native table, and columns of one with column mapping, have internal names such as `col-3f1c…`. Rows of a native table
that were deleted or replaced are there, too."""
_RECIPES: Final = """
## Live documents

A deleted document stays in silver as a tombstone, so queries need the condition `NOT _deleted`. Silver tables also have
bookkeeping columns, whose names begin with an underscore. `strandline.read` leaves out both, except `_key`, which
identifies the document, and `_rescued`, which has the values that do not fit their columns. `strandline` is the Python
package of Strandline. `make setup` installs it with polars and DuckDB. Elsewhere, install the wheel, and
`pip install polars duckdb`.

```python
from strandline import read

read("orders")                                        # a pyarrow.Table of silver.orders in the folder `lake`
read("orders", using="polars").head(10).collect()     # a polars LazyFrame
read("orders", using="duckdb").aggregate("count(*)")  # a DuckDB relation
read("gold.sales", root="s3://bucket/lake")           # another layer, another lake
```

`read("orders", everything=True)` also gives tombstones and all bookkeeping columns. For an object store,
`storage_options` holds delta-rs's options, such as credentials.

In a catalog with views, each silver table has a view of its live documents, with the columns that `read` gives:
`silver.orders_live`.
A silver run creates it when it first merges the table. New columns appear in the view, too. If another table
or view has this name already, Strandline leaves it and creates no view. If a collection called `orders_live` comes
later, its table replaces the view. `silver.live_views: false` switches the views off. In SQL files of gold, name the
table (`silver.orders`), not the view.

A row in [quarantine](../conf/quality/README.md) is a row that failed a quality check. It is in the silver table, in
`read("orders")` and in the live view. Only gold leaves it out.

## Gold views

A lake in a folder or in S3 stores no views. So `strandline gold` writes two SQL files for each view, with the paths of
the tables: `gold/_views/<name>.spark.sql` and `gold/_views/<name>.duckdb.sql` in the lake.

```python
from pathlib import Path

spark.sql(Path("lake/gold/_views/late.spark.sql").read_text())   # the temporary view `late`
read("gold.late", using="duckdb")                                # as a table; DuckDB computes it
```

In DuckDB itself, `.read lake/gold/_views/late.duckdb.sql` creates the view `gold.late`. This needs DuckDB's extension
`delta`. `strandline.read` needs no extension, but it reads views of a lake in a folder only. Of a lake in S3, download
the SQL file.

- A view shows the newest version of its tables, without the rows in quarantine. If you move the lake, run
  `strandline gold` again.
- The DuckDB file sets the time zone to UTC, as Spark has it here.
- There is a DuckDB file only if DuckDB gives the same values as Spark. A view may use selection, joins, UNION, WITH,
  subqueries, GROUP BY and ORDER BY by columns; comparisons of values of one type; `+`, `-` and `*` of integers and
  doubles; `count`, `count_if`, `sum`, `avg`, `min`, `max`, FILTER; `CASE WHEN`, `if`, `coalesce`; `LIKE` without a
  backslash, `||`; `year`, `quarter`, `month`, `to_date`, and `date_trunc` of a timestamp, but not to the week. A test
  compares each of these in both engines. Every computed column needs a name (`AS`).
- Any other view is for Spark only: most functions on text, casts to and from text, divisions, rounding, time travel.
  The build logs the part that stands in the way, and `read` names it, too. Read the view with `strandline sql` or its
  file for Spark, or use `materialized: table`, whose rows every reader gets.
- The sum of DOUBLE values may differ in its last digit, as between two queries of Spark.

## dbt

`strandline export dbt-sources` prints the silver and gold tables as sources of a dbt project, with columns, Spark types
and comments. Write them to `models/sources.yml`. A model names a table by its layer:

```sql
SELECT count(*) FROM {{ source("silver", "orders") }} WHERE NOT _deleted
```

- In a lake by path the file is for dbt-duckdb. `--reader delta_scan`, the default, needs DuckDB's extension `delta`;
  `--reader plugin` needs `plugins: [{module: delta}]` in the profile and the package deltalake. Native tables cannot be
  read.
- In a catalog each source has its `database` and `schema`, for dbt-databricks and dbt-spark. It lists live views, too.

Seen with dbt-core 1.11.16, dbt-duckdb 1.11.1, DuckDB 1.5.5 and its extension `delta`, in both ways, on tables with
Strandline's columns that delta-rs wrote. `delta_scan` has not been tried on tables that Spark wrote. No test has run
dbt-databricks or dbt-spark.

## Iceberg

Delta's UniForm cannot be used here. pyiceberg can register the files of one version of a portable table without copying
them. The code is in [decision 63](decisions/0063-open-for-people-and-tools.md).

## Column mapping

Delta cannot store a column name with a space or one of `,;{}()=` as it is. If a field has such a name, its portable
table gets Delta's column mapping, and the log names the field. Of the readers above without Spark, only
`strandline.read` reads such a table. `silver.field_name_adjustment_mode: avro_unicode` gives such fields another
name: `unit price` becomes `unit_u0020price`. A table that exists changes with `strandline stop`,
`strandline rebuild silver.orders` and `strandline start`. A rebuild
[ends the queries that follow its changes](change-feed.md#after-a-rebuild).

## Not tested

Trino, Athena, Snowflake, Power BI, and Databricks.

With pyarrow, read the files that the Delta log names (`file_uris()`), never the folder: the folder also has files that
are no longer part of the table.
"""


def readers_page() -> str:
    """Return the text of docs/readers.md."""
    matrix: dict[str, Any] = yaml.safe_load((ROOT / "tests" / "readers.yml").read_text(encoding="utf-8"))
    rows = [(f"{one['name']} | `{one['how']}`", one["name"], one["cells"]) for one in matrix["readers"]]
    versions = ", ".join(f"{name} {number}" for name, number in matrix["versions"].items())
    seen = f"Seen on {matrix['seen']} with {versions}. DuckDB reads through deltalake's Arrow dataset."
    spark = matrix["spark"]
    of_spark = [
        (f"{one['name']} | {call}", f"{one['name']}, {call}", cells)
        for one in spark["sessions"]
        for call, cells in one["cells"].items()
    ]
    numbers = (one["versions"] for one in spark["sessions"])
    pairs = dict.fromkeys(f"PySpark {each['pyspark']} with Delta {each['delta-spark']}" for each in numbers)
    lines = [
        *_table("reader | call", rows),
        "",
        seen,
        "",
        *_table("reader | what it reads", of_spark),
        "",
        f"Seen on {spark['seen']}: {', '.join(pairs)}.",
        _SPARK,
        "",
        "## What a refusal says",
        "",
        "| reader | table | the error contains |",
        "|---|---|---|",
        *_refusals(rows + of_spark),
    ]
    return _HEAD + "\n".join(lines) + "\n" + _RECIPES


def _table(head: str, rows: list[tuple[str, str, dict[str, str]]]) -> list[str]:
    """Return the lines of a table: a row for each reader, a column for each table of the lake."""
    tables = list(rows[0][2])
    return [
        f"| {head} | {' | '.join(tables)} |",
        f"|---|---|{'---|' * len(tables)}",
        *(
            f"| {first} | "
            + " | ".join(cells[table] if cells[table] in _READ else "refuses" for table in tables)
            + " |"
            for first, _, cells in rows
        ),
    ]


def _refusals(rows: list[tuple[str, str, dict[str, str]]]) -> list[str]:
    """Return a line for each refusal, and one for a reader that refuses every table in the same way."""
    lines = []
    for _, name, cells in rows:
        kinds = set(cells.values())
        refused = dict.fromkeys(["every table"], *kinds) if len(kinds) == 1 else cells
        lines += [f"| {name} | {table} | `{said}` |" for table, said in refused.items() if said not in _READ]
    return lines
