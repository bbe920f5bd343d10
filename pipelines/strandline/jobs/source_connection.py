"""Connection options, stream reader, oplog queries and retry policy of the source, from the settings."""

from __future__ import annotations

from dataclasses import replace

from strandline.errors import ConfigurationError
from strandline.io.telemetry.live_state import CaptureState
from strandline.settings.capture import CaptureSettings
from strandline.settings.configuration import Settings
from strandline.source.change_stream import StreamReader
from strandline.source.client import AnyClient, ConnectionOptions
from strandline.source.connection_errors import check_uri
from strandline.source.credentials import Credentials
from strandline.source.deployment import Deployment
from strandline.source.oplog import Oplog
from strandline.source.resume import ResumePoint
from strandline.source.retry_policy import RetryPolicy
from strandline.source.stages import Selection
from strandline.source.stream_opening import StreamLimits
from strandline.source.uri import socket_timeout_ms


def connection_options(settings: Settings) -> ConnectionOptions:
    """Return the connection options. I/O: reads the files that hold credentials.

    Raises:
        ConfigurationError: No URI is set, a file or the URI cannot be read, or the socket's time is shorter than the
            server may wait for an event.
    """
    source, uri = settings.source, credentials_of(settings).read()
    check_uri(uri)
    in_uri, await_ms = socket_timeout_ms(uri), settings.capture.cursor_max_await_time_ms
    if 0 < (limit := source.socket_timeout_ms if in_uri is None else in_uri) <= await_ms:
        name = "source.socket_timeout_ms" if in_uri is None else "socketTimeoutMS in the MongoDB URI"
        raise ConfigurationError(
            f"{name} is {limit}, and the server may wait {await_ms} ms for an event (capture.cursor_max_await_time_ms)",
            next_step="set it longer, or 0 for no limit",
        )
    return ConnectionOptions(
        uri, source.connect_timeout_ms, source.server_selection_timeout_ms, source.socket_timeout_ms
    )


def credentials_of(settings: Settings) -> Credentials:
    """Return the configured URI, or the files that hold it. Raises ConfigurationError if there is none."""
    source = settings.source
    if not source.is_configured:
        raise ConfigurationError(
            "no MongoDB is configured", next_step="set STRANDLINE_SOURCE__URI=mongodb://…, or try strandline demo"
        )
    uri = None if source.uri is None else source.uri.get_secret_value()
    return Credentials(uri, source.uri_file, source.password_file)


def stream_limits(settings: CaptureSettings, *, sharded: bool = False, show_keys: bool = False) -> StreamLimits:
    return StreamLimits(
        settings.max_batch_size,
        settings.max_queue_size_in_bytes,
        settings.poll_interval_ms,
        settings.cursor_max_await_time_ms,
        oversize=settings.cursor_oversize_handling_mode,
        skip_threshold=settings.cursor_oversize_skip_threshold,
        retry_limit=settings.errors_retry_limit,
        strict=settings.errors_tolerance == "none",
        show_keys=show_keys,
        unique_ids=settings.sharded_ids_are_unique or not sharded,
    )


def capture_oplog(client: AnyClient, selection: Selection, settings: CaptureSettings, deployment: Deployment) -> Oplog:
    """Return the queries about the oplog that hold for the capture of *settings*. No I/O."""
    mode = settings.cursor_oversize_handling_mode
    return Oplog(
        client,
        selection,
        expanded_events=deployment.shows_expanded_events,
        oversize="fail" if mode == "split" and not deployment.splits_large_events else mode,
    )


def retry_policy(settings: CaptureSettings) -> RetryPolicy:
    return RetryPolicy(
        max_retries=settings.errors_max_retries,
        connect_max_attempts=settings.connect_max_attempts,
        initial_delay_ms=settings.connect_backoff_initial_delay_ms,
        max_delay_ms=settings.errors_retry_delay_max_ms,
    )


def start_policy(settings: CaptureSettings, *, briefly: bool) -> RetryPolicy:
    """Return the policy of the first contact with the source.

    Args:
        briefly: One attempt, unless ``start_attempts`` is set. For a person, or a scheduler, who waits.
    """
    attempts, policy = settings.start_attempts or (1 if briefly else None), retry_policy(settings)
    return policy if attempts is None else replace(policy, connect_max_attempts=attempts, max_retries=attempts - 1)


def stream_reader(
    client: AnyClient,
    selection: Selection,
    settings: CaptureSettings,
    deployment: Deployment,
    start: ResumePoint,
    *,
    policy: RetryPolicy,
    show_keys: bool = False,
    state: CaptureState | None = None,
) -> StreamReader:
    """Return the reader of the change stream from *start* on. No I/O."""
    return StreamReader(
        client,
        selection,
        start,
        limits=stream_limits(settings, sharded=deployment.sharded, show_keys=show_keys),
        retry_policy=policy,
        expanded_events=deployment.shows_expanded_events,
        state=state,
    )
