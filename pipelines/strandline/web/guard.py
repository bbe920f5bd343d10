"""Checks of every request, its host and its token, and the headers of every answer."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strandline.model.network import is_loopback, names_this_machine

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
DATA_DOCS: Final = "/data-docs"
"""Path of the pages of Great Expectations. They have styles in their text, and no script."""
_POLICY_OF_DATA_DOCS: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def host_in_url(address: str) -> str:
    """Return *address* as a URL holds it: an IPv6 address is in brackets."""
    return f"[{address}]" if ":" in address else address


@dataclass
class Guard:
    """Middleware of all pages and calls.

    Args:
        token: Token of the API. None: there is no API and no page that needs one.
        pages_need_token: True: pages need the token, too.
        address: Address of the server. On the loopback interface, a request must name this machine
            (`names_this_machine`). Elsewhere it needs the token.
        port: Port of the server. A browser sends a cookie to every port of a machine. So the cookie has the port in its
            name, and holds a hash of token and port: it opens the pages of this port, and no call of an API.
    """

    app: ASGIApp
    token: str | None
    pages_need_token: bool
    address: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                if scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "no-cache"  # kept, and compared by its ETag
                if scope["path"].startswith(f"{DATA_DOCS}/"):
                    headers["Content-Security-Policy"] = _POLICY_OF_DATA_DOCS
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self.app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that may not pass. None: it may."""
        host = request.headers.get("host", "")
        if is_loopback(self.address) and not names_this_machine(host, self.address):
            return PlainTextResponse("this page answers to localhost and 127.0.0.1 only\n", 400)
        path = request.scope["path"]  # as the routes see it; `request.url` may follow the header Host
        if path.startswith("/static/") or path == "/livez":
            return None
        if path.startswith("/connectors") or path == "/openapi.json":
            return None if self._is_token(_bearer(request.headers)) else _unauthorized()
        if not self.pages_need_token:
            return None
        return self._page_refusal(request)

    def _page_refusal(self, request: Request) -> Response | None:
        """Let a page through that brings the token: in a header, in a cookie, or once in its address."""
        if self._is_token(_bearer(request.headers)) or self._is_pass(request.cookies.get(self._cookie)):
            return None
        if self._is_token(request.query_params.get("token")):
            others = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
            answer = RedirectResponse(request.scope["path"] + (f"?{urlencode(others)}" if others else ""), 303)
            secure = request.url.scheme == "https"
            answer.set_cookie(self._cookie, self._pass(), httponly=True, samesite="strict", secure=secure)
            return answer
        return PlainTextResponse("a token is required: open the address that strandline ui has printed\n", 401)

    def _is_token(self, text: str | None) -> bool:
        return self.token is not None and _is_equal(text, self.token)

    @property
    def _cookie(self) -> str:
        return f"strandline_page_{self.port}"

    def _pass(self) -> str:
        """Return the value of the cookie."""
        return hmac.new((self.token or "").encode(), f"page at port {self.port}".encode(), sha256).hexdigest()

    def _is_pass(self, text: str | None) -> bool:
        return self.token is not None and _is_equal(text, self._pass())


def _bearer(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _is_equal(text: str | None, secret: str) -> bool:
    return text is not None and hmac.compare_digest(text.encode("utf-8", "surrogatepass"), secret.encode())


def _unauthorized() -> Response:
    message = "the header Authorization: Bearer TOKEN is missing or wrong"
    return JSONResponse({"error_code": 401, "message": message}, 401, {"WWW-Authenticate": "Bearer"})
