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
from pipelines.jobs.sql import run_sql
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
