"""Pipeline of a notebook: the same configuration and environment as the `strandline` command."""

from __future__ import annotations

import os
from pathlib import Path

from strandline.jobs.context import JobContext, open_context
from strandline.settings import DEFAULT_CONF
from strandline.settings.configuration import load_settings


def open_notebook() -> JobContext:
    """Open the pipeline that the `strandline` command would open in the checkout.

    ``STRANDLINE_TARGET`` chooses the target (default: ``local``), ``STRANDLINE_CONF`` the configuration folder.

    I/O: as `open_context`. Changes the working directory to the checkout, because relative paths in the configuration
    start there. Jupyter and Databricks start a notebook in its own folder. Calling again is safe.

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
    """Return the nearest of *folder* and its parents with a ``conf/base.yml``; *folder* itself if none has one."""
    return next((place for place in (folder, *folder.parents) if (place / "conf" / "base.yml").is_file()), folder)
