-- materialized: table
-- description: The twenty largest fleets by carrier and manufacturer: planes seen in its flights, their average age in 2013 in years
--   (of those whose year is known), seats. A plane that flew for two carriers counts for both.

WITH seen AS (
    SELECT DISTINCT carrier, tailnum FROM silver.flights WHERE NOT _deleted AND tailnum IS NOT NULL
),

planes AS (
    SELECT
        _id AS tailnum,
        year,
        seats,
        CASE
            WHEN manufacturer LIKE 'AIRBUS%' THEN 'AIRBUS'
            WHEN manufacturer LIKE 'MCDONNELL DOUGLAS%' THEN 'MCDONNELL DOUGLAS'
            ELSE coalesce(manufacturer, 'unknown')
        END AS manufacturer
    FROM silver.planes
    WHERE NOT _deleted
)

SELECT
    seen.carrier,
    planes.manufacturer,
    count(*) AS planes,
    round(avg(2013 - planes.year), 1) AS average_age,
    sum(planes.seats) AS seats,
    round(avg(planes.seats)) AS seats_per_plane
FROM seen
INNER JOIN planes ON planes.tailnum = seen.tailnum
GROUP BY seen.carrier, planes.manufacturer
ORDER BY planes DESC, seen.carrier, planes.manufacturer
LIMIT 20
