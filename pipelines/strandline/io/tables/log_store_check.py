"""Check at every start: two drivers cannot commit the same version of a table."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from strandline.errors import ConfigurationError, RetriableError
from strandline.io.delta_log.object_store import SCHEMES, TWO_WRITERS
from strandline.io.spark.log_stores import FOLDER_LOG_STORE, JAR, S3_LOG_STORE
from strandline.io.spark.platform import is_databricks, is_unity_catalog_oss
from strandline.io.spark.session_settings import setting
from strandline.model.tables import LAYERS, Lake
from strandline.plain_text import java_causes

# Delta's own log stores are atomic there, and ours is in folders. A Spark that others have started in a folder renames.
# On Databricks the commit service is atomic, whatever the scheme.
_ATOMIC: Final = ("", "file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "dbfs", "abfs", "abfss", "gs")
_ONE_DRIVER: Final = "S3SingleDriverLogStore"
_NO_SCHEMA: Final = "SCHEMA_NOT_FOUND"
_CONTENT: Final = "Strandline tests at every start that a second writer is refused."
_ANSWER_SECONDS = 60

_BUCKET: Final = ("UnknownStoreException",)
_NO_CREDENTIALS: Final = ("NoAuthWithAWSException", "NoAwsCredentialsException", "CredentialInitializationException")
_DENIED: Final = ("AccessDeniedException",)
_NO_S3A: Final = ("ClassNotFoundException", "UnsupportedFileSystemException", "NoClassDefFoundError")
_NOT_CONDITIONAL: Final = ("IllegalArgumentException", "UnsupportedOperationException", "PathIOException")
_NO_ANSWER: Final = ("AWSClientIOException", "ConnectException", "SocketTimeoutException", "UnknownHostException")


def refuse_unfenced(spark: SparkSession, lake: Lake) -> None:
    """Refuse a lake where two drivers could overwrite each other's commits.

    I/O: asks a catalog for its locations. Through the log store that every commit takes: on S3, creates the object
    ``_strandline/two-writers`` unless it is there, and tries to create it once more; in a folder, creates a file twice,
    and removes it.

    Raises:
        ConfigurationError: The object or file could be created twice, no log store is known for the location's scheme,
            or the place refused.
        RetriableError: S3 does not answer.
    """
    if is_databricks(spark):
        return
    for location in _one_per_store([lake.root or ""] if lake.by_path else _locations(spark, lake)):
        scheme = urlsplit(location).scheme or "file"
        store = _setting(spark, "spark.delta.logStore.class") or _setting(spark, f"spark.delta.logStore.{scheme}.impl")
        refuse_log_store(location, store)
        if store in _PROBED and not is_remote():  # a client of Spark Connect reaches no class of the server
            _PROBED[store](spark, location)


def refuse_log_store(location: str, store: str | None) -> None:
    """Refuse a location whose log store is missing, or known to support one driver only. Pure.

    Raises:
        ConfigurationError: As above.
    """
    scheme = urlsplit(location).scheme
    if scheme in _ATOMIC or (store and not store.endswith(_ONE_DRIVER)):
        return
    reason = f"with {_ONE_DRIVER}" if store else "without a log store for this scheme"
    cure = (
        f"start Spark with spark.delta.logStore.{scheme}.impl={S3_LOG_STORE} and its JAR (strandline explain runbook)"
        if scheme in SCHEMES
        else f"set spark.delta.logStore.{scheme}.impl in spark.conf, or choose another lake.root"
    )
    raise ConfigurationError(f"two drivers could overwrite each other's commits in {location} {reason}", next_step=cure)


def _one_per_store(locations: list[str]) -> list[str]:
    return list({urlsplit(location)[:2]: location for location in reversed(locations)}.values())


def _locations(spark: SparkSession, lake: Lake) -> list[str]:
    """Return where the tables of a catalog are, or will be. Unity Catalog is left out: it orders commits itself."""
    if is_unity_catalog_oss(spark, lake.catalog):
        return []
    locations = [_location(spark, lake.sql_schema(name)) for name in LAYERS]
    warehouse = spark.conf.get("spark.sql.warehouse.dir", None)
    return [place for place in dict.fromkeys(warehouse if place is None else place for place in locations) if place]


def _location(spark: SparkSession, schema: str) -> str | None:
    """Return the location of *schema*: empty if the catalog tells none. None: there is no such schema."""
    try:
        rows = spark.sql(f"DESCRIBE SCHEMA {schema}").collect()
    except AnalysisException as error:
        if error.getCondition() != _NO_SCHEMA:
            raise
        return None
    return next((str(row[1]) for row in rows if row[0] == "Location"), "")


def _setting(spark: SparkSession, key: str) -> str | None:
    """Return a setting with which the JVM was started: Delta reads its log stores there, not in the session.

    A client of Spark Connect sees the server's value, because `session_conf` sends no log store.
    """
    return setting(spark.conf, key) if is_remote() else spark.sparkContext.getConf().get(key)


def _probe_s3(spark: SparkSession, location: str) -> None:
    """Create one object twice. The second attempt must be refused. An object of an earlier start refuses the first."""
    try:
        is_refused = _is_refused_twice(spark, S3_LOG_STORE, f"{location.rstrip('/')}/{TWO_WRITERS}")
    except TimeoutError:
        raise _no_answer(location) from None
    except Py4JJavaError as error:
        raise _explained(location, _causes(error)) from None
    if not is_refused:
        raise ConfigurationError(
            f"{location} is on a server that ignores conditional PUT (If-None-Match): two writers would overwrite each"
            " other's commits",
            next_step="use a server that supports it, such as AWS S3, or a newer release of this one",
        )


def _probe_folder(spark: SparkSession, location: str) -> None:
    """Create one file twice, and remove it. The second attempt must be refused. Nothing is done without the folder."""
    uri = urlsplit(location)
    folder = Path(unquote(uri.path) if uri.scheme else location)
    if not folder.is_dir():
        return
    probe = folder.absolute() / f"strandline-{uuid.uuid4().hex}.probe"
    try:
        is_refused = _is_refused_twice(spark, FOLDER_LOG_STORE, f"file://{probe}")  # Hadoop decodes no name
    except (TimeoutError, Py4JJavaError) as error:
        reason = "it does not answer" if isinstance(error, TimeoutError) else _causes(error)[-1]
        raise ConfigurationError(
            f"the lake's folder {folder} cannot be written ({reason})", next_step="choose another lake.root"
        ) from None
    finally:
        probe.unlink(missing_ok=True)
    if not is_refused:
        raise ConfigurationError(
            f"the file system of {folder} lets a new file replace another one: two writers would overwrite each other's"
            " commits",
            next_step="keep the lake on a file system with hard links (ext4, XFS), or in S3",
        )


def _is_refused_twice(spark: SparkSession, store: str, uri: str) -> bool:
    """Create *uri* with a log store, and once more. Return True if an attempt was refused because it exists."""
    jvm: Any = spark._jvm
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    store_class = reduce(getattr, store.split("."), jvm)
    if isinstance(store_class, JavaPackage):
        raise ConfigurationError(
            f"this Spark has no class {store}", next_step=f"start it with {JAR.name} (strandline explain runbook)"
        )
    log_store, path = store_class(hadoop), jvm.org.apache.hadoop.fs.Path(uri)
    for attempt in ("first", "second"):  # one content twice may be one attempt whose answer was lost
        lines = jvm.java.util.List.of(_CONTENT, f"The {attempt} attempt.").iterator()
        try:
            _answered(partial(log_store.write, path, lines, False, hadoop))
        except Py4JJavaError as error:
            if "FileAlreadyExistsException" in _causes(error):
                return True
            raise
    return False


def _causes(error: Py4JJavaError) -> list[str]:
    return [cause.getClass().getSimpleName() for cause in java_causes(error.java_exception)]


def _answered(call: Callable[[], object], seconds: float = _ANSWER_SECONDS) -> None:
    """Make a call, and raise TimeoutError if it takes too long. S3A repeats a call for five minutes."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  # why: raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name="probe of the log store", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if failures:
        raise failures[0]


def _no_answer(location: str) -> RetriableError:
    return RetriableError(f"S3 does not answer for {location}", next_step="check the network and lake.s3_endpoint")


def _explained(location: str, causes: list[str]) -> ConfigurationError | RetriableError:
    def among(names: tuple[str, ...]) -> bool:
        return any(name in causes for name in names)

    bucket = urlsplit(location).netloc
    if among(_BUCKET):
        return ConfigurationError(f"there is no bucket {bucket!r}", next_step="create it, or correct lake.root")
    if among(_NO_CREDENTIALS):
        return ConfigurationError(
            f"there are no credentials for the bucket {bucket!r}",
            next_step="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role",
        )
    if among(_DENIED):
        return ConfigurationError(
            f"S3 refuses to write into the bucket {bucket!r} with these credentials",
            next_step="correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or allow s3:PutObject and s3:GetObject",
        )
    if among(_NO_S3A):
        return ConfigurationError(
            "this Spark has no S3A file system", next_step="start it with hadoop-aws of its Hadoop version"
        )
    if among(_NOT_CONDITIONAL):
        return ConfigurationError(
            "this Hadoop makes no conditional PUT",
            next_step="use Hadoop 3.4.2 or newer, and remove fs.s3a.create.conditional.enabled",
        )
    if among(_NO_ANSWER):
        return _no_answer(location)
    return ConfigurationError(
        f"S3 refuses to write into the bucket {bucket!r}: {causes[-1]}",
        next_step="check lake.root and lake.s3_endpoint",
    )


_PROBED: Final[Mapping[str | None, Callable[[SparkSession, str], None]]] = {
    S3_LOG_STORE: _probe_s3,
    FOLDER_LOG_STORE: _probe_folder,
}
