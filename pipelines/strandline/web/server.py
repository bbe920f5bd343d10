"""The server of `strandline ui`: pages, and the API beside them."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from strandline.errors import ConfigurationError
from strandline.model.network import is_loopback
from strandline.web import api
from strandline.web.guard import DATA_DOCS, Guard, host_in_url
from strandline.web.pages import STATIC, Site
from strandline.web.readings import Readings
from strandline.web.watched_lake import WatchedLake


@dataclass(frozen=True)
class Access:
    """Address of the server, and who may ask it.

    Args:
        address: IP address, or ``localhost``.
        token: None: nothing needs a token.
    """

    address: str
    port: int
    api: bool
    token: str | None
    pages_need_token: bool

    @staticmethod
    def of(address: str, port: int, *, api: bool, known_token: str | None, shows_rows: bool = False) -> Access:
        """Return the access for an address. A token is made where one is required and none is set.

        Args:
            shows_rows: Pages show rows of tables. Any user of a machine can reach its loopback interface.
        """
        pages_need_token = known_token is not None or shows_rows or not is_loopback(address)
        needs_token = pages_need_token or api
        token = (known_token or secrets.token_urlsafe(24)) if needs_token else None
        return Access(address, port, api, token, pages_need_token)

    @property
    def base_url(self) -> str:
        """Address of the server. It ends with a slash."""
        return f"http://{host_in_url(self.address)}:{self.port}/"

    @property
    def url(self) -> str:
        """Address of the first page, with the token where pages need it."""
        return self.base_url + (f"?token={self.token}" if self.pages_need_token else "")


def application(lake: WatchedLake, access: Access, options: list[str]) -> Starlette:
    """Return the application. No I/O.

    Args:
        options: Global options of the command line, which the shown commands repeat.
    """
    site, settings = Site(Readings(lake.ctx, lake.tables), options), lake.ctx.settings
    docs = DataDocs(directory=settings.quality.docs_dir, html=True, check_dir=False)
    return Starlette(
        routes=[
            *(api.routes(lake.calls) if access.api else ()),
            *site.routes(),
            Route("/livez", lambda _: PlainTextResponse("ok\n")),
            Mount("/static", StaticFiles(directory=STATIC)),
            *([Mount(DATA_DOCS, docs)] if settings.ui.preview_rows else ()),
        ],
        middleware=[
            Middleware(
                Guard,
                token=access.token,
                pages_need_token=access.pages_need_token,
                address=access.address,
                port=access.port,
            )
        ],
    )


class DataDocs(StaticFiles):
    """Pages of the quality runs. They show values of documents."""

    async def check_config(self) -> None:
        """Accept a folder that does not exist yet: no run has written pages."""


class _Server(uvicorn.Server):
    """Server that ends when *stop* is set. The command line handles the signals."""

    def __init__(self, config: uvicorn.Config, stop: threading.Event) -> None:
        super().__init__(config)
        self._stop = stop

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # why: a generator is one, too
        return nullcontext()

    async def on_tick(self, counter: int) -> bool:
        return self._stop.is_set() or await super().on_tick(counter)


def serve(app: Starlette, access: Access, started: Callable[[], None], stop: threading.Event) -> None:
    """Serve *app* until *stop* is set. I/O: listens at the port.

    Args:
        started: Called when the port is open.

    Raises:
        ConfigurationError: The port is taken.
    """
    config = uvicorn.Config(
        app,
        host=access.address,
        port=access.port,
        log_config=None,
        access_log=False,  # it would hold the token of the first request
        server_header=False,
        timeout_graceful_shutdown=3,
        limit_concurrency=100,
        ws="none",
    )
    family = socket.AF_INET6 if ":" in access.address else socket.AF_INET
    try:
        listening = socket.create_server((access.address, access.port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"{access.address}:{access.port} cannot be used ({os.strerror(error.errno or 0)})",
            next_step="choose another --port",
        ) from error
    with listening:
        started()
        _Server(config, stop).run(sockets=[listening])
