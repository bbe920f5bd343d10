"""Hide pandas from a process that imports this module first. Worker processes of the native engine do.

pyarrow imports pandas as soon as it makes an array, if it can. A worker needs nothing of it. Seen for two workers and
the process that forks them: 168 MB instead of 202.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Hidden(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  # why: of the interface
        target: ModuleType | None = None,  # noqa: ARG002  # why: as above
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden from this process", name=fullname)
        return None


sys.meta_path.insert(0, _Hidden())
