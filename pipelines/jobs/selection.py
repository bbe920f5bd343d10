"""What of the source is captured: the settings as a selection, and the selection held against the source that is there."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pipelines.errors import ConfigurationError
from pipelines.settings.capture import CaptureSettings
from pipelines.source.client import AnyClient, Collection, captured_collections, collections_without_images
from pipelines.source.deployment import Deployment
from pipelines.source.sharding import check_shard_keys, shard_keys
from pipelines.source.stages import Images, Selection

_NAMED = 20

log = logging.getLogger("strandline.capture")


@dataclass(frozen=True)
class SelectionReport:
    """What a selection means on a source, and what a person probably did not mean by it."""

    collections: tuple[Collection, ...]
    warnings: tuple[str, ...]


def selection_of(capture: CaptureSettings) -> Selection:
    """Raises ConfigurationError where scope, target and patterns do not fit each other."""
    return Selection.of(
        capture.scope,
        capture.target,
        capture.database_include_list,
        capture.collection_include_list,
        excluded_databases=capture.database_exclude_list,
        excluded_collections=capture.collection_exclude_list,
        match_mode=capture.filters_match_mode,
        skipped_operations=capture.skipped_operations,
        images=Images.of(capture.mode, capture.full_update_type),
        fields=capture.field_policy,
        user_pipeline=capture.user_pipeline,
        signals=capture.signal_namespace,
    )


def stream_of(capture: CaptureSettings) -> str:
    """Which change stream that is, in words: its tokens mean nothing to another one, which would accept them all the same."""
    return f"{capture.scope} {capture.target}" if capture.target else capture.scope


def checked_selection(capture: CaptureSettings, client: AnyClient, deployment: Deployment) -> Selection:
    """I/O: lists the source's collections, where a filter, an image or a limit is asked for; logs what selects nothing.

    Raises:
        ConfigurationError: As `selection_of`, `check_ids` and `inspect_selection`, or more collections are captured than there may be.
    """
    selection = selection_of(capture)
    check_ids(capture, selection, client, deployment)
    limited = capture.guardrail_collections_max > 0
    if (
        limited
        or selection.images.recorded
        or selection != Selection(selection.scope, selection.database, selection.collection)
    ):
        found = inspect_selection(selection, client, deployment)
        for warning in (*found.warnings, *guardrail(capture, found)):
            log.warning("%s", warning)
    return selection


def check_ids(capture: CaptureSettings, selection: Selection, client: AnyClient, deployment: Deployment) -> str:
    """I/O: on a sharded cluster, ask for the shard keys of the captured collections. What can be said of their `_id`s.

    Raises:
        ConfigurationError: An `_id` of one of them may exist on several shards, and ``sharded_ids_are_unique`` is not set.
    """
    if not deployment.sharded:
        return "unique (replica set)"
    if capture.sharded_ids_are_unique:
        return "taken for unique (capture.sharded_ids_are_unique)"
    check_shard_keys(shard_keys(client, captured_collections(client, selection)))
    return "unique (the shard key of every sharded collection is _id)"


def guardrail(capture: CaptureSettings, found: SelectionReport) -> list[str]:
    """A warning where more collections are captured than there may be.

    Raises:
        ConfigurationError: There are more, and that ends the capture.
    """
    count, most = len(found.collections), capture.guardrail_collections_max
    if not most or count <= most:
        return []
    what = f"{count} collections are captured, and capture.guardrail_collections_max is {most}"
    if capture.guardrail_collections_limit_action == "fail":
        raise ConfigurationError(what, next_step="narrow capture.collection_include_list, or raise the limit")
    return [what]


def inspect_selection(selection: Selection, client: AnyClient, deployment: Deployment) -> SelectionReport:
    """I/O: lists the source's collections.

    Raises:
        ConfigurationError: The mode needs images that the server or a captured collection does not record.
    """
    if selection.images.recorded:
        _require_images(selection, client, deployment)
    found = captured_collections(client, selection)
    warnings = _warnings(selection, found)
    if found and (selection.excluded_databases or selection.excluded_collections):
        everything = replace(selection, excluded_databases=(), excluded_collections=())
        warnings += _nothing_excluded(selection, captured_collections(client, everything))
    return SelectionReport(tuple(found), tuple(warnings))


def _require_images(selection: Selection, client: AnyClient, deployment: Deployment) -> None:
    if not deployment.records_images:
        raise ConfigurationError(
            f"capture.mode asks for pre- or post-images, and MongoDB {deployment.version} records none (6.0 does)",
            next_step="set capture.mode: change_streams_update_full and capture.full_update_type: lookup",
        )
    lacking = collections_without_images(client, selection)
    if not lacking:
        return
    first = lacking[0]
    command = f"db.getSiblingDB({json.dumps(first.db)}).runCommand" + (
        f"({{collMod: {json.dumps(first.name)}, changeStreamPreAndPostImages: {{enabled: true}}}})"
    )
    raise ConfigurationError(
        f"capture.mode or full_update_type needs changeStreamPreAndPostImages, which is off for {_listed(lacking)}",
        next_step=f"run for each of them {command}, or choose a capture.mode without images",
    )


def _listed(collections: list[Collection]) -> str:
    more = f" and {len(collections) - _NAMED} more" if len(collections) > _NAMED else ""
    return ", ".join(map(str, collections[:_NAMED])) + more


def _warnings(selection: Selection, found: list[Collection]) -> list[str]:
    if selection.skipped_operations:
        stale = ", ".join(selection.skipped_operations)
        return [
            f"silver is stale on purpose: capture.skipped_operations leaves out {stale}",
            *_nothing_selected(selection, found),
        ]
    return _nothing_selected(selection, found)


def _nothing_selected(selection: Selection, found: list[Collection]) -> list[str]:
    """A filter that selects nothing is a typing error more often than an intention."""
    if not found:
        return [
            "NO COLLECTION IS CAPTURED: the filters of capture select none that exists now; what appears later and fits is captured"
        ]
    included = {"database_include_list": selection.databases, "collection_include_list": selection.collections}
    warnings = [f"{entry} selects no collection that exists now" for entry in _idle_entries(selection, included, found)]
    for rule in selection.fields.rules:
        if not any(rule.applies_to(each.db, each.name) for each in found):
            warnings.append(
                f"the capture rule for field {rule} ({rule.action}) applies to no collection that exists now"
            )
    return warnings


def _nothing_excluded(selection: Selection, admitted: list[Collection]) -> list[str]:
    """Of a misspelt exclusion nothing else tells: what it should have kept out is captured."""
    excluded = {
        "database_exclude_list": selection.excluded_databases,
        "collection_exclude_list": selection.excluded_collections,
    }
    return [
        f"{entry} leaves out no collection that exists now" for entry in _idle_entries(selection, excluded, admitted)
    ]


def _idle_entries(selection: Selection, lists: Mapping[str, Sequence[str]], found: list[Collection]) -> Iterator[str]:
    """Entries of the *lists*, by setting, that mean nothing of what was *found*."""
    databases, collections = {each.db for each in found}, {str(each) for each in found}
    for key, patterns in lists.items():
        names = databases if key.startswith("database") else collections
        for number, pattern in enumerate(patterns, 1):
            if not any(selection.matches(pattern, name) for name in names):
                yield f"capture.{key} entry {number} ({pattern})"
