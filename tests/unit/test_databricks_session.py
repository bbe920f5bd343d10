"""A session of Databricks Connect is built where it is installed and no other session is asked for."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from strandline.errors import ConfigurationError
from strandline.io.spark.databricks_session import databricks_connect_session

_NOT_CONFIGURED = "Cluster id or serverless are required but were not specified."  # as databricks-connect 18.3 says it


class _Builder:
    """The one method of `DatabricksSession.builder` that is called."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def getOrCreate(self) -> Any:  # noqa: N802  # why: as Spark's
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def install(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Stand in for the package: it brings a PySpark of its own, which cannot be installed beside the tests' one."""
    module = ModuleType("databricks.connect")
    session = type("DatabricksSession", (), {"builder": _Builder(answer)})
    module.DatabricksSession = session  # type: ignore[attr-defined]  # why: a module made here
    monkeypatch.setitem(sys.modules, "databricks.connect", module)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABRICKS_RUNTIME_VERSION", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)


def test_without_the_package_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "databricks.connect", None)
    assert databricks_connect_session() is None


def test_its_session_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, answer := object())
    assert databricks_connect_session() is answer


@pytest.mark.parametrize("variable", ["DATABRICKS_RUNTIME_VERSION", "SPARK_REMOTE"])
def test_a_job_and_a_named_server_have_sessions_of_their_own(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    install(monkeypatch, AssertionError("asked"))
    monkeypatch.setenv(variable, "18")
    assert databricks_connect_session() is None


def test_a_missing_configuration_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Exception(_NOT_CONFIGURED))
    with pytest.raises(ConfigurationError, match=r"opens no session: .*required.* → databricks auth login") as refused:
        databricks_connect_session()
    assert "\n" not in str(refused.value)
