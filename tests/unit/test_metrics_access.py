"""Access to the metrics port by the header Host: no web page of another site reads it through a browser."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable

import pytest

from strandline.io.telemetry.live_state import CaptureState
from strandline.io.telemetry.metrics_server import serve
from strandline.model.network import names_this_machine

PATHS = ("/metrics", "/state", "/log", "/livez", "/readyz")


@pytest.fixture(scope="module", params=["127.0.0.1", "0.0.0.0"])
def address(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ask(address: str) -> Callable[[str, str], int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve(port, address, {"source": "test"}, CaptureState())

    def asked(path: str, host: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"Host": host.format(port=port)})
        return connection.getresponse().status

    return asked


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "localhost"])
@pytest.mark.parametrize("path", PATHS)
def test_a_loopback_name_is_answered_on_every_interface(ask: Callable[[str, str], int], path: str, host: str) -> None:
    assert ask(path, host) in (200, 503)


@pytest.mark.parametrize("host", ["evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example", ""])
@pytest.mark.parametrize("path", PATHS)
def test_the_name_of_another_site_reads_no_text(
    ask: Callable[[str, str], int], address: str, path: str, host: str
) -> None:
    is_open = address == "0.0.0.0" and path not in ("/state", "/log")
    assert ask(path, host) in ((200, 503) if is_open else (400,))


@pytest.mark.parametrize(
    ("host", "address", "expected"),
    [
        ("10.1.2.3:9400", "0.0.0.0", True),
        ("strandline:9400", "0.0.0.0", True),
        ("strandline.evil.example:9400", "0.0.0.0", False),
        ("[fd00::1]:9400", "::", True),
        ("10.1.2.3", "127.0.0.1", False),
        ("strandline", "127.0.0.1", False),
        ("::1", "::1", True),
        (":9400", "0.0.0.0", False),
        ("", "0.0.0.0", False),
    ],
)
def test_a_host_header_names_this_machine_or_another(host: str, address: str, expected: bool) -> None:
    assert names_this_machine(host, address) is expected
