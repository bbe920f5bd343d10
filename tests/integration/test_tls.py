"""TLS and x.509 by options of the URI, on driver and executors; certificate errors are one line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from certificates import Authority
from lakehouse import assert_equal_to_source, spark_pipeline
from pymongo import MongoClient
from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.silver.run_silver import run_silver
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.deployment import inspect_deployment
from strandline.source.mongod import EmbeddedMongod, configured_uri

pytestmark = pytest.mark.skipif(
    configured_uri() is not None, reason="needs a server with certificates of its own, the embedded one"
)

PASSWORD = "s3cret-canary"


@dataclass(frozen=True)
class Secured:
    """A server with a certificate."""

    uri: str
    authority: Authority
    stranger: Authority

    def with_options(self, **options: Path | str) -> str:
        return "&".join([self.uri, "tls=true", *(f"{key}={value}" for key, value in options.items())])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder, "authority")
    files = ["--tlsCertificateKeyFile", str(authority.issue("server")), "--tlsCAFile", str(authority.file)]
    with EmbeddedMongod(
        extra_args=["--tlsMode", "preferTLS", "--tlsAllowConnectionsWithoutCertificates", *files]
    ) as server:
        yield Secured(server.uri, authority, Authority(folder, "stranger"))


# scenario: U09
@pytest.mark.long
def test_a_certificate_instead_of_a_password_on_driver_and_executors(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    client_file = secured.authority.issue("strandline", password=PASSWORD)
    with MongoClient(secured.uri) as plain:
        plain["$external"].command(
            "createUser", "CN=strandline,O=of strandline", roles=[{"role": "read", "db": "shop"}]
        )
        plain.shop.a.insert_many([{"_id": number} for number in range(10)])
        uri = secured.with_options(
            authMechanism="MONGODB-X509",
            tlsCAFile=secured.authority.file,
            tlsCertificateKeyFile=client_file,
            tlsCertificateKeyFilePassword=PASSWORD,
        )
        with open_client(ConnectionOptions(uri)) as client:
            authenticated = client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
            assert [user["user"] for user in authenticated] == ["CN=strandline,O=of strandline"]
        encrypted_before = _encrypted_connections(plain)
        ctx = spark_pipeline(spark, uri, "shop", tmp_path / "lake")
        run_capture(ctx, once=True)
        plain.shop.a.delete_one({"_id": 3})
        run_capture(ctx, once=True)
        run_silver(ctx)
        assert_equal_to_source(ctx, plain.shop, "a")
        assert _encrypted_connections(plain) >= encrypted_before + 3  # two captures, and the executors' workers


def _encrypted_connections(client: MongoClient[dict[str, int]]) -> int:
    return sum(client.admin.command("serverStatus")["transportSecurity"].values())


# scenario: U09
def test_each_certificate_problem_is_one_line(secured: Secured, tmp_path: Path) -> None:
    sealed = secured.authority.issue("sealed", password=PASSWORD)
    (tmp_path / "empty.pem").write_text("")
    wrong = {
        "CERTIFICATE_VERIFY_FAILED": {"tlsCAFile": secured.stranger.file},
        "No such file or directory: .*missing.pem": {"tlsCAFile": tmp_path / "missing.pem"},
        "SSLError": {"tlsCAFile": tmp_path / "empty.pem"},
        "certificate and key do not match": {
            "tlsCAFile": secured.authority.file,
            "tlsCertificateKeyFile": sealed,
            "tlsCertificateKeyFilePassword": f"not-{PASSWORD}",
        },
    }
    for why, options in wrong.items():
        connection = ConnectionOptions(secured.with_options(**options), server_selection_timeout_ms=3000)
        with pytest.raises(ConfigurationError, match=why) as refused, open_client(connection) as client:
            inspect_deployment(client)
        assert "\n" not in str(refused.value)
        assert PASSWORD not in "".join(map(repr, (refused.value, refused.value.__cause__, str(refused.value))))
