"""How a notebook finds its lake: by the configuration beside it and the environment, as the command does."""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.jobs.context import JobContext, open_context
from pipelines.settings.configuration import DEFAULT_CONF, load_settings


def open_notebook() -> JobContext:
    """The lake that `strandline` would open in the checkout: ``STRANDLINE_TARGET`` (``local`` by default) and ``STRANDLINE_CONF`` name the
    configuration.

    I/O: as `open_context`. The process moves to the checkout, so that the configuration's relative folders mean what they mean to the
    command: Jupyter and Databricks start a notebook in its own folder. Calling again is safe.

    Raises:
        ConfigurationError: As `load_settings` and `open_context`.
    """
    os.chdir(checkout_of(Path.cwd()))
    return open_context(
        load_settings(
            os.environ.get("STRANDLINE_TARGET") or "local", Path(os.environ.get("STRANDLINE_CONF") or DEFAULT_CONF)
        )
    )


def checkout_of(folder: Path) -> Path:
    """The nearest of *folder* and its parents that holds ``conf/base.yml``; *folder* itself where none does."""
    return next((place for place in (folder, *folder.parents) if (place / "conf" / "base.yml").is_file()), folder)
