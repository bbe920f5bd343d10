"""The pages: for each one its readings, its template, and the commands that act on what it shows."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from strandline import __version__
from strandline.model.engines import engines_of_layer
from strandline.model.timestamps import span
from strandline.plain_text import printable, printable_json
from strandline.web.background_readings import BackgroundReadings, Reading
from strandline.web.pictures import bars, graph_picture, headroom, timeline
from strandline.web.readings import Readings

_FOLDER: Final = Path(__file__).parent
STATIC: Final = _FOLDER / "static"
_TABLES_ON_A_PAGE: Final = 100
_OLDEST_COUNT: Final = 60.0
"""Age at which the rows of silver tables are counted again, in seconds."""


@dataclass(frozen=True)
class Page:
    """One page of the menu.

    Args:
        readings: Names of methods of `Readings`, whose results the template gets by these names.
    """

    path: str
    title: str
    readings: tuple[str, ...]

    @property
    def template(self) -> str:
        return f"{self.path.strip('/') or 'now'}.html"


PAGES: Final = (
    Page("/", "Now", ("offset", "throughput", "live", "notifications")),
    Page("/snapshots", "Snapshots", ("snapshots", "live")),
    Page("/offsets", "Offsets", ("offsets",)),
    Page("/silver", "Silver", ("silver", "schema_changes")),
    Page("/gold", "Gold", ("gold",)),
    Page("/quality", "Quality", ("quality",)),
    Page("/dead-letters", "Dead letters", ("dead_letters",)),
    Page("/reconcile", "Reconcile", ("reconcile",)),
    Page("/log", "Log", ("log", "notifications")),
    Page("/maintenance", "Maintenance", ("maintenance",)),
)


class Site:
    """All pages of one lake.

    Args:
        options: Global options of the command line, which the shown commands repeat.
    """

    def __init__(self, readings: Readings, options: list[str]) -> None:
        self._readings = readings
        seconds = readings.settings.ui.interval_ms / 1000
        self.background = BackgroundReadings(seconds * 0.8)  # so that every refresh of a page shows a new reading
        self._counts = BackgroundReadings(_OLDEST_COUNT)
        self._environment = _environment()
        self._environment.globals |= {
            "pages": PAGES,
            "program": shlex.join(["strandline", *options]),
            "settings": readings.settings,
            "seconds": int(seconds),
            "version": __version__,
            "bars": bars,
            "headroom": headroom,
            "timeline": timeline,
            "graph_picture": graph_picture,
        }

        for page in PAGES:  # compiled before the first request
            self._environment.get_template(page.template)

    def routes(self) -> list[Route]:
        """Return the route of every page."""
        routes = [Route(page.path, self._endpoint(page), methods=["GET"], name=page.title) for page in PAGES]
        if self._readings.settings.ui.preview_rows:
            routes.append(Route("/table/{name}", self._preview, methods=["GET"]))
        return routes

    def _preview(self, request: Request) -> Response:
        """Show rows of a table. They are read now, and not kept."""
        name = request.path_params["name"]
        reading = Reading().again(name, lambda: self._readings.preview(name))
        is_unknown = reading.value is None and reading.problem is None
        text = self._environment.get_template("table.html").render(
            page=Page(request.url.path, name, ()), results={"preview": reading}, now=datetime.now(UTC), refreshes=False
        )
        return HTMLResponse(text, 404 if is_unknown else 200)

    def _endpoint(self, page: Page) -> Callable[[Request], Response]:
        def show(request: Request) -> Response:
            results = {name: self.background.newest(name, getattr(self._readings, name)) for name in page.readings}
            if page.path == "/silver":
                self._counts.newest("counts", self._readings.count_silver, patience=0)
                more = _chosen(results["silver"], request.query_params)
            else:
                more = {}
            template = self._environment.get_template(page.template)
            return HTMLResponse(
                template.render(
                    page=page,
                    results=results,
                    now=datetime.now(UTC),
                    refreshes=request.query_params.get("refresh") != "off",
                    query=dict(request.query_params),
                    **more,
                )
            )

        return show


def _chosen(silver: Reading, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the silver tables of one page: those whose name contains the search text."""
    search = query.get("q", "").strip().lower()
    matching = [row for row in silver.value or () if search in row["table"].lower()]
    number = int(text) if (text := query.get("page", "1")).isdecimal() and len(text) < 6 else 1
    pages = max(1, -(-len(matching) // _TABLES_ON_A_PAGE))
    number = min(max(number, 1), pages)
    first = (number - 1) * _TABLES_ON_A_PAGE
    return {
        "tables": matching[first : first + _TABLES_ON_A_PAGE],
        "matches": len(matching),
        "search": search,
        "number": number,
        "last": pages,
        "written_by": engines_of_layer(row["engine"] for row in matching),
    }


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"utc": _utc, "span": span, "count": _count, "size": _size, "plain": _plain, "details": _details}
    made.filters["cell"] = _cell
    return made


def _plain(value: object) -> str:
    return "–" if value is None else printable(str(value))


def _cell(value: object) -> str:
    """Return a value of a row: JSON for nested values, and the number of bytes for bytes."""
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    return printable_json(value) if isinstance(value, dict | list) else _plain(value)


def _details(text: str | None) -> str:
    """Return the details of a notification, a JSON object, as ``name: value · name: value``. The page names the source.

    A text that is no JSON object, which another program wrote, is shown as it is.
    """
    try:
        details = json.loads(text or "{}").items()
    except (ValueError, AttributeError):
        return _plain(text)
    shown = (f"{name.replace('_', ' ')}: {value}" for name, value in details if name != "connector_name")
    return printable(" · ".join(shown))


def _utc(value: datetime | None) -> str:
    return "–" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def _size(count: float | None) -> str:
    if count is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1_000:
            return f"{count:,.0f} {unit}"
        count /= 1_000
    return f"{count:,.1f} TB"
