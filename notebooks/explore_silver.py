# Databricks notebook source
# MAGIC %md
# MAGIC # Silver: one typed row per document
# MAGIC
# MAGIC The collections as they are, with the types that their documents have. This notebook reads and shows; it writes nothing.
# MAGIC How to open it on a laptop or on Databricks: [docs/start.md](../docs/start.md#notebooks).

# COMMAND ----------

from dataclasses import asdict

import altair as alt
import pandas as pd

from pipelines.jobs.notebook import open_notebook
from pipelines.jobs.sql import run_sql, versions
from pipelines.jobs.status import silver_columns, silver_status

alt.renderers.enable("png", scale_factor=2)
ctx = open_notebook()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Tables
# MAGIC
# MAGIC A deleted document stays as a tombstone. `rescued` counts rows with a value that did not fit its column, `waiting` those whose newest
# MAGIC update came without the document that it changes.

# COMMAND ----------

tables = pd.DataFrame([asdict(status) | {"table": str(status.table)} for status in silver_status(ctx)])
tables

# COMMAND ----------

alt.Chart(tables, title="Documents by table", width=520).transform_fold(["live", "tombstones"], as_=["kind", "rows"]).mark_bar().encode(
    x=alt.X("rows:Q", title="rows"),
    y=alt.Y("table:N", title=None, sort="-x", axis=alt.Axis(labelLimit=260)),
    color=alt.Color("kind:N", title=None),
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Types
# MAGIC
# MAGIC Every column that the documents brought, embedded documents and arrays as they are. A field whose values have several types is VARIANT,
# MAGIC or keeps the first type and rescues the others.

# COMMAND ----------

pd.DataFrame([asdict(column) | {"table": str(column.table)} for column in silver_columns(ctx)])

# COMMAND ----------

# MAGIC %md
# MAGIC ## When the types changed
# MAGIC
# MAGIC One row for each new column and each that became wider, with the version of bronze that brought the first such value. Here the newest.

# COMMAND ----------

run_sql(ctx, "SELECT * FROM control.schema_changes ORDER BY at DESC LIMIT 20").toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Values that did not fit
# MAGIC
# MAGIC `_rescued` keeps them by path, so no value is lost when a field's type is not what it was. Name the table that you look for.

# COMMAND ----------

table = "silver.flights"

# COMMAND ----------

run_sql(
    ctx,
    f"""
    SELECT path, count(*) AS documents
    FROM (SELECT explode(json_object_keys(to_json(_rescued))) AS path FROM {table} WHERE _rescued IS NOT NULL)
    GROUP BY path
    ORDER BY documents DESC
    """,
).toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Rows
# MAGIC
# MAGIC Bookkeeping columns begin with an underscore: where in the stream the row stands, what the newest change was, whether the document is
# MAGIC exactly the one of that moment. `_document` is the whole document as raw BSON.

# COMMAND ----------

run_sql(ctx, f"SELECT * FROM {table} ORDER BY _position DESC LIMIT 3").toPandas().T

# COMMAND ----------

# MAGIC %md
# MAGIC Fields of embedded documents are reached by a dot, elements of arrays by their number.

# COMMAND ----------

run_sql(
    ctx,
    """
    SELECT _id, carrier, origin, dest, status, scheduled.departure AS scheduled_departure, delay.arrival AS arrival_delay,
        size(events) AS events
    FROM silver.flights
    WHERE NOT _deleted
    ORDER BY delay.arrival DESC NULLS LAST
    LIMIT 10
    """,
).toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## As it was
# MAGIC
# MAGIC `silver.history: scd2` keeps every version of every document in `silver.<table>_history` ([docs/history.md](../docs/history.md)); for the
# MAGIC demo's lake: `STRANDLINE_SILVER__HISTORY=scd2 make demo`. A table without a history knows one version of each document, the present
# MAGIC one. Here what was in force half-way between the first and the last change.

# COMMAND ----------

history = versions(ctx, table)
span = history.where("_op <> 'b'").selectExpr("unix_micros(min(_valid_from)) AS first", "unix_micros(max(_valid_from)) AS last")
moments = span.selectExpr("explode(sequence(0, 20)) AS step", "first", "last").selectExpr(
    "step", "timestamp_micros(first + step * (last - first) div 20) AS moment"
)
as_it_was = moments.crossJoin(history).where("_valid_from <= moment AND (_valid_to IS NULL OR _valid_to > moment) AND NOT _deleted")

as_it_was.where("step = 10").selectExpr(
    "moment", "_id", "status", "delay.departure AS departure_delay", "_valid_from", "_valid_to"
).orderBy("_valid_from", "_id", ascending=[False, True]).limit(10).toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC The same at twenty moments: how many flights there were, by status.

# COMMAND ----------

flights = as_it_was.groupBy("step", "moment", "status").count().toPandas()

alt.Chart(flights, title="Flights by status, as of each moment", width=520).mark_area().encode(
    x=alt.X("moment:T", title="moment of the source (UTC)"),
    y=alt.Y("count:Q", title="flights"),
    color=alt.Color("status:N", title=None),
)
