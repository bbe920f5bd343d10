"""Start the JVM of a session, without Spark's start messages and without settings on its command line.

PySpark passes every setting to Spark's start script as an argument. There `ps` shows ``fs.s3a.secret.key`` to every
user of the machine. Here settings pass through a file that only this user can read. It is removed once the JVM runs.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import string
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql.utils import is_remote

from pipelines.errors import RetriableError

_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "._-/")
_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"

# Messages of every start that need no action.
_NOISE: Final = (
    b"WARNING: Using incubator modules:",
    b"Using Spark's default log4j profile:",
    b"Setting default log level to ",
    b"To adjust logging level use sc.setLogLevel",
)
_IVY_BEGINS: Final = (b":: loading settings ::", b"Ivy Default Cache set to:")
_SILENT_SECONDS = 600
"""Time after which a fetch of packages that says nothing is ended. A large package may take minutes."""
_IVY_ENDS: Final = re.compile(rb"\s*\d+ artifacts copied, \d+ already retrieved")


class Quiet:
    """Filter for the standard error of a starting JVM. Ivy's lines are dropped."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._heard_at = time.monotonic()

    def shown(self, line: bytes) -> bytes:
        """Return *line*, or nothing if it is noise."""
        self._heard_at = time.monotonic()
        if self._held or line.startswith(_IVY_BEGINS):
            self._held = [] if _IVY_ENDS.match(line) else [*self._held, line]
            return b""
        return b"" if line.startswith(_NOISE) else line

    @property
    def is_fetching(self) -> bool:
        """True while Ivy works. Of a JVM that ended: Ivy failed, and its lines end with a stack trace."""
        return bool(self._held)

    @property
    def is_stalled(self) -> bool:
        """True if Ivy waits for a server that does not answer. Ivy itself would wait without end."""
        return self.is_fetching and time.monotonic() - self._heard_at > _SILENT_SECONDS


def start_jvm(settings: Mapping[str, str]) -> None:
    """I/O: starts the JVM of the next session. Does nothing if a JVM runs, or if the session is remote.

    Args:
        settings: Settings of the session, including those of the JVM itself, such as memory and JARs.

    Raises:
        PySparkRuntimeError: The JVM ended at once. Its messages have been shown.
        RetriableError: The packages of the session could not be fetched.
    """
    if is_remote() or "SPARK_REMOTE" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    from pyspark import SparkContext  # noqa: TID251  # why: only so a builder takes a JVM that runs
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    with _arguments(settings) as file, _filtered(file) as said:
        gateway = launch_gateway(popen_kwargs={"stderr": said})  # type: ignore[no-untyped-call]  # why: typed in part
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _arguments(settings: Mapping[str, str]) -> Iterator[Path]:
    """Pass *settings* to Spark's start script in a file. The user's own arguments follow, and override them."""
    before = os.environ.get(_ARGUMENTS)
    own, files = _without_files(shlex.split(before or "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="strandline-") as folder:  # made for this user alone
        file = Path(folder) / "spark.properties"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as written:
            for theirs in files:
                written.write(f"{Path(theirs).read_text(encoding='utf-8')}\n")
            written.write(as_properties(settings))
        # Without a properties file Spark reads spark-defaults.conf; a user's properties file replaces the defaults.
        defaults = [] if files else ["--load-spark-defaults"]
        os.environ[_ARGUMENTS] = shlex.join([*defaults, "--properties-file", str(file), *own])
        try:
            yield file
        finally:
            if before is None:
                del os.environ[_ARGUMENTS]
            else:
                os.environ[_ARGUMENTS] = before


def _without_files(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return *arguments* without ``--properties-file``, and the last such file: Spark accepts only one."""
    kept: list[str] = []
    files: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name == "--properties-file":
            files = [value if equals else next(waiting, "")]
        else:
            kept.append(argument)
    return kept, files


def as_properties(settings: Mapping[str, str]) -> str:
    """Return Java properties text. Names outside ``spark.`` are left out, because Spark would warn about them."""
    return "".join(
        f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items() if key.startswith("spark.")
    )


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if chr(code) in _PLAIN else f"\\u{code:04x}" for code in codes)


@contextmanager
def _filtered(file: Path) -> Iterator[int]:
    """Yield a pipe for the JVM's standard error. A thread filters its lines as long as the JVM lives.

    Args:
        file: The JVM's properties file. Its command line names it.
    """
    reading, writing = os.pipe()
    quiet = Quiet()
    thread = threading.Thread(target=_hand_on, args=(reading, quiet), name="stderr of Spark", daemon=True)
    thread.start()
    started = threading.Event()
    threading.Thread(target=_end_if_stalled, args=(quiet, file, started), name="packages of Spark", daemon=True).start()
    try:
        yield writing
    except BaseException:
        os.close(writing)
        thread.join(timeout=10)  # what the JVM said comes before what is said of it
        if quiet.is_fetching:
            raise RetriableError(
                "the packages of Spark could not be fetched, which the first start needs",
                next_step="check the network, the proxy settings and spark.jars.packages in spark.conf",
            ) from None
        raise
    finally:
        started.set()
    os.close(writing)


def _end_if_stalled(quiet: Quiet, file: Path, started: threading.Event) -> None:
    """End the JVM that was started with *file*, if its packages do not arrive."""
    while not started.wait(1):
        if quiet.is_stalled:
            shown = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True)
            for line in shown.stdout.splitlines():
                pid, parent, command = line.split(None, 2)
                if int(parent) == os.getpid() and str(file) in command:
                    os.kill(int(pid), signal.SIGTERM)
            return


def _hand_on(reading: int, quiet: Quiet) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            _show(quiet.shown(line))


def _show(text: bytes) -> None:
    """To the file that the JVM would have inherited: `sys.stderr` may be somebody's replacement."""
    while text:
        try:
            text = text[os.write(2, text) :]
        except OSError:  # a terminal that is closed: the JVM must go on
            return
