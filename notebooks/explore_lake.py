# Databricks notebook source
# MAGIC %md
# MAGIC # What is in the lake
# MAGIC
# MAGIC Bronze, silver and gold as `strandline demo` leaves them. This notebook reads and shows; it writes nothing.
# MAGIC
# MAGIC On a laptop, after `make demo`, with Jupyter (and jupytext, which opens this file as a notebook):
# MAGIC
# MAGIC ```
# MAGIC STRANDLINE_LAKE__ROOT=$PWD/lake/demo STRANDLINE_SOURCE__NAME=airline jupyter lab notebooks/explore_lake.py
# MAGIC ```
# MAGIC
# MAGIC On Databricks `STRANDLINE_TARGET`, `STRANDLINE_LAKE__CATALOG` and `STRANDLINE_LAKE__SCHEMA` in the cluster's environment say which lake.

# COMMAND ----------

import os
from dataclasses import asdict
from pathlib import Path

import altair as alt
import pandas as pd

from pipelines.jobs.context import open_context
from pipelines.jobs.sql import run_sql
from pipelines.jobs.status import show_offset, silver_status
from pipelines.model.columns import bronze_table
from pipelines.settings import load_settings

# Jupyter and Databricks run a notebook from its own folder, `python notebooks/explore_lake.py` from the checkout.
conf = next((folder for folder in (Path("../conf"), Path("conf")) if (folder / "base.yml").is_file()), Path("conf"))
settings = load_settings(os.environ.get("STRANDLINE_TARGET", "local"), conf)
ctx = open_context(settings)
bronze = bronze_table(settings.source.name)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Bronze: every change, as MongoDB sent it
# MAGIC
# MAGIC One row per change event (`c` insert, `u` update or replace, `d` delete) or document read by the snapshot (`r`); the raw BSON stands in
# MAGIC `envelope`. Control rows, such as heartbeats and the snapshot's own notes, are left out here.

# COMMAND ----------

run_sql(
    ctx,
    f"""
    SELECT db, collection,
        count_if(op = 'r') AS snapshot, count_if(op = 'c') AS inserts, count_if(op = 'u') AS updates, count_if(op = 'd') AS deletes,
        round(sum(length(envelope)) / 1048576, 2) AS mebibytes
    FROM {bronze}
    WHERE op IN ('c', 'u', 'd', 'r')
    GROUP BY db, collection
    ORDER BY db, collection
    """,
).toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Position and lag
# MAGIC
# MAGIC The token after which the next run goes on stands in bronze itself, in the commit of the events that it ends. The lag is the time from
# MAGIC the write in MongoDB to the moment the writer saw it.

# COMMAND ----------

pd.Series(asdict(show_offset(ctx)), name="committed").to_frame()

# COMMAND ----------

run_sql(
    ctx,
    f"""
    SELECT collection, min(position) AS first_position, max(position) AS last_position, count(*) AS events,
        round(median(unix_millis(captured_at) - source.wall_time) / 1000, 2) AS median_lag_seconds,
        round(max(unix_millis(captured_at) - source.wall_time) / 1000, 2) AS longest_lag_seconds
    FROM {bronze}
    WHERE op IN ('c', 'u', 'd')
    GROUP BY collection
    ORDER BY collection
    """,
).toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Silver: one typed row per document
# MAGIC
# MAGIC A deleted document stays as a tombstone. What did not fit its column is in `_rescued`, never lost.

# COMMAND ----------

pd.DataFrame([asdict(status) | {"table": str(status.table)} for status in silver_status(ctx)])

# COMMAND ----------

run_sql(
    ctx,
    """
    SELECT _id, carrier, origin, dest, status, scheduled.departure AS scheduled_departure, delay.arrival AS arrival_delay, size(events) AS events
    FROM silver.flights
    WHERE NOT _deleted
    ORDER BY delay.arrival DESC NULLS LAST
    LIMIT 10
    """,
).toPandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Gold: what the airline wants to know

# COMMAND ----------

run_sql(ctx, "SELECT * FROM gold.delay_by_weather").toPandas()

# COMMAND ----------

run_sql(ctx, "SELECT * FROM gold.fleet_age").toPandas()

# COMMAND ----------

# Charts cannot draw decimals.
punctuality = run_sql(
    ctx,
    """
    SELECT airline, flights, arrived, cancelled, double(percent_on_time) AS percent_on_time,
        double(average_arrival_delay) AS average_arrival_delay, double(median_arrival_delay) AS median_arrival_delay
    FROM gold.on_time_performance
    WHERE percent_on_time IS NOT NULL
    """,
).toPandas()
punctuality

# COMMAND ----------

bars = (
    alt.Chart(punctuality, title="Arrivals less than 15 minutes late, by carrier")
    .mark_bar()
    .encode(
        x=alt.X("percent_on_time:Q", title="on time, percent of arrivals", scale=alt.Scale(domain=[0, 100])),
        y=alt.Y("airline:N", sort="-x", title=None, axis=alt.Axis(labelLimit=260)),
        tooltip=["airline", "flights", "arrived", "cancelled", "percent_on_time", "median_arrival_delay"],
    )
)
counts = bars.mark_text(align="left", dx=4).encode(text=alt.Text("arrived:Q", format=","))
(bars + counts).properties(width=520)
