"""``strandline ui``: a local web page that shows the pipeline, and an API beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.commands.terminal import lake_settings, out, stop_on_signal
from strandline.errors import ConfigurationError, install_command
from strandline.settings import DEFAULT_CONF

if TYPE_CHECKING:
    from strandline.settings.configuration import Settings
    from strandline.web.watched_lake import WatchedLake

_PACKAGES = {"starlette", "uvicorn"}


def ui(
    context: typer.Context,
    api: Annotated[
        bool, typer.Option("--api", help="Serve the API too: offsets, states, snapshots, signals. It needs the token.")
    ] = False,
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="TCP port.", show_default="ui.port")] = None,
    address: Annotated[
        str | None, typer.Option(help="Network interface, as an IP address.", show_default="ui.address")
    ] = None,
) -> None:
    """Serve a web page that shows the pipeline: read-only, on this machine only unless told otherwise."""
    try:
        from strandline.web.server import Access, application, serve
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise ConfigurationError(f"{error.name} is not installed", next_step=install_command("ui")) from None

    settings = lake_settings(context)
    access = Access.of(
        address or settings.ui.address,
        port or settings.ui.port,
        api=api,
        known_token=settings.ui.known_token(),
        shows_rows=settings.ui.preview_rows > 0,
    )
    app = application(watched_lake(settings), access, _options(context))

    def started() -> None:
        out.print(f"Strandline is at {access.url}  (Ctrl-C ends)", highlight=False, markup=False, soft_wrap=True)
        if api:
            out.print(f"API: {access.base_url}openapi.json", highlight=False, markup=False, soft_wrap=True)
            if not access.pages_need_token:
                out.print(f"token of the API: {access.token}", highlight=False, markup=False, soft_wrap=True)

    serve(app, access, started, stop_on_signal("requests in progress are answered first"))


def watched_lake(settings: Settings) -> WatchedLake:
    """Open the lake. Start Spark only if the lake cannot be read without it."""
    from strandline.web.watched_lake import WatchedLake, watch_without_spark

    if (lake := watch_without_spark(settings)) is not None:
        return lake
    from strandline.io.tables.measured_spark_tables import MeasuredSparkTables
    from strandline.jobs.lake_opener import LakeOpener
    from strandline.web.calls import Calls

    ctx = LakeOpener(settings, briefly=True).with_spark()
    tables = MeasuredSparkTables(ctx.spark, ctx.tables.lake, store=ctx.tables.store)
    return WatchedLake(replace(ctx, tables=tables), tables, Calls(settings, lambda _: ctx, lambda _: ctx))


def _options(context: typer.Context) -> list[str]:
    """Return the global options that the shown commands repeat."""
    target, conf, _ = context.obj
    return [
        *(["--target", target] if target != "local" else []),
        *(["--conf", str(conf)] if conf != DEFAULT_CONF else []),
    ]
