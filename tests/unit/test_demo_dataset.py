"""Data, replay and comparison of the demo, without a server."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest

from strandline.demo.dataset import FlightDataset, airport, flight, load_dataset, plane, weather
from strandline.demo.replay import completed, operations

_ZONES = {"IAH": "America/Chicago", "LAX": "America/Los_Angeles"}
_ROW: dict[str, Any] = {
    "year": 2013,
    "month": 1,
    "day": 5,
    "dep_time": 517.0,
    "sched_dep_time": 515,
    "dep_delay": 2.0,
    "arr_time": 830.0,
    "sched_arr_time": 819,
    "arr_delay": 11.0,
    "carrier": "UA",
    "flight": 1545,
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "air_time": 227.0,
    "distance": 1400,
    "hour": 5,
    "minute": 15,
    "time_hour": "2013-01-05T10:00:00Z",
}


@pytest.fixture(scope="module")
def dataset() -> FlightDataset:
    return load_dataset(1500)


def test_a_flight_is_a_typed_document_in_utc() -> None:
    found = flight(_ROW, _ZONES)
    assert found.document == {
        "_id": "2013-01-05-UA-1545-EWR-0515",
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "distance": 1400,
        "scheduled": {
            "departure": datetime(2013, 1, 5, 10, 15, tzinfo=UTC),
            "arrival": datetime(2013, 1, 5, 14, 19, tzinfo=UTC),
        },
        "status": "scheduled",
        "events": [],
    }
    assert (found.departure_delay, found.arrival_delay, found.air_time) == (2, 11, 227)
    assert found.departed == datetime(2013, 1, 5, 10, 17, tzinfo=UTC)
    assert found.arrived == datetime(2013, 1, 5, 14, 30, tzinfo=UTC)


def test_an_arrival_past_midnight_is_on_the_next_day() -> None:
    late = _ROW | {
        "dest": "LAX",
        "sched_dep_time": 2245,
        "minute": 45,
        "time_hour": "2013-01-06T03:00:00Z",
        "sched_arr_time": 149,
    }
    scheduled = flight(late, _ZONES).document["scheduled"]
    assert scheduled["arrival"] == datetime(2013, 1, 6, 9, 49, tzinfo=UTC)
    assert scheduled["arrival"] - scheduled["departure"] == timedelta(hours=6, minutes=4)


def test_a_destination_without_a_known_zone_is_on_puerto_rico_time() -> None:
    assert flight(_ROW | {"dest": "SJU", "sched_arr_time": 1000}, _ZONES).document["scheduled"]["arrival"] == datetime(
        2013, 1, 5, 14, 0, tzinfo=UTC
    )


def test_unknown_values_are_absent_fields() -> None:
    row = {
        name: value
        for name, value in _ROW.items()
        if name not in ("tailnum", "dep_time", "dep_delay", "arr_delay", "air_time")
    }
    found = flight(row, _ZONES)
    assert "tailnum" not in found.document
    assert (found.departed, found.arrived, found.air_time) == (None, None, None)
    assert plane({"tailnum": "N1", "engines": 2, "seats": 55.0, "engine": "Turbo-fan"}) == {
        "_id": "N1",
        "engine": "Turbo-fan",
        "engines": 2,
        "seats": 55,
    }
    assert weather({"origin": "EWR", "time_hour": "2013-01-01T06:00:00Z", "temp": 39}) == {
        "_id": {"origin": "EWR", "time": datetime(2013, 1, 1, 6, tzinfo=UTC)},
        "temp": 39.0,
    }
    assert airport({"faa": "X", "name": "Y", "lat": 1.5, "lon": -2.5, "alt": 7.0, "tz": -5.0}) == {
        "_id": "X",
        "name": "Y",
        "location": {"lat": 1.5, "lon": -2.5, "alt": 7},
        "tz": -5,
    }


def _values(document: Any) -> Iterator[Any]:
    if isinstance(document, dict):
        for value in document.values():
            yield from _values(value)
    elif isinstance(document, list):
        for value in document:
            yield from _values(value)
    else:
        yield document


def test_the_demos_files_have_the_expected_numbers_of_rows(dataset: FlightDataset) -> None:
    assert len(dataset.flights) == 1500
    assert (len(dataset.airlines), len(dataset.airports), len(dataset.planes)) == (16, 1458, 3322)
    departures = [item.document["scheduled"]["departure"] for item in dataset.flights]
    assert departures == sorted(departures)
    assert all(report["_id"]["time"] <= departures[-1] + timedelta(days=1) for report in dataset.weather)
    documents = [
        *dataset.airlines,
        *dataset.airports,
        *dataset.planes,
        *dataset.weather,
        *(item.document for item in dataset.flights),
    ]
    kinds = {type(value) for document in documents for value in _values(document)}
    assert kinds == {str, int, float, datetime}
    assert not any(
        isinstance(value, float) and math.isnan(value) for document in documents for value in _values(document)
    )
    assert all(len(bson.encode(document)) > 0 for document in documents)


@pytest.mark.long
def test_no_two_flights_of_the_year_share_a_key_and_each_arrives_after_it_departs() -> None:
    flights = load_dataset(1_000_000).flights
    assert len(flights) == len({item.identifier for item in flights}) == 336_776
    for item in flights:
        scheduled = item.document["scheduled"]
        assert timedelta(0) < scheduled["arrival"] - scheduled["departure"] < timedelta(hours=14)


def test_every_key_is_its_own(dataset: FlightDataset) -> None:
    for documents in (
        dataset.airlines,
        dataset.airports,
        dataset.planes,
        dataset.weather,
        [item.document for item in dataset.flights],
    ):
        keys = [bson.encode({"_id": document["_id"]}) for document in documents]
        assert len(keys) == len(set(keys))


def test_a_replay_is_the_same_for_a_seed(dataset: FlightDataset) -> None:
    first, again, other = (repr(operations(dataset, dataset.flights[-100:], seed=seed)) for seed in (7, 7, 8))
    assert first == again != other


def test_even_a_small_replay_ends_with_changes_of_every_collection(dataset: FlightDataset) -> None:
    """The last quarter is written while a capture certainly reads."""
    written = operations(dataset, dataset.flights[-75:], seed=1)
    assert {collection for collection, _ in written[len(written) * 3 // 4 :]} == {
        "airlines",
        "airports",
        "planes",
        "weather",
        "flights",
    }


def test_a_flight_of_the_past_is_arrived_or_cancelled(dataset: FlightDataset) -> None:
    over = [completed(item) for item in dataset.flights]
    assert {document["status"] for document in over} == {
        "arrived",
        "departed",
        "cancelled",
    }  # departed: it landed elsewhere
    for document in over:
        assert len(document["events"]) == {"arrived": 2, "departed": 1, "cancelled": 0}[document["status"]]
        assert ("actual" in document) == (document["status"] != "cancelled")
    assert all(item.document["status"] == "scheduled" and item.document["events"] == [] for item in dataset.flights), (
        "no argument is mutated"
    )
