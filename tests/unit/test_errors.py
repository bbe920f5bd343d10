"""The error tree: exit codes that scripts may rely on, and messages of one line."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from strandline import cli, errors
from strandline.errors import (
    ConfigurationError,
    ContractError,
    FencedError,
    LakeUnavailable,
    QualityGateClosed,
    ResumePointLost,
    RetriableError,
    StrandlineError,
    TerminalError,
    install_command,
    missing_right,
    strandline_error,
)
from strandline.source.errors import NoAnswer

_CODES = {
    StrandlineError: 1,
    TerminalError: 1,
    ConfigurationError: 2,
    ResumePointLost: 3,
    ContractError: 4,
    QualityGateClosed: 5,
    FencedError: 6,
    RetriableError: 75,
    LakeUnavailable: 75,
}


@pytest.mark.parametrize(("error", "code"), _CODES.items())
def test_exit_codes_are_a_promise(error: type[StrandlineError], code: int) -> None:
    assert error.exit_code == code


def test_every_error_has_its_own_exit_code_in_the_promise() -> None:
    tree = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, StrandlineError)}
    assert tree == set(_CODES)


def test_every_error_is_retriable_terminal_or_a_closed_gate() -> None:
    assert all(
        issubclass(kind, TerminalError) for kind in (ConfigurationError, ResumePointLost, ContractError, FencedError)
    )
    assert not issubclass(RetriableError, TerminalError)


def test_the_next_step_closes_the_line() -> None:
    assert str(ConfigurationError("no such key", next_step="see conf/README.md")) == "no such key → see conf/README.md"
    assert str(RetriableError("no answer")) == "no answer"


class _Refused(Exception):
    def __init__(self, sql_state: str) -> None:
        super().__init__("User does not have MODIFY on Table 'orders'.\n\tat com.example.Acl(Acl.java:1)")
        self._sql_state = sql_state

    def getSqlState(self) -> str:  # noqa: N802  # why: PySpark's name
        return self._sql_state


def test_a_missing_right_is_known_by_its_sql_state() -> None:
    found = missing_right(_Refused("42501"))
    assert isinstance(found, ConfigurationError)
    assert str(found).startswith("the catalog refuses this principal: User does not have MODIFY on Table '…'")
    assert "strandline explain catalogs" in str(found)
    assert missing_right(_Refused("42704")) is missing_right(ValueError("no SQLSTATE at all")) is None


@pytest.mark.parametrize("message", ["two\nlines", "a stack\r\n\tat somewhere", "  padded  "])
def test_a_message_with_line_breaks_is_one_line(message: str) -> None:
    text = str(ContractError(message, next_step=message))
    assert len(text.splitlines()) == 1
    assert text == text.strip()


def test_the_command_prints_one_line_and_ends_with_the_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["strandline", "--target", "no-such-target", "status"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == ConfigurationError.exit_code
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1
    assert printed[0].startswith("strandline: ")


_BEFORE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 3602, in main
    process()
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ModuleNotFoundError: No module named 'strandline'", "a Spark worker lacks this package (strandline)"),
        ("ModuleNotFoundError: No module named 'bson.raw_bson'", "a Spark worker lacks the Python package bson"),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has"
            " different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.",
            "a Spark worker has Python 3.12, and this process has 3.11",
        ),
        (
            "pyspark.errors.exceptions.base.PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be"
            " installed; however, it was not found.",
            "a Spark worker lacks a Python package: PyArrow >= 18.0.0 must be installed",
        ),
    ],
)
def test_a_worker_whose_python_lacks_something_is_named(text: str, told: str) -> None:
    error = strandline_error(RuntimeError(f"{_BEFORE}{text}\n SQLSTATE: 38000"))
    assert isinstance(error, ConfigurationError)
    assert error.message.startswith(told)
    assert "strandline doctor --workers" in error.next_step


def test_a_worker_without_python_is_named() -> None:
    text = 'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory'
    assert str(strandline_error(RuntimeError(text))).startswith("a Spark worker has no program /opt/python")


@pytest.mark.parametrize("kind", [ConfigurationError, RetriableError, NoAnswer])
def test_an_error_that_a_worker_raises_stays_that_error(kind: type[StrandlineError]) -> None:
    raised = kind("no TLS connection can be made (ca.pem)", next_step="check tlsCAFile")
    text = f"{_BEFORE}{kind.__module__}.{kind.__name__}: {raised}\n\tat org.apache.spark.Task.run(Task.scala)"
    error = strandline_error(RuntimeError(text))
    assert type(error) is kind
    assert (error.message, error.next_step) == (
        "on a Spark worker: no TLS connection can be made (ca.pem)",
        "check tlsCAFile",
    )


@pytest.mark.parametrize(
    "error",
    [
        ValueError("ModuleNotFoundError: No module named 'strandline'"),
        RuntimeError(f"{_BEFORE}ValueError: secret\npipelines.errors.ConfigurationError: forged"),
        RuntimeError(f"{_BEFORE}strandline.errors.Nothing: forged"),
    ],
)
def test_any_other_error_is_none_of_ours(error: Exception) -> None:
    assert strandline_error(error) is None


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'strandline[spark]'"),
        ({"url": "file:///gone/strandline.whl", "archive_info": {}}, "pip install 'strandline[spark]'"),
        ({"url": "file://{here}/a%20b.whl", "archive_info": {}}, "pip install '{here}/a b.whl[spark]'"),
        ({"url": "file://{here}", "dir_info": {"editable": True}}, "pip install -e '{here}[spark]'"),
        ({"url": "https://h/a.whl", "archive_info": {}}, "pip install 'strandline[spark] @ https://h/a.whl'"),
        (
            {"url": "https://h/a.git", "vcs_info": {"vcs": "git"}},
            "pip install 'strandline[spark] @ git+https://h/a.git'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, command: str
) -> None:
    (tmp_path / "a b.whl").touch()
    info = tmp_path / "strandline-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strandline\nVersion: 0.1.0\n", encoding="utf-8")
    if origin is not None:
        text = json.dumps(origin).replace("{here}", str(tmp_path))
        (info / "direct_url.json").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert install_command("spark") == command.replace("{here}", str(tmp_path))
