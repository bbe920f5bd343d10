# Databricks notebook source
# MAGIC %md
# MAGIC # Bronze: every change, as MongoDB sent it
# MAGIC
# MAGIC What landed, how fast it came, how far it reaches, and whether anything is missing. This notebook reads and shows; it writes nothing.
# MAGIC How to open it on a laptop or on Databricks: [docs/start.md](../docs/start.md#notebooks).

# COMMAND ----------

from dataclasses import asdict

import altair as alt
import pandas as pd

from pipelines.jobs.notebook import open_notebook
from pipelines.jobs.offsets import offset_history
from pipelines.jobs.sql import run_sql
from pipelines.jobs.status import show_offset
from pipelines.model.columns import bronze_table

alt.renderers.enable("png", scale_factor=2)
ctx = open_notebook()
bronze = bronze_table(ctx.settings.source.name)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What landed
# MAGIC
# MAGIC One row per change event, or per document that the snapshot read. The raw BSON stands in `envelope`; `after` and `before` show it as
# MAGIC JSON. Control rows, such as heartbeats and the snapshot's own notes, are left out here.

# COMMAND ----------

operations = run_sql(
    ctx,
    f"""
    SELECT collection,
        CASE op WHEN 'r' THEN 'snapshot read' WHEN 'c' THEN 'insert' WHEN 'u' THEN 'update or replace' ELSE 'delete' END AS operation,
        count(*) AS changes, round(sum(length(envelope)) / 1048576, 2) AS mebibytes
    FROM {bronze}
    WHERE op IN ('c', 'u', 'd', 'r')
    GROUP BY ALL
    ORDER BY collection, operation
    """,
).toPandas()
operations

# COMMAND ----------

alt.Chart(operations, title="Operations by collection", width=520).mark_bar().encode(
    x=alt.X("changes:Q", title="rows in bronze"),
    y=alt.Y("collection:N", title=None, sort="-x"),
    color=alt.Color("operation:N", title=None, sort=["snapshot read", "insert", "update or replace", "delete"]),
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Position
# MAGIC
# MAGIC The token after which the next run goes on stands in bronze itself, in the commit of the events that it ends. A position is the cluster
# MAGIC time in hex and the token: as text it sorts as the stream does.

# COMMAND ----------

pd.Series(asdict(show_offset(ctx)), name="committed").to_frame()

# COMMAND ----------

run_sql(
    ctx,
    f"""
    SELECT collection, min(position) AS first_position, max(position) AS last_position, max(cluster_time) AS newest_change, count(*) AS events
    FROM {bronze}
    WHERE op IN ('c', 'u', 'd')
    GROUP BY collection
    ORDER BY collection
    """,
).toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Lag
# MAGIC
# MAGIC From the write in MongoDB to the moment the writer saw it. What had been written before the capture began waited for it; from then on the
# MAGIC lag shows how well the capture keeps up.

# COMMAND ----------

lag = run_sql(
    ctx,
    f"""
    SELECT batch, max(captured_at) AS captured_at, count(*) AS events,
        round(median(unix_millis(captured_at) - source.wall_time) / 1000, 2) AS median_seconds,
        round(max(unix_millis(captured_at) - source.wall_time) / 1000, 2) AS longest_seconds
    FROM {bronze}
    WHERE op IN ('c', 'u', 'd')
    GROUP BY batch
    ORDER BY batch
    """,
).toPandas()
lag

# COMMAND ----------

alt.Chart(lag, title="Lag of every batch", width=520).mark_circle(opacity=0.7).encode(
    x=alt.X("captured_at:T", title="captured at (UTC)"),
    y=alt.Y("median_seconds:Q", title="median lag in seconds"),
    size=alt.Size("events:Q", title="events"),
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Gaps
# MAGIC
# MAGIC A stretch of history that bronze never got is a row that says from where to where, and why. No row: nothing is missing. Batches are
# MAGIC numbered without a hole.

# COMMAND ----------

run_sql(
    ctx,
    f"""
    SELECT batch, captured_at, operation_type AS kind, get_json_object(after, '$.after') AS after_position,
        get_json_object(after, '$.before') AS before_position,
        coalesce(get_json_object(after, '$.why'), get_json_object(after, '$.reason')) AS why
    FROM {bronze}
    WHERE op = 'gap'
    ORDER BY batch
    """,
).toPandas()

# COMMAND ----------

run_sql(ctx, f"SELECT count(DISTINCT batch) AS batches, max(batch) - min(batch) + 1 AS expected FROM {bronze}").toPandas()

# COMMAND ----------

pd.DataFrame([asdict(ended) for ended in offset_history(ctx, 10)])

# COMMAND ----------

# MAGIC %md
# MAGIC ## One document's life
# MAGIC
# MAGIC Its changes in the order of the stream; here those of the document that changed most often.

# COMMAND ----------

run_sql(
    ctx,
    f"""
    WITH busiest AS (
        SELECT collection, key FROM {bronze} WHERE op IN ('c', 'u', 'd', 'r') GROUP BY ALL ORDER BY count(*) DESC, key LIMIT 1
    )
    SELECT position, op, operation_type, cluster_time, after
    FROM {bronze} JOIN busiest USING (collection, key)
    WHERE op IN ('c', 'u', 'd', 'r')
    ORDER BY position
    """,
).toPandas()
