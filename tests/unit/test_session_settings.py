"""Session settings that override the platform's, and the messages of a starting JVM."""

from __future__ import annotations

import os
import shlex
import stat
import warnings
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from strandline.errors import ConfigurationError
from strandline.io.spark.jvm import Quiet, _arguments, as_properties
from strandline.io.spark.session import session_conf
from strandline.io.spark.session_settings import (
    PINNED,
    UNSET,
    check_session,
    pinned_values,
    refuse_own,
    set_one_by_one,
    without_deprecation_warnings,
)
from strandline.settings.configuration import SparkSettings

ESCAPED = "spark.sql.parser.escapedStringLiterals"
TXN = "spark.databricks.delta.write.txnAppId"


class Platform:
    """The settings of a session that lets none be changed, and shows only what it wants to."""

    def __init__(self, shown: dict[str, str], hidden: dict[str, str] | None = None) -> None:
        self.getAll = shown
        self._hidden = hidden or {}

    def get(self, key: str, _default: str | None) -> str | None:
        if key not in self._hidden:
            raise PySparkException(f"{key} is not available")
        return self._hidden[key]

    def unset(self, key: str) -> None:
        raise PySparkException(f"{key} is not available")

    def set(self, key: str, value: str) -> None:
        if key != ESCAPED:
            raise PySparkException(f"{key} is not available")
        self.getAll[key] = value


@pytest.mark.parametrize(
    "platform", [Platform({}), Platform({"spark.sql.ansi.enabled": "TRUE"}), Platform({}, {ESCAPED: "false"})]
)
def test_a_platform_that_refuses_harmless_settings_is_no_obstacle(platform: Any) -> None:
    check_session(platform)


@pytest.mark.parametrize(
    "platform", [Platform({ESCAPED: "true"}), Platform({}, {ESCAPED: "true"}), Platform({TXN: "another"})]
)
def test_a_platform_with_a_harmful_setting_is_refused_in_one_line(platform: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"does not let a setting be changed: spark\.\S+ (is true, and|must not)"
    ) as refused:
        check_session(platform)
    assert "\n" not in str(refused.value)


def test_settings_that_a_platform_refuses_are_left_out() -> None:
    platform: Any = Platform({})
    set_one_by_one(platform, session_conf(None, {}))
    assert platform.getAll == {ESCAPED: "false"}
    check_session(platform)


@pytest.mark.parametrize("key", [*PINNED, *UNSET])
def test_a_user_cannot_ask_for_what_would_damage_tables(key: str) -> None:
    with pytest.raises(ConfigurationError, match=key.replace(".", r"\.")):
        refuse_own({key: "other"})
    refuse_own({key: value for key, (value, _) in PINNED.items()} | {"spark.sql.shuffle.partitions": "8"})


@pytest.mark.parametrize("master", ["local[2]", "yarn", None])
def test_every_session_is_sent_them(master: str | None) -> None:
    assert pinned_values().items() <= session_conf(master, {}).items()


IVY = b""":: loading settings :: url = jar:file:/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /ivy/cache
The jars for the packages stored in: /ivy/jars
a#b added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-1;1.0
\tconfs: [default]
\tfound a#b;1 in central
:: retrieving :: org.apache.spark#spark-submit-parent-1
\tconfs: [default]
"""
DONE = b"\t1 artifacts copied, 0 already retrieved (6kB/4ms)\n"
NOISE = b"""WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
"""
ERROR = b"2026-01-01T00:00:00 ERROR SparkContext: out of disk\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (NOISE, b""),
        (NOISE + ERROR, ERROR),
        (IVY + DONE + NOISE + ERROR, ERROR),
        (IVY, b""),
        (IVY + b"Exception: unresolved dependency: a#b;1: not found\n\tat java.Main\n", b""),
    ],
)
def test_a_start_is_quiet_and_a_failure_is_not(said: bytes, shown: bytes) -> None:
    quiet = Quiet()
    assert b"".join(map(quiet.shown, said.splitlines(keepends=True))) == shown
    assert quiet.is_fetching == (IVY in said and DONE not in said), "`start_jvm` then raises an error of one line"


def test_settings_are_written_as_java_reads_them() -> None:
    written = as_properties({"spark.a": "x=1 \\ ü\n#", "spark.b c": "", "other": "left out"})
    assert written == "spark.a=x\\u003d1\\u0020\\u005c\\u0020\\u00fc\\u000a\\u0023\nspark.b\\u0020c=\n"


def test_the_start_script_is_given_a_file_that_is_private_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs.properties"
    theirs.write_text("spark.theirs=1")
    before = f"--conf spark.own=1 --properties-file {theirs} pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", before)
    with _arguments({"spark.secret": "s"}):
        option, name, *rest = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        file = Path(name)
        assert (option, rest) == ("--properties-file", ["--conf", "spark.own=1", "pyspark-shell"])
        assert file.read_text() == "spark.theirs=1\nspark.secret=s\n"
        assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == before
    assert not file.parent.exists()


def test_settings_are_not_shown_with_the_rest() -> None:
    assert "hidden" not in repr(SparkSettings(conf={"spark.hadoop.fs.s3a.secret.key": "hidden"}))


def test_of_pinned_settings_alone_no_warning_is_shown() -> None:
    with without_deprecation_warnings():
        warnings.warn(
            f"The SQL config '{ESCAPED}' has been deprecated in Spark v4.0 and may be removed in the future.",
            stacklevel=1,
        )
        with pytest.warns(UserWarning, match="another"):
            warnings.warn("The SQL config 'spark.sql.another' has been deprecated", stacklevel=1)
