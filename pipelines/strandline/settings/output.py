"""Settings sections ``gold``, ``quality``, ``logging`` and ``metrics``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import Field, field_validator

from strandline.settings.selection import Engine, Section

_LABEL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_OWN_LABELS: Final = frozenset(
    {
        "collection",
        "done",
        "kind",
        "layer",
        "le",
        "operation",
        "quantile",
        "source",
        "state",
        "table",
        "instance",
        "job",
    }
)


class GoldSettings(Section):
    """SQL files of gold, and their build."""

    engine: Engine | None = Field(
        None,
        description="Program that merges changed keys into an incremental table. `auto`: delta-rs, in this process, if "
        "at most 10,000 keys changed, the table has at most 256 MiB (not compressed) and delta-rs reaches the lake (a "
        "folder of this machine, or S3; `strandline explain gold` has the other conditions); Spark merges all else. "
        "`spark`: Spark always. Spark computes the rows of the changed keys in both cases. null: as `engine`.",
    )
    sql_dir: str | None = Field(
        None,
        description="Folder of gold's *.sql files, relative to the folder that holds the configuration folder. null: "
        "`<conf>/gold` if it holds any, else no gold.",
    )
    tests_dir: str | None = Field(
        None,
        description="Folder of the *.yml cases of `gold test`, relative like `sql_dir`. null: `tests` beside the SQL "
        "files.",
    )
    max_threads: int = Field(4, ge=1, le=64, description="Maximum views and tables that are built at the same time.")

    @property
    def cases_folder(self) -> Path | None:
        """Folder of the cases of `gold test`. None: there is no gold."""
        if self.tests_dir:
            return Path(self.tests_dir)
        return Path(self.sql_dir) / "tests" if self.sql_dir else None


class QualitySettings(Section):
    """Suites of expectations, and their HTML reports."""

    suites_dir: str | None = Field(
        None,
        description="Folder of *.yml suites, relative to the folder that holds the configuration folder. null: "
        "`<conf>/quality` if it holds any, else no suites.",
    )
    max_quarantined_rows: int = Field(
        10_000,
        ge=1,
        description="Maximum rows that one expectation may put into quarantine. If more rows fail, no row is "
        "quarantined and the gate in front of gold closes.",
    )
    docs_dir: str = Field(
        "lake/quality-docs",
        description="Folder of the HTML reports. On Databricks, a folder under `/Volumes`. A URI is refused.",
    )

    @field_validator("docs_dir")
    @classmethod
    def _folder(cls, value: str) -> str:
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", value):
            raise ValueError(
                "pages are written as files, and this is a URI: "
                "name a folder (on Databricks /Volumes/<catalog>/<schema>/<volume>)"
            )
        return value


class LoggingSettings(Section):
    """Document keys in errors and the log."""

    show_keys: bool = Field(
        False,
        description="Name documents by their key in errors and the log. The key is the `_id`, which may be "
        "personal data. false: documents are named by the first 12 digits of the key's SHA-256 (`key "
        "#6b86b273ff34`). The runbook says how to find the document.",
    )


class MetricsSettings(Section):
    """Prometheus endpoint of `capture` and `run`."""

    port: int | None = Field(
        None, ge=1, le=65_535, description="TCP port of the `/metrics` endpoint. null: no endpoint."
    )
    address: str = Field(
        "127.0.0.1", description="Network interface of the endpoint, as an IP address. `0.0.0.0`: all interfaces."
    )
    tags: dict[str, str] = Field(
        default_factory=dict,
        description="Labels that every series gets beside `source`, such as `environment: prod`. Debezium's "
        "`custom.metric.tags`.",
    )
    max_tables: int = Field(
        50,
        ge=1,
        description="Maximum number of tables and of collections with series of their own. All others are summed "
        "under `(others)`.",
    )

    @field_validator("tags")
    @classmethod
    def _labels(cls, value: dict[str, str]) -> dict[str, str]:
        wrong = sorted(name for name in value if not _LABEL.fullmatch(name) or name in _OWN_LABELS)
        if wrong:
            raise ValueError(
                f"{', '.join(wrong)}: a tag is a name of letters, digits and underscores that begins with a letter, "
                f"and none of {', '.join(sorted(_OWN_LABELS))}"
            )
        return value
