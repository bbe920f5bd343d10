"""Collections that the filters admit since the last run: no event has told what they hold, so they are read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pipelines.jobs.means import Means
from pipelines.jobs.snapshot_plan import captured_for_snapshots
from pipelines.model.namespaces import Namespace
from pipelines.source.client import Collection, captured_collections
from pipelines.source.stages import Selection

_FILTERS = ("databases", "collections", "excluded_databases", "excluded_collections", "match_mode", "skipped_operations")


def filters_of(selection: Selection) -> str:
    """The namespaces and operations that *selection* admits, in words: kept beside the stream for the next run."""
    return json.dumps({name: getattr(selection, name) for name in _FILTERS})


def earlier_selection(selection: Selection, filters: str) -> Selection:
    """*selection* with the *filters* of an earlier run."""
    stored: dict[str, Any] = {name: value if isinstance(value, str) else tuple(value) for name, value in json.loads(filters).items()}
    return replace(selection, **stored)


def returning(means: Means) -> list[Namespace]:
    """I/O: captured collections of which the filters of the last run left something out that these do not: what happened meanwhile is in no
    event. Lists the source's collections where the filters differ."""
    earlier = _earlier(means)
    if earlier is None:
        return []
    of_all = bool(set(earlier.skipped_operations) - set(means.selection.skipped_operations))
    captured = captured_collections(means.client, means.selection)
    return [Namespace(where.db, where.name) for where in captured if of_all or not earlier.admits(where.db, where.name)]


def newcomers(means: Means) -> list[Collection]:
    """I/O: lists the source's collections where the filters differ from those of the last run; nothing where they do not.

    A collection that was left out for a while comes anew.
    """
    earlier = _earlier(means)
    if earlier is None or not means.settings.snapshot_policy.first:
        return []
    return [where for where in captured_for_snapshots(means) if not earlier.admits(where.db, where.name)]


def _earlier(means: Means) -> Selection | None:
    """What the last run captured; None where this one captures the same."""
    filters = means.writer.filters
    return None if filters is None or filters == filters_of(means.selection) else earlier_selection(means.selection, filters)
