-- materialized: incremental
-- keys: carrier
-- description: Punctuality by carrier. Delays in minutes.
-- column cancelled: Flights that were deleted at the source, or stand there as cancelled
-- column percent_on_time: Less than 15 minutes late on arrival, of the flights whose arrival is known

WITH flights AS (
    SELECT
        carrier,
        _deleted OR coalesce(status = 'cancelled', false) AS cancelled,
        CASE WHEN NOT _deleted AND status = 'arrived' THEN delay.arrival END AS arrival_delay,
        NOT _deleted AND coalesce(status = 'arrived', false) AS arrived
    FROM silver.flights
),

airlines AS (
    SELECT _id AS carrier, name FROM silver.airlines WHERE NOT _deleted
)

SELECT
    flights.carrier,
    coalesce(any_value(airlines.name), flights.carrier) AS airline,
    count(*) AS flights,
    count_if(flights.arrived) AS arrived,
    count_if(flights.cancelled) AS cancelled,
    round(100.0 * count_if(flights.cancelled) / count(*), 1) AS percent_cancelled,
    round(avg(flights.arrival_delay), 1) AS average_arrival_delay,
    median(flights.arrival_delay) AS median_arrival_delay,
    round(100.0 * count_if(flights.arrival_delay < 15) / nullif(count(flights.arrival_delay), 0), 1) AS percent_on_time
FROM flights
LEFT JOIN airlines ON airlines.carrier = flights.carrier
GROUP BY flights.carrier
ORDER BY percent_on_time DESC NULLS LAST, flights.carrier
