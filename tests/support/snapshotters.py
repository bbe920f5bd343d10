"""Snapshotters of mode ``custom`` as another distribution would install them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest


class OnceOnly:
    """No hook of its own."""

    def should_snapshot_data(self, *, offset_exists: bool) -> bool:
        return not offset_exists

    def should_stream(self) -> bool:
        return False

    def should_snapshot_on_data_error(self) -> bool:
        return True


class Failing(OnceOnly):
    def should_stream(self) -> bool:
        raise LookupError("no calendar")


class Always(OnceOnly):
    """A snapshot at every start; its hooks note that they were called, and the second one fails."""

    told: ClassVar[list[str]] = []

    def should_snapshot_data(self, *, offset_exists: bool) -> bool:  # noqa: ARG002  # why: the protocol names it
        return True

    def should_stream(self) -> bool:
        return True

    def snapshot_completed(self) -> None:
        self.told.append("completed")

    def snapshot_aborted(self) -> None:
        self.told.append("aborted")
        raise LookupError("no pager")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the snapshotters findable: ``once``, ``failing``, ``always``."""
    about = folder / "ours-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    lines = [
        f"{name} = {__name__}:{kind.__name__}"
        for name, kind in (("once", OnceOnly), ("failing", Failing), ("always", Always))
    ]
    (about / "entry_points.txt").write_text("\n".join(["[strandline.snapshotters]", *lines]))
    monkeypatch.syspath_prepend(folder)
