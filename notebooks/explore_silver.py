# Databricks notebook source
# MAGIC %md
# MAGIC # Silver: one typed row per document
# MAGIC
# MAGIC The present documents of each collection, in typed columns. This notebook only reads.
# MAGIC How to open it on a laptop or on Databricks: [docs/start.md](../docs/start.md#notebooks).

# COMMAND ----------

from dataclasses import asdict

import altair as alt
import pandas as pd

import strandline

alt.renderers.enable("png", scale_factor=2)
lakehouse = strandline.connect()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Tables
# MAGIC
# MAGIC A deleted document stays as a tombstone. `rescued` counts rows with a value that did not fit its column.
# MAGIC `waiting` counts rows whose newest update came without its document.

# COMMAND ----------

tables = pd.DataFrame([asdict(row) | {"table": str(row.table)} for row in lakehouse.status().tables])
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
# MAGIC Every field of the documents is a column. Embedded documents are structs, and arrays stay arrays. If the
# MAGIC values of a field have several types, its column is VARIANT, or it keeps the first type and the other values
# MAGIC go to `_rescued`.

# COMMAND ----------

pd.DataFrame([asdict(column) | {"table": str(column.table)} for column in lakehouse.columns()])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Arrays as tables
# MAGIC
# MAGIC `silver.children` gives an array a table of its own, with one row for each element
# MAGIC ([docs/children.md](../docs/children.md)). In the demo it is `events` of the flights: a departure and an arrival each.

# COMMAND ----------

lakehouse.sql(
    """SELECT type, count(*) AS events, count(DISTINCT _key) AS flights, min(at) AS first, max(at) AS last
    FROM silver.flight_events WHERE NOT _deleted GROUP BY type ORDER BY type"""
).toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## When the types changed
# MAGIC
# MAGIC One row for each new column and each column with a wider type, with the version of bronze that had the first
# MAGIC such value. The newest rows come first.

# COMMAND ----------

lakehouse.sql("SELECT * FROM control.schema_changes ORDER BY at DESC LIMIT 20").toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Values that did not fit
# MAGIC
# MAGIC `_rescued` keeps such values by path, so a new type of a field loses no value. Put the name of your table into
# MAGIC the query.

# COMMAND ----------

table = "silver.flights"

# COMMAND ----------

lakehouse.sql(
    f"""
    SELECT path, count(*) AS documents
    FROM (SELECT explode(json_object_keys(string(_rescued))) AS path FROM {table} WHERE _rescued IS NOT NULL)
    GROUP BY path
    ORDER BY documents DESC
    """,
).toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Rows
# MAGIC
# MAGIC Bookkeeping columns begin with an underscore: the row's position in the stream, its newest change, whether the
# MAGIC document is exact. `_document` is the whole document as raw BSON.

# COMMAND ----------

lakehouse.sql(f"SELECT * FROM {table} ORDER BY _position DESC LIMIT 3").toPandas().T

# COMMAND ----------

# MAGIC %md
# MAGIC Use a dot for a field of an embedded document, and a number for an element of an array.

# COMMAND ----------

lakehouse.sql(
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
# MAGIC ## An earlier time
# MAGIC
# MAGIC `silver.history: scd2` keeps every version of every document in `silver.<table>_history`
# MAGIC ([docs/history.md](../docs/history.md)). For the demo: `STRANDLINE_SILVER__HISTORY=scd2 make demo`. A table
# MAGIC without a history has only the present version of each document. This query shows the versions that were valid
# MAGIC half-way between the first and the last change.

# COMMAND ----------

history = lakehouse.versions(table)
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
# MAGIC The number of flights by status, at twenty moments. Each status has a scale of its own.

# COMMAND ----------

flights = as_it_was.groupBy("step", "moment", "status").count().toPandas()

alt.Chart(flights, title="Flights by status, as of each moment", width=520, height=70).mark_line(interpolate="step-after").encode(
    x=alt.X("moment:T", title="moment of the source (UTC)", axis=alt.Axis(tickCount=5)),
    y=alt.Y("count:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=3)),
    row=alt.Row("status:N", title=None),
    color=alt.Color("status:N", legend=None),
).resolve_scale(y="independent")
