"""Settings and JARs of a Spark session for a lake on S3."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

from strandline.errors import ConfigurationError
from strandline.io.delta_log.object_store import SCHEMES, StoreOptions, is_known_store
from strandline.io.spark.log_stores import S3_LOG_STORE
from strandline.io.spark.spark_versions import HADOOP_WITHOUT_CONDITIONAL_PUT, SDK_OF_HADOOP

# Everything that hadoop-aws would bring with it and Spark has, and the SDK in one JAR of 690 MB.
EXCLUDED: Final = ",".join((
    "software.amazon.awssdk:bundle",
    "software.amazon.awssdk:netty-nio-client",  # of the asynchronous client, which S3A builds only for a setting
    "org.wildfly.openssl:wildfly-openssl",
    "org.apache.httpcomponents:httpclient",
    "org.slf4j:slf4j-api",
    "commons-codec:commons-codec",
    "commons-logging:commons-logging",
))  # fmt: skip
_SDK_MODULES: Final = ("s3", "s3-transfer-manager", "apache-client", "url-connection-client", "sts")
_JARS: Final = ("org.apache.hadoop_hadoop-aws", "software.amazon.", "org.reactivestreams_")
_CREDENTIALS: Final = ",".join((
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",  # keys in spark.conf
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",  # environment, profile, role of the machine
))  # fmt: skip


def packages() -> list[str]:
    """Return the packages with which the installed Spark reads S3. I/O: lists Spark's JARs.

    Raises:
        ConfigurationError: This Hadoop makes no conditional PUT, or Strandline does not know its AWS SDK.
    """
    names = [jar.stem.removeprefix("hadoop-client-api-") for jar in _spark_jars().glob("hadoop-client-api-*.jar")]
    for name in names:
        refuse_hadoop(name)
    if len(names) != 1 or names[0] not in SDK_OF_HADOOP:
        raise ConfigurationError(
            f"the AWS SDK for this Spark is unknown (Hadoop {' and '.join(names) or 'not found'})",
            next_step="set spark.jars.packages in spark.conf: hadoop-aws of that version, and its AWS SDK",
        )
    (hadoop,) = names
    sdk = (f"software.amazon.awssdk:{module}:{SDK_OF_HADOOP[hadoop]}" for module in _SDK_MODULES)
    return [f"org.apache.hadoop:hadoop-aws:{hadoop}", *sdk]


def refuse_hadoop(version: str) -> None:
    """Refuse a Hadoop that makes no conditional PUT.

    Raises:
        ConfigurationError: It makes none.
    """
    if version in HADOOP_WITHOUT_CONDITIONAL_PUT:
        raise ConfigurationError(
            f"this Spark has Hadoop {version}, which makes no conditional PUT: two writers on S3 would overwrite each"
            " other's commits",
            next_step="use Spark 4.1 or newer for a lake on S3",
        )


def fetched(packages: list[str], folder: Path) -> list[Path]:
    """Return the JARs of S3 in *folder*, each in one version.

    Empty: Ivy has to choose them, because a package is missing, or because an upgrade of Spark left two versions of a
    JAR.
    """
    versions = {package.split(":")[0]: package.split(":")[2] for package in packages}
    jars = [jar for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(_JARS)]
    jars = [jar for jar in jars if jar.stem.endswith(f"-{versions.get(jar.name.partition('_')[0], '')}".rstrip("-"))]
    artifacts = {jar.stem.rpartition("-")[0] for jar in jars}
    there = {jar.name for jar in jars}
    is_complete = all("{}_{}-{}.jar".format(*package.split(":")) in there for package in packages)
    return jars if is_complete and len(artifacts) == len(jars) else []


def s3_conf(access: StoreOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session that reads and writes S3. Pure."""
    region = access.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if access.endpoint and not region:
        region = "us-east-1"  # servers other than AWS's accept any
    conf = {f"spark.delta.logStore.{scheme}.impl": S3_LOG_STORE for scheme in SCHEMES} | {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.aws.credentials.provider": _CREDENTIALS,
    }
    if region:
        conf["spark.hadoop.fs.s3a.endpoint.region"] = region
    if access.endpoint:
        conf |= {
            "spark.hadoop.fs.s3a.endpoint": access.endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": str(access.endpoint.startswith("https:")).lower(),
        }
    return conf


def settings_for_s3(options: StoreOptions | None, conf: Mapping[str, str], ivy: Path) -> dict[str, str]:
    """Return the settings for S3 of a JVM that is started here. Empty: neither the lake nor *conf* is on S3.

    I/O: looks for JARs below *ivy*.

    Args:
        options: How the lake in S3 is opened. None: it is elsewhere.

    Raises:
        ConfigurationError: As `packages`.
    """
    if options is None and not any(is_known_store(value) for value in conf.values()):
        return {}
    settings = s3_conf(options or StoreOptions(), os.environ)
    if any("hadoop-aws" in conf.get(key, "") for key in ("spark.jars", "spark.jars.packages")):
        return settings
    coordinates = packages()
    if there := fetched(coordinates, ivy / "jars"):
        return settings | {"spark.jars": ",".join(map(str, there))}
    settings["spark.jars.excludes"] = EXCLUDED
    return settings | {"spark.jars.ivy": str(ivy), "spark.jars.packages": ",".join(coordinates)}


def _spark_jars() -> Path:
    return Path(_find_spark_home()) / "jars"
