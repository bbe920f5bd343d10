"""Routes of the API and their OpenAPI description, both made from one table of calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from strandline import __version__
from strandline.errors import FencedError, RetriableError, StrandlineError, TerminalError
from strandline.plain_text import printable_json
from strandline.web.calls import Answer, Asked, BadRequest, Calls

_MAX_BODY: Final = 1_000_000
_BY_WHY: Final = ("by", "why")
_PARAMETERS: Final = {
    "by": ("string", "Name of the person or job that asks. It is stored with the row."),
    "why": ("string", "Reason. It is stored with the row."),
    "force": ("boolean", "Proceed even if the oplog will soon lose the position."),
    "expand": ("array", "`status` or `info`. Repeatable. The answer is then an object with an entry per source."),
    "includeTasks": ("boolean", "Answer with the status, as Kafka Connect does. A source has one task."),
    "onlyFailed": ("boolean", "Change nothing if a process captures. The answer is the status."),
    "dry_run": ("boolean", "Change nothing; say what would be captured again or skipped."),
}
_EXPAND: Final = {"type": "array", "items": {"enum": ["status", "info"]}}
_VERSION: Final = {"version": __version__, "commit": "unknown", "kafka_cluster_id": None}
"""Answer of Kafka Connect's root. There is no Kafka."""
_ERROR: Final = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
}
_NAMES: Final = {"type": "array", "items": {"type": "string"}}
_OFFSETS: Final = {
    "type": "object",
    "required": ["offsets"],
    "properties": {
        "offsets": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["partition", "offset"],
                "properties": {
                    "partition": {"type": "object", "properties": {"source": {"type": "string"}}},
                    "offset": {
                        "description": "`resume_token`; or `to`: a resume token, an ISO 8601 time, a bronze version, "
                        "`now` or `oldest`. null: a reset.",
                        "type": ["object", "null"],
                        "properties": {"resume_token": {"type": "string"}, "to": {"type": "string"}},
                    },
                },
            },
        }
    },
}
_SNAPSHOT: Final = {
    "type": "object",
    "required": ["data-collections"],
    "properties": {
        "type": {"enum": ["incremental", "blocking"]},
        "data-collections": _NAMES,
        "additional-conditions": {"type": "array", "items": {"type": "object"}},
    },
}
_SIGNAL: Final = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string"}, "data": {"type": "object"}},
}


@dataclass(frozen=True)
class Call:
    """One call of the API.

    Args:
        name: Method of `Calls`.
        success: Status code.
        body: Schema of the body. None: the call takes no body.
    """

    method: str
    path: str
    name: str
    success: int = 200
    parameters: tuple[str, ...] = ()
    body: dict[str, Any] | None = None
    needs_body: bool = True

    @property
    def function(self) -> Callable[[Calls, Asked], Answer]:
        return getattr(Calls, self.name)  # type: ignore[no-any-return]  # why: the table names methods


_OF: Final = "/connectors/{source}"
CALLS: Final = (
    Call("GET", "/connectors", "connectors", parameters=("expand",)),
    Call("GET", _OF, "connector"),
    Call("GET", f"{_OF}/config", "config"),
    Call("GET", f"{_OF}/status", "status"),
    Call("GET", f"{_OF}/offsets", "offsets"),
    Call("PATCH", f"{_OF}/offsets", "alter_offsets", 200, (*_BY_WHY, "dry_run"), _OFFSETS),
    Call("DELETE", f"{_OF}/offsets", "reset_offsets", 200, (*_BY_WHY, "dry_run")),
    Call("PUT", f"{_OF}/stop", "stop", 204, (*_BY_WHY, "force")),
    Call("PUT", f"{_OF}/pause", "pause", 202, (*_BY_WHY, "force")),
    Call("PUT", f"{_OF}/resume", "resume", 202, _BY_WHY),
    Call("GET", f"{_OF}/tasks", "tasks"),
    Call("GET", f"{_OF}/tasks/0/status", "task_status"),
    Call("POST", f"{_OF}/tasks/0/restart", "restart_task", 204, _BY_WHY),
    Call("POST", f"{_OF}/restart", "restart", 204, (*_BY_WHY, "includeTasks", "onlyFailed")),
    Call("GET", f"{_OF}/snapshots", "snapshots"),
    Call("POST", f"{_OF}/snapshots", "start_snapshot", 202, ("by",), _SNAPSHOT),
    Call("PUT", f"{_OF}/snapshots/pause", "pause_snapshot", 202, ("by",)),
    Call("PUT", f"{_OF}/snapshots/resume", "resume_snapshot", 202, ("by",)),
    Call(
        "PUT",
        f"{_OF}/snapshots/stop",
        "stop_snapshot",
        202,
        ("by",),
        {"type": "object", "properties": {"data-collections": _NAMES}},
        needs_body=False,
    ),
    Call("GET", f"{_OF}/signals", "signals"),
    Call("POST", f"{_OF}/signals", "send", 202, ("by",), _SIGNAL),
)


def routes(calls: Calls) -> list[Route]:
    """Return the route of every call, of the description, and of the version, which is at the path of a page."""
    call_routes = [Route(call.path, _endpoint(calls, call), methods=[call.method]) for call in CALLS]
    return [
        *call_routes,
        Route("/openapi.json", lambda _: JSONResponse(description()), methods=["GET"]),
        _RouteOfPrograms("/", lambda _: JSONResponse(_VERSION), methods=["GET"]),
    ]


class _RouteOfPrograms(Route):
    """Route of requests that want JSON. Other requests get the page of the same path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        accepted = Headers(scope=scope).get("accept", "") if scope["type"] == "http" else ""
        wants_json = "application/json" in accepted and "text/html" not in accepted
        return super().matches(scope) if wants_json else (Match.NONE, {})


def _endpoint(calls: Calls, call: Call) -> Callable[[Request], Any]:
    from starlette.concurrency import run_in_threadpool

    async def answer(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MAX_BODY:
                return _error(413, "the body is larger than 1 MB")
        return await run_in_threadpool(_answered, calls, call, request, body)

    return answer


def _answered(calls: Calls, call: Call, request: Request, body: bytes) -> Response:
    """Return the answer of *call*. Refusals are JSON with a status code."""
    try:
        source = request.path_params.get("source")
        if source is not None and not calls.knows(source):
            return _error(404, f"there is no source {source!r}")
        unknown = sorted(set(request.query_params) - set(call.parameters))
        if unknown:
            return _error(400, f"unknown parameters: {', '.join(unknown)}")
        content = json.loads(body) if body.strip() else None
        asked = Asked(dict(request.query_params), content, tuple(request.query_params.getlist("expand")))
        code, content = call.function(calls, asked)
    except (BadRequest, ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, BadRequest) else "the body is no JSON"
        return _error(400, reason)
    except StrandlineError as error:
        return _error(_code(error), str(error))
    return Response(
        "" if content is None else printable_json(content),
        code,
        media_type=None if content is None else "application/json",
    )


def _code(error: StrandlineError) -> int:
    """Return the status code of a refusal."""
    if isinstance(error, RetriableError):
        return 503
    if isinstance(error, FencedError):
        return 409
    return 400 if isinstance(error, TerminalError) else 500


def _error(code: int, message: str) -> Response:
    return JSONResponse({"error_code": code, "message": message}, code)


def description() -> dict[str, Any]:
    """Return the description of the API. Pure."""
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Strandline",
            "version": __version__,
            "description": "Calls of KIP-875, and calls for snapshots and signals. Each writes the same row as its "
            "command.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
    }


def _operation(call: Call) -> dict[str, Any]:
    summary = (call.function.__doc__ or "").strip().splitlines()[0]
    source = {"name": "source", "in": "path", "required": True, "schema": {"type": "string"}}
    asked = [
        {"name": name, "in": "query", "description": text, "schema": _EXPAND if kind == "array" else {"type": kind}}
        for name in call.parameters
        for kind, text in [_PARAMETERS[name]]
    ]
    answer: dict[str, Any] = {"description": HTTPStatus(call.success).phrase}
    if call.success == 200 or (call.method == "POST" and call.success != 204) or "/snapshots/" in call.path:
        answer["content"] = {"application/json": {"schema": {}}}
    refusals = {"400": "The request is wrong, or the source is in the wrong state.", "401": "The token is wrong."}
    refusals |= {"404": "There is no such source."} if "{source}" in call.path else {}
    refusals |= {"409": "Another process was faster.", "503": "The source or the lake does not answer. Try again."}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: dict[str, Any] = {
        "operationId": call.name,
        "summary": summary,
        "parameters": [*([source] if "{source}" in call.path else []), *asked],
        "responses": {
            str(call.success): answer,
            **{code: {"description": text, "content": error} for code, text in refusals.items()},
        },
    }
    if call.body is not None:
        operation["requestBody"] = {
            "required": call.needs_body,
            "content": {"application/json": {"schema": call.body}},
        }
    return operation
