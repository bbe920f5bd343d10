"""Settings of what Strandline makes from silver, and of what it tells about itself: gold, quality, metrics."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from pipelines.settings.selection import Section


class GoldSettings(Section):
    """Where gold's SQL files are, and how they are built."""

    sql_dir: str | None = Field(
        None, description="Folder of *.sql files; default: `<conf>/gold` where it holds any, else none."
    )
    tests_dir: str | None = Field(
        None, description="Folder of the *.yml cases of `gold test`; default: `tests` beside the SQL files."
    )
    max_threads: int = Field(4, ge=1, le=64, description="Views and tables that are built at once.")


class QualitySettings(Section):
    """Which suites of expectations are checked, and where their pages are written."""

    suites_dir: str | None = Field(
        None, description="Folder of *.yml suites; default: `<conf>/quality` where it holds any, else none."
    )
    max_quarantined_rows: int = Field(
        10_000, ge=1, description="More rows that fail one expectation are not set aside: gold is held."
    )
    docs_dir: str = Field(
        "lake/quality-docs", description="Folder of the HTML pages; on Databricks one under `/Volumes`, no URI."
    )

    @field_validator("docs_dir")
    @classmethod
    def _folder(cls, value: str) -> str:
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", value):
            raise ValueError(
                "pages are written as files, and this is a URI: name a folder (on Databricks /Volumes/<catalog>/<schema>/<volume>)"
            )
        return value


class LoggingSettings(Section):
    """What errors and the log say of documents."""

    show_keys: bool = Field(
        False,
        description="Whether errors and the log name a document by its key. The key is the `_id`, which may be personal. By default they "
        "name it by the first 12 digits of the key's SHA-256: `key #6b86b273ff34`. The runbook says how to find the document.",
    )


class MetricsSettings(Section):
    """What `capture` and `run` tell Prometheus about themselves."""

    port: int | None = Field(None, ge=1, le=65_535, description="Serve `/metrics` there while it runs; none: do not.")
    address: str = Field("127.0.0.1", description="Of which interface; `0.0.0.0`: all.")
