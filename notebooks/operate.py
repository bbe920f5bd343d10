# Databricks notebook source
# MAGIC %md
# MAGIC # Operation: state of the pipeline
# MAGIC
# MAGIC State of the source, snapshots, results of quality checks, and dead letters. This notebook only reads.
# MAGIC Problems and their solutions, by symptom: [docs/runbook.md](../docs/runbook.md).
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
# MAGIC ## Status
# MAGIC
# MAGIC `headroom_seconds` is the time until the source's oplog no longer holds the position. The headroom and the age
# MAGIC of the position are known only if `STRANDLINE_SOURCE__URI` is set and the source answers.

# COMMAND ----------

status = lakehouse.status(with_errors=True)
pd.Series(asdict(status.offset), name="committed").to_frame()

# COMMAND ----------

pd.DataFrame([asdict(row) | {"table": str(row.table)} for row in status.tables])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Captured rows over time
# MAGIC
# MAGIC Rows by the second of their capture.

# COMMAND ----------

landed = lakehouse.sql(
    f"""
    SELECT date_trunc('SECOND', captured_at) AS captured_at, if(op = 'r', 'snapshot', 'stream') AS way, count(*) AS changes
    FROM {bronze}
    WHERE op IN ('c', 'u', 'd', 'r')
    GROUP BY ALL
    """,
).toPandas()

alt.Chart(landed, title="Landed in bronze", width=520).mark_bar().encode(
    x=alt.X("captured_at:T", title="captured at (UTC)"),
    y=alt.Y("changes:Q", title="rows per second"),
    color=alt.Color("way:N", title=None),
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Snapshots
# MAGIC
# MAGIC The progress of each snapshot. For the newest one: whether its chunks cover every collection and are
# MAGIC completely in bronze.

# COMMAND ----------

snapshots = lakehouse.snapshots()
pd.DataFrame([asdict(state) for state in snapshots])

# COMMAND ----------

pd.DataFrame(
    [asdict(check) | {"holds": check.holds} for newest in snapshots[:1] for check in lakehouse.verify_snapshot(newest.snapshot_id)]
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Quality
# MAGIC
# MAGIC The last result of every suite, the rows in quarantine, and the page with the whole report.

# COMMAND ----------

lakehouse.quality_results().toPandas()

# COMMAND ----------

pd.Series(status.quarantined, name="rows in quarantine", dtype="int64").to_frame()

# COMMAND ----------

status.quality_page

# COMMAND ----------

# MAGIC %md
# MAGIC ## Dead letters
# MAGIC
# MAGIC Documents and events that could not be stored as they are, newest first. The stream continued.
# MAGIC `strandline dead-letters show ID` shows everything about one of them. `strandline dead-letters replay` reads
# MAGIC its document again from the source.

# COMMAND ----------

pd.DataFrame(lakehouse.dead_letters(20))

# COMMAND ----------

pd.Series(status.errors, name="errors").to_frame()
