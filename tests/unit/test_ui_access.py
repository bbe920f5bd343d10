"""Access to the web page by host and token, and the time for which a page waits for a reading."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from strandline.errors import ConfigurationError
from strandline.model.network import is_loopback
from strandline.settings.ui import UiSettings
from strandline.web.background_readings import BackgroundReadings
from strandline.web.server import Access


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_only_addresses_of_the_loopback_interface_are_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_a_token_is_made_where_one_is_needed() -> None:
    assert Access.of("localhost", 1, api=False, known_token=None).token is None
    api = Access.of("::1", 1, api=True, known_token=None)
    assert (api.pages_need_token, len(api.token or "")) == (False, 32)
    assert api.url == "http://[::1]:1/"
    assert Access.of("10.0.0.1", 1, api=False, known_token=None).pages_need_token
    known = Access.of("127.0.0.1", 1, api=False, known_token="of the settings!")
    assert (known.token, known.pages_need_token) == ("of the settings!", True)


def test_a_token_comes_from_the_settings_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = UiSettings(token_file=str(file))
    with pytest.raises(ConfigurationError, match=r"ui\.token_file .* cannot be read"):
        settings.known_token()
    file.write_text("short\n")
    with pytest.raises(ConfigurationError, match="fewer than 16 characters"):
        settings.known_token()
    file.write_text("0123456789abcdef\n")
    assert settings.known_token() == "0123456789abcdef"
    assert UiSettings().known_token() is None
    with pytest.raises(ValidationError):
        UiSettings.model_validate({"token": "short"})
    with pytest.raises(ValidationError, match="both set"):
        UiSettings.model_validate({"token": "0123456789abcdef", "token_file": "x"})


def test_a_page_does_not_wait_for_a_slow_reading() -> None:
    readings, go_on = BackgroundReadings(0, rest=0), threading.Event()

    def slow() -> int:
        go_on.wait(30)
        return 1

    began = time.monotonic()
    assert readings.newest("slow", slow).at is None
    assert time.monotonic() - began < 5
    go_on.set()
    assert readings.newest("slow", slow, patience=30).value == 1


def test_an_error_is_shown_beside_the_older_value() -> None:
    readings = BackgroundReadings(0, rest=0)
    assert readings.newest("n", lambda: 1, patience=30).value == 1

    def fails() -> int:
        raise ConfigurationError("away", next_step="wait")

    seen = readings.newest("n", fails, patience=30)
    assert (seen.value, seen.problem) == (1, "away → wait")
    assert readings.newest("n", lambda: 2, patience=30).problem is None


def test_a_fresh_value_is_not_read_again() -> None:
    readings, reads = BackgroundReadings(60), []
    for _ in range(3):
        readings.newest("n", lambda: reads.append(1), patience=30)
    assert len(reads) == 1
