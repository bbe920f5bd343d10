"""Strandline: ingestion of MongoDB change streams into a Delta lakehouse (bronze, silver, gold)."""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes as long as all of Python's start, and Ctrl-C is not handled before
if TYPE_CHECKING:
    from typing import Any, Final

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
    )
    from strandline.lakehouse import Lakehouse, Progress, connect
    from strandline.reader import read

__version__ = "0.1.0"

__all__ = [
    "ConfigurationError",
    "ContractError",
    "FencedError",
    "LakeUnavailable",
    "Lakehouse",
    "Progress",
    "QualityGateClosed",
    "ResumePointLost",
    "RetriableError",
    "StrandlineError",
    "TerminalError",
    "connect",
    "read",
]
"""Public names. Everything else may change without notice."""

_MODULES: Final = {"Lakehouse": "lakehouse", "Progress": "lakehouse", "connect": "lakehouse", "read": "reader"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: workers and commands import this package for other modules."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
