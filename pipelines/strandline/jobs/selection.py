"""The captured part of the source: build the selection from the settings, and check it against the source."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from strandline.errors import ConfigurationError
from strandline.model.namespaces import Namespace
from strandline.settings.capture import CaptureSettings
from strandline.source.client import AnyClient, Collection
from strandline.source.deployment import Deployment
from strandline.source.listing import LeftOut, Listing, captured_collections, cure_of, kind_of, list_source
from strandline.source.replies import optional_answer
from strandline.source.sharding import check_shard_keys, shard_keys
from strandline.source.stages import SYSTEM_DATABASES, Images, Selection
from strandline.source.stream_features import check_stream_features
from strandline.source.stream_opening import images_are_enabled

_MAX_LISTED = 20
_WITHOUT_IMAGES = "set capture.mode: change_streams_update_full and capture.full_update_type: lookup"

log = logging.getLogger("strandline.capture")


@dataclass(frozen=True)
class SelectionReport:
    """Collections that a selection captures now, and warnings about probable mistakes."""

    selection: Selection
    collections: tuple[Collection, ...]
    warnings: tuple[str, ...]


def selection_of(capture: CaptureSettings) -> Selection:
    """Return the selection of the settings.

    Raises ConfigurationError if scope, target, patterns and starts contradict each other, or if none of them is set.
    """
    if capture.scope is None:
        raise ConfigurationError(
            "no setting says what to capture",
            next_step="set capture.target: <database> (STRANDLINE_CAPTURE__TARGET), "
            "or capture.scope: deployment for all databases",
        )
    selection = Selection.of(
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
    if left_out := [name for name in capture.starts if not selection.admits(*Namespace.parse(name))]:
        raise ConfigurationError(
            f"capture.starts names {_listed(left_out)}, which the filters of capture leave out",
            next_step="correct the name, or include the collection",
        )
    return replace(selection, scheduled=tuple(capture.scheduled))


def stream_identity(capture: CaptureSettings) -> str:
    """Return the identity of the change stream.

    Another change stream would accept its tokens, and resume at a wrong place.
    """
    return f"{capture.scope} {capture.target}" if capture.target else str(capture.scope)


def checked_selection(capture: CaptureSettings, client: AnyClient, deployment: Deployment) -> SelectionReport:
    """Return the selection of the settings, checked against the source. Log its warnings.

    I/O: lists the source's collections; asks for shard keys on a sharded cluster; opens change streams.

    Raises:
        ConfigurationError: See `selection_of`, `check_ids`, `check_snapshot_reads`, `require_images`,
            `inspect_selection`, `check_stream` and `check_collection_limit`.
    """
    selection = selection_of(capture)
    check_ids(capture, selection, client, deployment)
    check_snapshot_reads(selection, deployment)
    require_images(selection, client, deployment)
    report = inspect_selection(selection, client)
    check_stream(capture, selection, client, deployment)
    for warning in (*report.warnings, *_idle_starts(capture, report), *check_collection_limit(capture, report)):
        log.warning("%s", warning)
    return report


def _idle_starts(capture: CaptureSettings, report: SelectionReport) -> Iterator[str]:
    existing = list(map(str, report.collections))
    for name in sorted(set(capture.starts) - set(existing)):
        yield f"capture.starts names {name}, which does not exist now{_others(name, existing)}"


def check_stream(capture: CaptureSettings, selection: Selection, client: AnyClient, deployment: Deployment) -> None:
    """Check that the source has the features of change streams that the settings use. See `check_stream_features`."""
    check_stream_features(
        client,
        selection,
        expanded_events=deployment.shows_expanded_events,
        oversize=capture.cursor_oversize_handling_mode,
    )


def check_ids(capture: CaptureSettings, selection: Selection, client: AnyClient, deployment: Deployment) -> str:
    """Check that `_id` is unique in every captured collection, and return the reason as text.

    I/O: on a sharded cluster, reads the shard keys of the captured collections.

    Raises:
        ConfigurationError: Several shards may hold the same `_id`, and ``sharded_ids_are_unique`` is not set.
    """
    if not deployment.sharded:
        return "unique (replica set)"
    if capture.sharded_ids_are_unique:
        return "taken for unique (capture.sharded_ids_are_unique)"
    check_shard_keys(shard_keys(client, captured_collections(client, selection)))
    return "unique (the shard key of every sharded collection is _id)"


def check_snapshot_reads(selection: Selection, deployment: Deployment) -> str:
    """Return how a snapshot reads documents, as text. Pure.

    Raises:
        ConfigurationError: Updates would never be applied. Without snapshot reads a document may already contain an
            update that comes later, so only an update that brings its document can replace it.
    """
    if deployment.has_snapshot_reads:
        return "at one cluster time per chunk"
    if selection.images.full_document is None:
        raise ConfigurationError(
            f"capture.mode change_streams needs snapshot reads, which MongoDB {deployment.version} has only inside "
            "transactions (5.0 and newer have them)",
            next_step="set capture.mode: change_streams_update_full, or upgrade MongoDB to 5.0 or newer",
        )
    return "as they are when they are read (MongoDB 5.0 and newer: at one cluster time)"


def check_collection_limit(capture: CaptureSettings, report: SelectionReport) -> list[str]:
    """Return a warning if more collections are captured than ``guardrail_collections_max``. Pure.

    Raises:
        ConfigurationError: The limit is exceeded, and ``guardrail_collections_limit_action`` is ``fail``.
    """
    count, limit = len(report.collections), capture.guardrail_collections_max
    if not limit or count <= limit:
        return []
    problem = f"{count} collections are captured, and capture.guardrail_collections_max is {limit}"
    if capture.guardrail_collections_limit_action == "fail":
        raise ConfigurationError(problem, next_step="narrow capture.collection_include_list, or raise the limit")
    return [problem]


def inspect_selection(selection: Selection, client: AnyClient) -> SelectionReport:
    """Return the collections that *selection* captures now, and warnings. I/O: lists the source's collections.

    Raises:
        ConfigurationError: The target is a view or a time-series collection, or a scheduled collection is captured.
    """
    listing = list_source(client, selection)
    if selection.scope == "collection" and listing.left_out:
        target = listing.left_out[0]
        raise ConfigurationError(
            f"capture.target {target} is {target.kind}, and MongoDB has no change stream for it",
            next_step=cure_of(listing.left_out),
        )
    warnings = [*_warnings(selection, listing, client), *_scheduled_warnings(selection, client)]
    if listing.collections and (selection.excluded_databases or selection.excluded_collections):
        everything = replace(selection, excluded_databases=(), excluded_collections=())
        warnings += _nothing_excluded(selection, list_source(client, everything))
    return SelectionReport(selection, listing.collections, tuple(warnings))


def require_images(selection: Selection, client: AnyClient, deployment: Deployment) -> None:
    """Check that every captured collection records the images that *selection* asks for.

    I/O: if it asks for images, opens a change stream and lists the source's collections.

    Raises:
        ConfigurationError: The server or a captured collection records none.
    """
    if not selection.images.recorded:
        return
    if not deployment.records_images:
        raise ConfigurationError(
            f"capture.mode asks for pre- or post-images, and MongoDB {deployment.version} records none (6.0 does)",
            next_step=_WITHOUT_IMAGES,
        )
    if not images_are_enabled(client, selection):
        raise ConfigurationError(
            f"capture.mode asks for pre- or post-images, which MongoDB {deployment.version} does not record while its "
            "feature compatibility version is below 6.0",
            next_step='run db.adminCommand({setFeatureCompatibilityVersion: "6.0"}) as an administrator, or '
            + _WITHOUT_IMAGES,
        )
    missing = list_source(client, selection).without_images
    if not missing:
        return
    first = missing[0]
    command = f"db.getSiblingDB({json.dumps(first.db)}).runCommand" + (
        f"({{collMod: {json.dumps(first.name)}, changeStreamPreAndPostImages: {{enabled: true}}}})"
    )
    raise ConfigurationError(
        f"capture.mode or full_update_type needs changeStreamPreAndPostImages, which is off for {_listed(missing)}",
        next_step=f"run for each of them {command}, or choose a capture.mode without images",
    )


def _listed(names: Sequence[object]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(map(str, names[:_MAX_LISTED])) + more


def _warnings(selection: Selection, listing: Listing, client: AnyClient) -> list[str]:
    warnings = []
    if selection.skipped_operations:
        stale = ", ".join(selection.skipped_operations)
        warnings.append(f"silver is stale on purpose: capture.skipped_operations leaves out {stale}")
    if left_out := left_out_warning(selection, listing):
        warnings.append(left_out)
    if listing.collections:
        return warnings + _idle_filters(selection, listing)
    if listing.left_out and not left_out:  # all of them are read by schedule
        return warnings
    if listing.left_out:
        return [*warnings, "NO COLLECTION IS CAPTURED: capture selects nothing else that exists now"]
    if problem := _missing_target(selection, client):
        return [*warnings, f"NO COLLECTION IS CAPTURED: {problem}; it is captured as soon as it exists"]
    return [
        *warnings,
        "NO COLLECTION IS CAPTURED: the filters of capture select none that exists now; "
        "a matching collection that is created later is captured",
    ]


def left_out_warning(selection: Selection, listing: Listing) -> str | None:
    """Return the warning about views and time-series collections that are selected and not read. None: no such."""
    unread = [item for item in listing.left_out if str(item) not in selection.scheduled]
    if not unread:
        return None
    names = _listed([item.described() for item in unread])
    return f"left out, because MongoDB has no change stream for them: {names}; {cure_of(unread)}"


def _scheduled_warnings(selection: Selection, client: AnyClient) -> Iterator[str]:
    """Yield a warning for each scheduled collection that does not exist. Raise ConfigurationError for a captured one.

    I/O: looks for the collections.
    """
    for name in selection.scheduled:
        kind = kind_of(client, Namespace.parse(name))
        if kind is None:
            yield f"capture.scheduled names {name}, which does not exist now"
        elif kind == "a collection" and selection.admits(*Namespace.parse(name)):
            raise ConfigurationError(
                f"capture.scheduled names {name}, which has a change stream and is captured by it",
                next_step="take it out of capture.scheduled, or exclude it (capture.collection_exclude_list)",
            )


def _missing_target(selection: Selection, client: AnyClient) -> str | None:
    """Return the database or collection of ``capture.target`` that is not there, with what is. None: it is there.

    I/O: lists databases and collections.
    """
    if selection.database is None:
        return None
    databases = optional_answer(client.list_database_names, "the list of databases") or []
    if selection.database not in databases:
        others = [name for name in databases if name not in SYSTEM_DATABASES]
        return f"there is no database {selection.database} now{_others(selection.database, others)}"
    if selection.collection is None:
        return None
    whole = Selection("database", selection.database)
    others = [collection.name for collection in list_source(client, whole).collections]
    return f"there is no collection {selection.database}.{selection.collection} now" + _others(
        selection.collection, others
    )


def _others(name: str, others: Sequence[str]) -> str:
    """Return the name of *others* that was probably meant, else all of them."""
    match = get_close_matches(name, others, n=1)
    return f" (did you mean {match[0]}?)" if match else f" (there are: {_listed(sorted(others)) or 'none'})"


def _idle_filters(selection: Selection, listing: Listing) -> list[str]:
    """Return a warning for each filter and field rule that selects no collection: most are typing errors."""
    included = {"database_include_list": selection.databases, "collection_include_list": selection.collections}
    warnings = [
        f"{entry} selects no collection that exists now" for entry in _idle_entries(selection, included, listing)
    ]
    for rule in selection.fields.rules:
        if not any(rule.applies_to(collection.db, collection.name) for collection in listing.collections):
            warnings.append(
                f"the capture rule for field {rule} ({rule.action}) applies to no collection that exists now"
            )
    return warnings


def _nothing_excluded(selection: Selection, admitted: Listing) -> list[str]:
    """Return a warning for each exclusion without effect: a misspelt exclusion captures too much, without an error."""
    excluded = {
        "database_exclude_list": selection.excluded_databases,
        "collection_exclude_list": selection.excluded_collections,
    }
    return [
        f"{entry} leaves out no collection that exists now" for entry in _idle_entries(selection, excluded, admitted)
    ]


def _idle_entries(selection: Selection, lists: Mapping[str, Sequence[str]], listing: Listing) -> Iterator[str]:
    """Yield the entries of *lists* (patterns by setting) that match nothing in *listing*."""
    everything: tuple[Collection | LeftOut, ...] = (*listing.collections, *listing.left_out)
    databases, collections = (
        {collection.db for collection in everything},
        {str(collection) for collection in everything},
    )
    for key, patterns in lists.items():
        names = databases if key.startswith("database") else collections
        for number, pattern in enumerate(patterns, 1):
            if not any(selection.matches(pattern, name) for name in names):
                yield f"capture.{key} entry {number} ({pattern})"
