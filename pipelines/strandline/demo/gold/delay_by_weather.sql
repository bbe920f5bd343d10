-- materialized: view
-- description: Departure delay in minutes by the weather at the origin in the hour of the scheduled departure. The first of the classes
--   that fits counts; late means 15 minutes or more.

WITH weather AS (
    SELECT
        _id.origin AS origin,
        _id.time AS hour,
        CASE
            WHEN visib < 1 THEN 'fog'
            WHEN precip > 0 AND temp <= 32 THEN 'snow or ice'
            WHEN precip >= 0.1 THEN 'heavy rain'
            WHEN precip > 0 THEN 'rain'
            WHEN wind_speed >= 20 THEN 'wind'
            WHEN visib < 10 THEN 'haze'
            WHEN visib IS NOT NULL THEN 'clear'
        END AS weather
    FROM silver.weather
    WHERE NOT _deleted
)

SELECT
    coalesce(weather.weather, 'not observed') AS weather,
    count(*) AS flights,
    round(avg(flights.delay.departure), 1) AS average_departure_delay,
    median(flights.delay.departure) AS median_departure_delay,
    round(100.0 * count_if(flights.delay.departure >= 15) / count(*), 1) AS percent_late
FROM silver.flights
LEFT JOIN weather ON weather.origin = flights.origin AND weather.hour = date_trunc('hour', flights.scheduled.departure)
WHERE NOT flights._deleted AND flights.delay.departure IS NOT NULL
GROUP BY coalesce(weather.weather, 'not observed')
ORDER BY average_departure_delay DESC, weather
