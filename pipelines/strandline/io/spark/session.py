"""The only place that builds a Spark session."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from strandline.errors import ConfigurationError, RetriableError, install_command
from strandline.io.delta_log.object_store import StoreOptions
from strandline.io.spark.conflicts import know_remote_conflicts
from strandline.io.spark.databricks_session import databricks_connect_session
from strandline.io.spark.delta_jars import JAR_SETTINGS, cached_jars, ivy_home, require_delta
from strandline.io.spark.java import without_java
from strandline.io.spark.jvm import start_jvm
from strandline.io.spark.log_stores import folder_conf, require_jar
from strandline.io.spark.s3_session import settings_for_s3
from strandline.io.spark.session_settings import (
    check_session,
    pinned_values,
    refuse_own,
    set_one_by_one,
    without_deprecation_warnings,
)
from strandline.io.spark.spark_versions import check_version
from strandline.io.spark.worker_code import ship_code
from strandline.io.telemetry.progress import PROGRESS

_ANSWER_SECONDS = 20
_LOG = logging.getLogger("strandline.session")

# Settings for every session, also for managed and remote ones.
_SESSION_CONF = pinned_values() | {
    # default 10000: Spark measures each row for Python, and a null list takes as long as the batch is large
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",  # default 64m, held by the JVM and by Python, for each task
}

_LOG4J: Final = Path(__file__).with_name("log4j2.properties").as_uri()

# Settings for a JVM that is started here, wherever its executors run.
_DRIVER_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # default 100 documents a page: too much memory with documents of 10 MB
    "spark.hadoop.parquet.page.size.row.check.min": "1",
    "spark.hadoop.parquet.block.size.row.check.min": "1",  # as above, for a row group
    # a Hive metastore refuses other columns of a replaced table; Delta then stores none there, and Hive logs an error
    "spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J}",
}

# Settings for a JVM whose executors are its own threads. Measured on two cores.
_LOCAL_CONF = {
    "spark.sql.shuffle.partitions": "2",
    # default 128 MB: a first load of a million documents has three tasks, and one core waits for the other
    "spark.sql.files.maxPartitionBytes": str(32 << 20),
    "spark.databricks.delta.snapshotPartitions": "2",  # default 50: small MERGEs are three times slower
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",  # default 10000: VACUUM of a tiny table takes 88 s
    # default 1 GiB: then one changed row of a portable table writes such a file anew, and only Spark has memory for it
    "spark.databricks.delta.optimize.maxFileSize": str(32 << 20),
    "spark.databricks.delta.optimize.minFileSize": str(32 << 20),
    # default 100 classes: one silver run needs more, and the next run would compile all of them again
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.ui.enabled": "false",
    # default 1000 queries that have ended: 50 KB of plan texts each, for the interface that is off
    "spark.sql.ui.retainedExecutions": "20",
    "spark.driver.memory": "1792m",  # a capture with all its Python processes stays below 3 GiB
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

# For a JVM with that memory. The default collector takes a fifth more CPU time and half a gigabyte more memory.
_SMALL_HEAP: Final = "-XX:+UseSerialGC"
# With that memory a page has 16 MB by default, and every sort and aggregation takes one. A MERGE has a dozen of them.
_SMALL_PAGES: Final = {"spark.buffer.pageSize": "1m"}

# Lists to which a user may add; Delta's own entries stay.
_JOINED = (*JAR_SETTINGS, "spark.jars.excludes", "spark.sql.extensions")

# For a short-lived JVM: two fifths less CPU time up to its first MERGE. The option alone comes with a small code cache,
# which is full after some twenty MERGEs, and then the JVM fails.
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

# For a JVM that writes whole tables: the second compiler takes what runs for each value. With its own thresholds it
# also compiles Spark's planner, which costs what it saves. More young objects die before a collection copies them.
FIRST_LOAD: Final = (
    "-XX:Tier4InvocationThreshold=250000 -XX:Tier4MinInvocationThreshold=50000 -XX:Tier4CompileThreshold=750000"
    " -XX:Tier4BackEdgeThreshold=2000000 -Xms1200m -Xmn600m"
)


def is_local(master: str | None) -> bool:
    """Return True if *master* runs Spark's executors on this machine."""
    return master is not None and master.startswith("local")


def session_conf(
    master: str | None,
    conf: Mapping[str, str],
    *,
    java_options: str = "",
    jars: Sequence[Path] = (),
    s3: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the settings of a session.

    *conf* overrides every setting, except: its JARs, packages and extensions are added to Delta's. If *conf* itself
    contains Delta, Delta's are left out. Without *master*, log stores of *conf* are left out: the platform sets them.

    Args:
        jars: Delta's JARs, if they are on this machine. Empty: Delta's package is fetched.
        s3: Settings for S3, from `settings_for_s3`.
    """
    settings = dict(_SESSION_CONF)
    if master is None:  # Delta reads log stores where Spark was started: here they would only hide that value
        conf = {key: value for key, value in conf.items() if not key.startswith("spark.delta.logStore.")}
    else:
        settings |= _DRIVER_CONF | (_LOCAL_CONF if is_local(master) else {})
        if is_local(master) and "spark.driver.memory" not in conf:
            java_options = f"{_SMALL_HEAP} {java_options}"
            settings |= _SMALL_PAGES
        settings["spark.driver.extraJavaOptions"] += f" {java_options}"
        if (coordinates := require_delta(master, conf)) is None:
            pass  # the user brings one
        elif jars:
            settings["spark.jars"] = ",".join(map(str, jars))
        else:
            settings |= {"spark.jars.ivy": str(ivy_home()), "spark.jars.packages": coordinates}
        settings = _joined(settings, folder_conf(conf))
    return _joined(_joined(settings, s3), conf)


def _joined(settings: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    """Return *settings*, overridden by *over*. Lists are joined."""
    lists = {
        key: f"{settings[key]},{over[key]}"
        for key in _JOINED
        if over.get(key) and settings.get(key) and settings[key] not in over[key]
    }
    return {**settings, **over, **lists}


def keep_values_out_of_the_log() -> None:
    """Disable PySpark's log of failed queries: it contains values. The same error is raised anyway."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def build_session(
    app_name: str,
    *,
    master: str | None,
    conf: Mapping[str, str] | None = None,
    java_options: str = "",
    s3: StoreOptions | None = None,
) -> SparkSession:
    """Return a Spark session with Delta. The executors of a cluster get this package (`ship_code`).

    I/O: with *master*, starts a JVM here. The first call on a machine fetches Delta's JARs through Ivy, and the first
    call with a lake on S3 fetches the JARs of S3. Later calls need no network. Without *master*, takes the session of
    the platform: a Databricks job or notebook, Databricks Connect, spark-submit, or ``SPARK_REMOTE``.

    Args:
        app_name: Name of the application in Spark.
        master: Spark master, such as ``local[*]``. None: the platform runs Spark.
        conf: Overrides, as in `session_conf`.
        java_options: Options of a JVM that is started here.
        s3: Address of S3, if the lake is there. A platform's own session is configured by the platform.

    Raises:
        ConfigurationError: ``SPARK_REMOTE`` and *master* are both set; a worker process runs the main script again;
            there is no JDK; a setting would damage tables (`refuse_own`, `check_session`); or as `require_jar` and
            `await_server`.
        RetriableError: As `await_server`.
    """
    keep_values_out_of_the_log()
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # multiprocessing itself asks this way
        raise ConfigurationError(
            "this script was read once more by a worker process, and would start everything a second time",
            next_step="""begin what the script does with: if __name__ == "__main__":""",
        )
    refuse_own(conf or {})
    remote = os.environ.get("SPARK_REMOTE")
    if remote and master is not None:
        raise ConfigurationError(
            "SPARK_REMOTE names a Spark that runs elsewhere,"
            f" and spark.master ({master}) one that would be started here",
            next_step="set spark.master: null (STRANDLINE_SPARK__MASTER=null), or unset SPARK_REMOTE",
        )
    if remote and remote.startswith("sc://"):  # a platform may use other kinds of address
        await_server(remote)
    _set_environment(master, conf or {})
    settings = session_conf(
        master,
        conf or {},
        java_options=java_options,
        jars=cached_jars() if master is not None else (),
        s3=settings_for_s3(s3, conf or {}, ivy_home()) if master is not None else {},
    )
    session = _built(app_name, master, settings)
    if is_remote():
        know_remote_conflicts()
    check_version(session.version)
    check_session(session.conf)
    ship_code(session)
    return session


def _set_environment(master: str | None, conf: Mapping[str, str]) -> None:
    """Set the variables that PySpark reads: its address, and the Python of its workers."""
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master is None or is_local(master):  # on another machine Python is elsewhere
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers otherwise take whatever python3 the PATH has
    elif python := conf.get("spark.pyspark.python"):
        os.environ["PYSPARK_PYTHON"] = python  # spark-submit would read the setting, and pyspark only the variable


def _built(app_name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    if master is not None:
        require_jar()
    of_jvm = {"spark.app.name": app_name, **({} if master is None else {"spark.master": master}), **settings}
    if settings.get("spark.jars.packages"):
        _LOG.info("asking for Spark's packages (%s); the first time they are fetched", settings["spark.jars.packages"])
    try:
        with PROGRESS.step("starting Spark"), without_deprecation_warnings():
            start_jvm(of_jvm)
            return _session_with(of_jvm)
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise without_java() from None


def _session_with(settings: Mapping[str, str]) -> SparkSession:
    """Return a session with *settings*. A platform's session may refuse some: it then keeps its own values of these."""
    is_platforms = "spark.master" not in settings
    if is_platforms and (connected := databricks_connect_session()) is not None:
        set_one_by_one(connected.conf, settings)
        return connected
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _own_interrupts():
            return builder.getOrCreate()
    except PySparkRuntimeError:
        raise  # there is no JVM
    except PySparkException:
        if not is_platforms:
            raise
    session = SparkSession.builder.appName(settings["spark.app.name"]).getOrCreate()
    set_one_by_one(session.conf, settings)
    return session


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep the command line's handler of Ctrl-C, which PySpark replaces by one that raises KeyboardInterrupt."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and handler not in (None, signal.default_int_handler):
            signal.signal(signal.SIGINT, handler)


def await_server(address: str, seconds: float = _ANSWER_SECONDS) -> None:
    """I/O: waits until a Spark Connect server answers. Spark's own client would retry silently for ten minutes.

    Args:
        address: ``sc://host:port/;token=…``. Errors do not quote it, because it may contain a secret.
        seconds: Maximum wait.

    Raises:
        ConfigurationError: A package of the client is missing, or the address is malformed.
        RetriableError: No server answers.
    """
    try:
        import grpc
        from pyspark.sql.connect.client import DefaultChannelBuilder

        server = DefaultChannelBuilder(address)
    except ImportError as error:
        raise ConfigurationError(
            f"SPARK_REMOTE asks for a Spark Connect client, which is not complete here ({error})",
            next_step=install_command("connect"),
        ) from error
    except ValueError:
        raise ConfigurationError(
            "SPARK_REMOTE is not an address that Spark can read", next_step="set it to sc://host:15002"
        ) from None
    with server.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=seconds)
        except grpc.FutureTimeoutError:
            raise RetriableError(
                f"no Spark Connect server answers at {server.endpoint}", next_step="start it, or correct SPARK_REMOTE"
            ) from None
