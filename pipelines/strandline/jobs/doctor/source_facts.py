"""Facts about the source: they are asked here, and judged by `source_checks`."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from typing import Any

from strandline.bronze.offsets import Committed
from strandline.jobs.doctor import source_checks as judge
from strandline.jobs.doctor.findings import Finding, Notes
from strandline.jobs.doctor.setting_checks import names
from strandline.jobs.doctor.setting_checks import unused as unused_settings
from strandline.jobs.selection import (
    check_collection_limit,
    check_ids,
    check_snapshot_reads,
    check_stream,
    inspect_selection,
    require_images,
    selection_of,
)
from strandline.jobs.source_connection import capture_oplog, connection_options
from strandline.settings.configuration import Settings
from strandline.source.client import (
    AnyClient,
    ConnectionOptions,
    open_client,
    operation_time,
    translate_errors,
)
from strandline.source.deployment import Deployment, inspect_deployment
from strandline.source.oplog import Oplog, OplogWindow
from strandline.source.stages import Selection
from strandline.source.uri import options_without_effect, uses_tls, verifies_tls
from strandline.source.worker_probe import clock


@dataclass(frozen=True)
class CommittedEnd:
    """End of bronze, or None if nothing was ever captured. It says that bronze could be read."""

    last: Committed | None


def examine_source(notes: Notes, settings: Settings, end: CommittedEnd | None, today: date) -> OplogWindow | None:
    """Note what is to be said about the source. Return the oplog's window; None: it is not known.

    I/O: connects to the source; lists collections; opens some forty change streams, a few milliseconds each.

    Args:
        end: End of bronze. None: bronze cannot be read, and no position is compared.
    """
    options = notes.attempt(judge.CONNECTION, lambda: connection_options(settings))
    client = None if options is None else notes.attempt(judge.CONNECTION, lambda: open_client(options))
    if options is None or client is None:
        return None
    if unused := options_without_effect(options.uri):
        notes.add(unused_settings.warning(f"options of the MongoDB URI: {', '.join(unused)}"))
    with closing(client):
        transport = _transport(client, options.uri)
        notes.add(judge.tls(transport), judge.routing(transport))
        deployment = notes.attempt(judge.CONNECTION, lambda: inspect_deployment(client, options.uri))
        if deployment is None:
            return None
        notes.add(judge.CONNECTION.ok("MongoDB answers"))
        notes.add(judge.version(deployment, today), judge.features(deployment), judge.identity(deployment))
        notes.add(judge.clock(*clock(options.uri)))
        notes.look(
            judge.cluster_time,
            lambda: judge.cluster_time(operation_time(client)[0], time.time()),
        )
        _members(notes, client, deployment)
        selection = notes.attempt(judge.selection, lambda: selection_of(settings.capture))
        if selection is None:
            return None
        _selected(notes, settings, selection, client, deployment)
        return _history(notes, settings, options, selection, deployment, end)


def _transport(client: AnyClient, uri: str) -> judge.Transport:
    return judge.Transport(
        hosts=tuple(host for host, _ in client.topology_description.server_descriptions()),
        tls=uses_tls(uri),
        verified=verifies_tls(uri),
        read_preference=client.read_preference.mongos_mode,
        direct=client.topology_description.topology_type_name == "Single",
    )


def _members(notes: Notes, client: AnyClient, deployment: Deployment) -> None:
    def asked(**command: Any) -> dict[str, Any]:
        with translate_errors(next(iter(command))):
            return dict(client.admin.command(command))

    topology, privileges = judge.topology, judge.privileges
    notes.look(topology, lambda: judge.topology(deployment, asked(hello=1)))
    notes.look(
        privileges,
        lambda: judge.privileges(asked(connectionStatus=1, showPrivileges=True)["authInfo"]),
    )


def _selected(
    notes: Notes, settings: Settings, selection: Selection, client: AnyClient, deployment: Deployment
) -> None:
    """Note what is captured, and in which way."""
    capture = settings.capture
    ids, snapshots, images = judge.IDS, judge.SNAPSHOTS, judge.IMAGES
    notes.look(ids, lambda: ids.ok(check_ids(capture, selection, client, deployment)))
    notes.look(snapshots, lambda: snapshots.ok(check_snapshot_reads(selection, deployment)))

    def asked_for() -> Finding:
        require_images(selection, client, deployment)
        is_recorded = selection.images.recorded
        return images.ok("recorded by every captured collection" if is_recorded else "not asked for (capture.mode)")

    notes.look(images, asked_for)
    report = notes.attempt(judge.selection, lambda: inspect_selection(selection, client))
    if report is None:
        return
    notes.add(*judge.selection(len(report.collections), report.warnings))
    notes.add(names(settings, {*map(str, report.collections), *capture.scheduled}))
    most = capture.guardrail_collections_max
    notes.look(judge.guardrail, lambda: judge.guardrail(check_collection_limit(capture, report), most))


def _history(
    notes: Notes,
    settings: Settings,
    options: ConnectionOptions,
    selection: Selection,
    deployment: Deployment,
    end: CommittedEnd | None,
) -> OplogWindow | None:
    """Note the change stream, the oplog, and the place of the committed position in it."""
    stream = judge.STREAM
    raw_client = notes.attempt(stream, lambda: open_client(options, raw=True))
    if raw_client is None:
        return None
    with closing(raw_client) as client:
        oplog = capture_oplog(client, selection, settings.capture, deployment)

        def first_token() -> str:
            check_stream(settings.capture, selection, client, deployment)
            return oplog.token_at()

        if notes.attempt(stream, first_token) is None:
            return None
        notes.add(stream.ok("can be opened"))
        last = None if end is None else end.last
        token = None if last is None else last.resume_token
        window = notes.attempt(judge.oplog, lambda: _window(oplog, token))
    if window is None:
        return None
    notes.add(judge.oplog(window, heartbeat_ms=settings.capture.heartbeat_interval_ms))
    if end is not None:
        batch = None if last is None else last.batch
        position = judge.CommittedPosition(batch, is_reset=token is None, window=None if token is None else window)
        notes.add(
            judge.position(
                position,
                on_lost=settings.capture.lost_history_policy,
                warn_minutes=settings.capture.headroom_warning_minutes,
            )
        )
    return window


def _window(oplog: Oplog, token: str | None) -> OplogWindow:
    """Return the oplog's window, also if *token* is missing or cannot be read."""
    why_lost = None if token is None else oplog.unusable_reason(token)
    if token is not None and why_lost is None:
        return oplog.window(token)
    oldest = oplog.oldest()
    present, _ = oplog.present_time()
    return OplogWindow(oldest if oldest > 1 else None, present, None, why_lost)
