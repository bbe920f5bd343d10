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

from strandline.jobs.gold.quality import latest_checks
from strandline.jobs.offsets.position import show_offset
from strandline.jobs.operations.dead_letters import error_metrics, list_dead_letters
from strandline.jobs.operations.notebook import open_notebook
from strandline.jobs.operations.sql import run_sql
from strandline.jobs.operations.status import docs_page, quarantined_rows, silver_status
from strandline.jobs.snapshot.report import list_snapshots, verify_snapshot
from strandline.model.table_schemas import bronze_table

alt.renderers.enable("png", scale_factor=2)
ctx = open_notebook()
bronze = bronze_table(ctx.settings.source.name)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Status
# MAGIC
# MAGIC `headroom_seconds` is the time until the source's oplog no longer holds the position. The headroom and the age
# MAGIC of the position are known only if `STRANDLINE_SOURCE__URI` is set and the source answers.

# COMMAND ----------

pd.Series(asdict(show_offset(ctx)), name="committed").to_frame()

# COMMAND ----------

pd.DataFrame([asdict(status) | {"table": str(status.table)} for status in silver_status(ctx)])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Captured rows over time
# MAGIC
# MAGIC Rows by the second of their capture.

# COMMAND ----------

landed = run_sql(
    ctx,
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

snapshots = list_snapshots(ctx)
pd.DataFrame([asdict(state) for state in snapshots])

# COMMAND ----------

pd.DataFrame(
    [asdict(check) | {"holds": check.holds} for newest in snapshots[:1] for check in verify_snapshot(ctx, newest.snapshot_id)]
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Quality
# MAGIC
# MAGIC The last result of every suite, the rows in quarantine, and the page with the whole report.

# COMMAND ----------

latest_checks(ctx).toPandas()

# COMMAND ----------

pd.Series(quarantined_rows(ctx), name="rows in quarantine", dtype="int64").to_frame()

# COMMAND ----------

docs_page(ctx.settings)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Dead letters
# MAGIC
# MAGIC Documents and events that could not be stored as they are, newest first. The stream continued.
# MAGIC `strandline dead-letters show ID` shows everything about one of them. `strandline dead-letters replay` reads
# MAGIC its document again from the source.

# COMMAND ----------

pd.DataFrame(list_dead_letters(ctx, limit=20))

# COMMAND ----------

pd.Series(error_metrics(ctx), name="errors").to_frame()
