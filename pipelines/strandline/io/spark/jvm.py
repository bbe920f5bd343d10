"""Start the JVM of a session, without Spark's start messages and without settings on its command line.

PySpark passes every setting to Spark's start script as an argument. There `ps` shows ``fs.s3a.secret.key`` to every
user of the machine. Here settings pass through a file that only this user can read. It is removed once the JVM runs.
"""

from __future__ import annotations

import os
import re
import shlex
import string
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql.utils import is_remote

from strandline.errors import RetriableError

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
_IVY_ENDS: Final = re.compile(rb"\s*\d+ artifacts copied, \d+ already retrieved")


class Quiet:
    """Filter for the standard error of a starting JVM. Ivy's lines are dropped."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def shown(self, line: bytes) -> bytes:
        """Return *line*, or nothing if it is noise."""
        if self._held or line.startswith(_IVY_BEGINS):
            self._held = [] if _IVY_ENDS.match(line) else [*self._held, line]
            return b""
        return b"" if line.startswith(_NOISE) else line

    @property
    def is_fetching(self) -> bool:
        """True while Ivy works. Of a JVM that ended: Ivy failed, and its lines end with a stack trace."""
        return bool(self._held)


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
    with _arguments(settings), _filtered() as output:
        gateway = launch_gateway(popen_kwargs={"stderr": output})  # type: ignore[no-untyped-call]  # why: typed in part
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _arguments(settings: Mapping[str, str]) -> Iterator[None]:
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
            yield
        finally:
            if before is None:
                del os.environ[_ARGUMENTS]
            else:
                os.environ[_ARGUMENTS] = before


def _without_files(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return *arguments* without ``--properties-file``, and the last such file: Spark accepts only one."""
    remaining: list[str] = []
    files: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name == "--properties-file":
            files = [value if equals else next(waiting, "")]
        else:
            remaining.append(argument)
    return remaining, files


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
def _filtered() -> Iterator[int]:
    """Yield a pipe for the JVM's standard error. A thread filters its lines as long as the JVM lives."""
    reading, writing = os.pipe()
    quiet = Quiet()
    thread = threading.Thread(target=_hand_on, args=(reading, quiet), name="stderr of Spark", daemon=True)
    thread.start()
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
    os.close(writing)


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
