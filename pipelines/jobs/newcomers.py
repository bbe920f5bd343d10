"""Collections that the filters admit since the last run: no event has told what they hold, so they are read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pipelines.jobs.means import Means
from pipelines.jobs.snapshot_plan import captured_for_snapshots
from pipelines.source.client import Collection
from pipelines.source.stages import Selection

_FILTERS = ("databases", "collections", "excluded_databases", "excluded_collections", "match_mode")


def filters_of(selection: Selection) -> str:
    """The namespaces that *selection* admits, in words: kept beside the stream for the next run."""
    return json.dumps({name: getattr(selection, name) for name in _FILTERS})


def earlier_selection(selection: Selection, filters: str) -> Selection:
    """*selection* with the *filters* of an earlier run."""
    stored: dict[str, Any] = {name: value if isinstance(value, str) else tuple(value) for name, value in json.loads(filters).items()}
    return replace(selection, **stored)


def newcomers(means: Means) -> list[Collection]:
    """I/O: lists the source's collections where the filters differ from those of the last run; nothing where they do not.

    A collection that was left out for a while comes anew: what happened meanwhile is in no event.
    """
    filters = means.writer.filters
    if filters is None or filters == filters_of(means.selection) or not means.settings.snapshot_policy.first:
        return []
    earlier = earlier_selection(means.selection, filters)
    return [where for where in captured_for_snapshots(means) if not earlier.admits(where.db, where.name)]
