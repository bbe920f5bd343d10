# Databricks notebook source
# MAGIC %md
# MAGIC # Gold: three questions of an airline
# MAGIC
# MAGIC Punctuality, delays by weather, and the age of the fleet: three SQL files over silver. This notebook only reads.
# MAGIC How to open it on a laptop or on Databricks: [docs/start.md](../docs/start.md#notebooks).

# COMMAND ----------

import altair as alt

import strandline

alt.renderers.enable("png", scale_factor=2)
lakehouse = strandline.connect()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Punctuality by carrier
# MAGIC
# MAGIC A flight is on time if it arrives less than 15 minutes late. Charts cannot draw decimals, so the query
# MAGIC converts them to doubles.

# COMMAND ----------

punctuality = lakehouse.sql(
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
        x=alt.X("percent_on_time:Q", title="on time, percent of arrivals (their number beside it)", scale=alt.Scale(domain=[0, 100])),
        y=alt.Y("airline:N", sort="-x", title=None, axis=alt.Axis(labelLimit=260)),
    )
)
counts = bars.mark_text(align="left", dx=4).encode(text=alt.Text("arrived:Q", format=","))
(bars + counts).properties(width=520)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Delays by weather
# MAGIC
# MAGIC Departures by the weather at the origin in the hour of the scheduled departure. Late means 15 minutes or more.

# COMMAND ----------

weather = lakehouse.sql(
    """
    SELECT weather, flights, double(average_departure_delay) AS average_departure_delay,
        double(median_departure_delay) AS median_departure_delay, double(percent_late) AS percent_late
    FROM gold.delay_by_weather
    """,
).toPandas()
weather

# COMMAND ----------

alt.Chart(weather, title="Departure delay by the weather at the origin", width=520).mark_bar().encode(
    x=alt.X("average_departure_delay:Q", title="average delay in minutes"),
    y=alt.Y("weather:N", sort="-x", title=None),
    color=alt.Color("percent_late:Q", title="percent late", scale=alt.Scale(scheme="oranges", domainMin=0)),
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Age of the fleet
# MAGIC
# MAGIC The twenty largest fleets, by carrier and manufacturer. Only planes that occur in the flights count.

# COMMAND ----------

fleet = lakehouse.sql(
    """
    SELECT carrier, manufacturer, planes, double(average_age) AS average_age, seats, double(seats_per_plane) AS seats_per_plane
    FROM gold.fleet_age
    """,
).toPandas()
fleet

# COMMAND ----------

points = (
    alt.Chart(fleet, title="The largest fleets: age and size of their planes")
    .mark_circle(opacity=0.6)
    .encode(
        x=alt.X("average_age:Q", title="average age in 2013, years"),
        y=alt.Y("seats_per_plane:Q", title="seats per plane"),
        size=alt.Size("planes:Q", title="planes", scale=alt.Scale(range=[150, 1300])),
        color=alt.Color("manufacturer:N", title="manufacturer"),
    )
)
names = points.mark_text(fontSize=10).encode(text="carrier:N", size=alt.value(10), color=alt.value("black"))
(points + names).properties(width=520, height=320)
