# Databricks notebook source
# MAGIC %md
# MAGIC # Bronze: every change, as MongoDB sent it
# MAGIC
# MAGIC Captured events, their lag, the present position, and gaps. This notebook only reads.
# MAGIC How to open it on a laptop or on Databricks: [docs/start.md](../docs/start.md#notebooks).

# COMMAND ----------

from dataclasses import asdict

import altair as alt
import pandas as pd

import strandline

alt.renderers.enable("png", scale_factor=2)
lakehouse = strandline.connect()
bronze = lakehouse.bronze

# COMMAND ----------

# MAGIC %md
# MAGIC ## Captured events
# MAGIC
# MAGIC One row per change event, or per document that a snapshot read. `envelope` holds the raw BSON. `after` and
# MAGIC `before` show it as JSON. This query leaves out control rows, such as heartbeats and notes of snapshots.

# COMMAND ----------

operations = lakehouse.sql(
    f"""
    SELECT collection,
        CASE op WHEN 'r' THEN 'snapshot read' WHEN 'c' THEN 'insert' WHEN 'u' THEN 'update or replace' ELSE 'delete' END AS operation,
        instr('rcud', op) AS place, count(*) AS changes, round(sum(length(envelope)) / 1048576, 2) AS mebibytes
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
    order=alt.Order("place:Q"),
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Position
# MAGIC
# MAGIC Bronze itself holds the resume token from which the next run continues. Token and events are one commit. A
# MAGIC position is the cluster time in hex, followed by the token. As text, positions sort in the order of the
# MAGIC stream.

# COMMAND ----------

pd.Series(asdict(lakehouse.offsets()), name="committed").to_frame()

# COMMAND ----------

lakehouse.sql(
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
# MAGIC Lag is the time from the write in MongoDB to its capture. Events from before the start of capture have a large
# MAGIC lag, because they waited. After that, the lag shows whether capture is fast enough.

# COMMAND ----------

lag = lakehouse.sql(
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
# MAGIC A gap is a range of events that bronze never got. Each gap is a row with both ends and the reason. Without a
# MAGIC row, nothing is missing. Batch numbers have no holes.

# COMMAND ----------

lakehouse.sql(
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

lakehouse.sql(f"SELECT count(DISTINCT batch) AS batches, max(batch) - min(batch) + 1 AS expected FROM {bronze}").toPandas()

# COMMAND ----------

pd.DataFrame([asdict(end) for end in lakehouse.offset_history(10)])

# COMMAND ----------

# MAGIC %md
# MAGIC ## The changes of one document
# MAGIC
# MAGIC All changes of one document, in the order of the stream. The query takes the document with the most changes.

# COMMAND ----------

lakehouse.sql(
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
