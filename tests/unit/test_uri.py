"""Options, user and password of a MongoDB URI that the driver would pass over, or misread."""

from __future__ import annotations

import pytest

from strandline.errors import ConfigurationError
from strandline.jobs.source_connection import connection_options
from strandline.settings.configuration import Settings
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.uri import for_one_server, for_the_driver, options_without_effect, replica_set_of

CANARY = "s3cret"


def refusal(uri: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        open_client(ConnectionOptions(uri)).close()
    text = str(refused.value)
    assert refused.value.next_step
    assert CANARY not in text
    return text


@pytest.mark.parametrize(
    "options",
    [
        "readPreference=secundary",
        "readPreference=",
        "readPreferenceTags=dc:ny",
        "maxStalenessSeconds=120",
        "heartbeatFrequencyMS=10",
        "maxConnecting=0",
        "minPoolSize=20&maxPoolSize=10",
        "connectTimeoutMS=soon",
        "serverMonitoringMode=never",
        "zlibCompressionLevel=99",
        "uuidRepresentation=cobol",
        "authMechanism=MAGIC",
        f"authMechanismProperties=A:{CANARY}",
        "srvMaxHosts=2",
        "srvServiceName=x",
        "loadBalanced=true&replicaSet=r",
        "w=0&journal=true",
        "ssl=true&tls=false",
        f"tls=false&tlsCertificateKeyFilePassword={CANARY}",
    ],
)
def test_an_option_with_a_wrong_value_is_refused_by_its_name(options: str) -> None:
    text = refusal(f"mongodb://u:{CANARY}@127.0.0.1:1/?{options}")
    for option in options.split("&"):
        assert option.partition("=")[0] in text


def test_several_addresses_cannot_be_connected_directly() -> None:
    assert "directConnection" in refusal("mongodb://a,b/?directConnection=true")


@pytest.mark.parametrize(
    "password",
    ["s3cret@x", "s3cret/x", "27017/s3cret", "s3cret?x", "s3cret:x", "s3cret%x", "@s3cret", "s3cret%4"],
)
def test_a_password_that_is_not_encoded_is_told_and_not_shown(password: str) -> None:
    text = refusal(f"mongodb://user:{password}@127.0.0.1:1/shop?replicaSet=r")
    assert "percent-encoded" in text
    assert "%40" in text


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://user:s%40%2F%3F%3A%25@127.0.0.1:1/shop?appName=a@b",
        "mongodb://127.0.0.1:1/?appName=a@b",
        "mongodb://127.0.0.1:1,[::1]:2/?readPreference=secondary&readPreferenceTags=dc:ny&readPreferenceTags=",
        "mongodb://u%40REALM@127.0.0.1:1/?authMechanism=MONGODB-X509&tls=true",
    ],
)
def test_an_encoded_password_and_any_text_in_an_option_are_accepted(uri: str) -> None:
    open_client(ConnectionOptions(uri)).close()


def test_options_of_the_reader_and_unknown_ones_are_left_out() -> None:
    uri = "mongodb://u:p@h/db?readConcernLevel=local&replicaSet=r;timeoutMS=50&nosuch=1&w=majority"
    assert options_without_effect(uri) == ["readConcernLevel", "timeoutMS", "nosuch"]
    assert for_the_driver(uri) == "mongodb://u:p@h/db?replicaSet=r&w=majority"
    assert for_the_driver("mongodb://h") == "mongodb://h"
    odd = "tz_aware=false&datetime_conversion=datetime_ms&unicode_decode_error_handler=ignore&server_api=1&driver=x"
    assert len(options_without_effect(f"mongodb://h/?{odd}")) == 5
    open_client(ConnectionOptions(f"mongodb://127.0.0.1:1/?{odd}")).close()


def test_one_server_is_asked_with_the_same_tls_and_without_a_user() -> None:
    uri = "mongodb://u:p@a,b/?replicaSet=r&tlsCAFile=/ca.pem&ssl=true&authSource=admin"
    alone = for_one_server(uri, "a:27017", 500)
    assert alone == (
        "mongodb://a:27017/?directConnection=true&serverSelectionTimeoutMS=500&connectTimeoutMS=500"
        "&tlsCAFile=/ca.pem&tls=true"
    )
    assert for_one_server("mongodb+srv://u:p@c.example/?tlsInsecure=true", "a", 1).endswith(
        "&tlsInsecure=true&tls=true"
    )
    assert for_one_server("mongodb://u:p@c", "a", 1).endswith("connectTimeoutMS=1&tls=false")
    assert (replica_set_of(uri), replica_set_of("mongodb://h")) == ("r", None)


def test_a_socket_waits_longer_than_the_server() -> None:
    def opened(uri: str, **source: int) -> None:
        connection_options(Settings(source={"uri": uri, **source}))  # type: ignore[arg-type]  # why: pydantic builds it

    opened("mongodb://h/?socketTimeoutMS=201")
    opened("mongodb://h/?socketTimeoutMS=0", socket_timeout_ms=100)
    with pytest.raises(ConfigurationError, match="socketTimeoutMS in the MongoDB URI is 200, and the server may wait"):
        opened("mongodb://h/?socketTimeoutMS=200", socket_timeout_ms=0)
    with pytest.raises(ConfigurationError, match=r"source\.socket_timeout_ms is 100"):
        opened("mongodb://h/", socket_timeout_ms=100)
