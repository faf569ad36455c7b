"""`Protection`: what every request passes before the application, in pure ASGI, because each one pays for it.

It refuses, in this order: a request whose length is given in two ways (which another server on its way may take for
two requests), a line and headers that are too long, a ``Host`` that is not this gateway's (a page whose name was bound
to this address anew, DNS rebinding), an ``Origin`` that is not allowed (a page of another site), too many requests of
an address, a path that is not UTF-8, and a ``POST`` with a body that is not JSON (which a page of another site may send
without asking). It cuts off bodies that come too slowly. CORS is off unless origins are given.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from coordinator.access.rates import Rates
from coordinator.gateway.errors import error_response
from coordinator.gateway.protection.rules import HEADERS_TOO_LARGE, MAX_HEADER_BYTES, is_loopback_name
from coordinator.operations.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from chronicle.clock import Clock
    from coordinator.gateway.protection.rules import Rules

__all__ = ["Protection"]

_PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Paths that answer to any name: orchestrators probe an address that nobody told the gateway. They disclose nothing."""
_MAX_HOSTS: Final = 1000
"""Values of the ``Host`` header whose check is kept."""
_HEADERS: Final = frozenset({b"host", b"origin", b"content-type", b"content-length", b"transfer-encoding"})
_FILE_PARTS: Final = 6
"""Parts of a path before the name of a file: ``/v1/agents/TYPE/KEY/files/NAME``."""
_FILES: Final = frozenset({b"files", b"history"})
_ALLOWED_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")
_REQUEST_HEADERS: Final = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "Prefer",
    "Range",
    "traceparent",
)
_EXPOSED_HEADERS: Final = (
    "ETag",
    "Content-Range",
    "Retry-After",
    "x-should-retry",
    "Content-Disposition",
    "Agent-Execution-Profile",
    "Agent-Resolved-Provider",
)


class Protection:
    """ASGI middleware.

    Args:
        app: what is protected.
        rules: what is accepted.
        clock: for the limit of requests.
    """

    def __init__(self, app: ASGIApp, rules: Rules, clock: Clock) -> None:
        self._rules = rules
        self._rates = Rates(rules.requests_per_s, rules.burst, clock) if rules.requests_per_s else None
        self._hosts: dict[bytes, bool] = {}
        self._app: ASGIApp = app
        if rules.origins:
            self._app = CORSMiddleware(
                app,
                allow_origins=sorted(rules.origins),
                allow_methods=_ALLOWED_METHODS,
                allow_headers=_REQUEST_HEADERS,
                expose_headers=_EXPOSED_HEADERS,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        found: dict[bytes, bytes] = {}
        hosts, size = 0, len(scope["raw_path"]) + len(scope["query_string"])
        for name, value in scope["headers"]:
            size += len(name) + len(value)
            if name in _HEADERS:
                hosts += name == b"host"
                found[name] = value
        refused = self._refusal(scope, found, hosts, size)
        if refused is not None:
            problem, message = refused
            await error_response(problem, message, headers={"Connection": "close"})(scope, receive, send)
            return
        if found.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in found:
            await self._app(scope, receive, send)
            return
        await self._with_body(scope, receive, send)

    # -- what is refused ------------------------------------------------------------------------------------------

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes], hosts: int, size: int) -> tuple[Problem, str] | None:
        if b"transfer-encoding" in headers and (b"content-length" in headers or scope["http_version"] == "1.0"):
            return Problem(400, "invalid_http"), (
                "a request with Transfer-Encoding is one of HTTP/1.1 without Content-Length; leave one of them out"
            )
        if size > MAX_HEADER_BYTES:
            return Problem(431, "headers_too_large"), HEADERS_TOO_LARGE
        host = headers.get(b"host", b"")
        if scope["path"] not in _PROBES and (hosts != 1 or not self._is_own(host)):
            return Problem(403, "host_not_allowed"), (
                "the Host header does not name this gateway; podium up --allowed-host NAME allows another name"
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._is_allowed(origin, scope, host):
            return Problem(403, "origin_not_allowed"), (
                "pages of this origin may not call this gateway; podium up --cors-origin ORIGIN allows one"
            )
        if self._rates is not None and scope.get("client") is not None:
            address = scope["client"][0]
            if not is_loopback_name(address) and (wait_s := self._rates.take(address)):
                message = f"too many requests of your address; try again in {wait_s} s"
                return Problem(429, "too_many_requests", wait_s), message
        if "\ufffd" in scope["path"] and not _is_text(_without_file(scope["raw_path"])):
            return Problem(400, "invalid_path"), (
                "the path has bytes that are not UTF-8, which only the names of an agent's files may have"
            )
        if not _is_text(scope["query_string"]):
            return Problem(400, "invalid_parameter"), "the query has bytes that are not UTF-8"
        if scope["method"] == "POST" and not _is_json_or_empty(headers):
            return Problem(415, "unsupported_media_type"), (
                "send the body as JSON, with Content-Type: application/json"
            )
        return None

    def _is_own(self, host: bytes) -> bool:
        known = self._hosts.get(host)
        if known is None:
            name = _name_of(host)
            allowed = self._rules.allowed_hosts
            known = name is not None and ("*" in allowed or name in allowed or is_loopback_name(name))
            if len(self._hosts) < _MAX_HOSTS:
                self._hosts[host] = known
        return known

    def _is_allowed(self, origin: bytes, scope: Scope, host: bytes) -> bool:
        text = origin.decode("latin-1").lower()
        if text in self._rules.origins:
            return True
        scheme, _, rest = text.partition("://")
        return scheme == scope["scheme"] and rest == host.decode("latin-1").lower()

    # -- bodies ---------------------------------------------------------------------------------------------------

    async def _with_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request whose body must come in time."""
        loop = asyncio.get_running_loop()
        deadline_s, complete = loop.time() + self._rules.body_timeout_s, False

        async def timely() -> Message:
            nonlocal deadline_s, complete
            if complete:  # what comes is the end of the connection, for which an application may wait for hours
                return await receive()
            try:
                async with asyncio.timeout_at(deadline_s):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, headers={"Connection": "close"}) from None
            deadline_s += len(message.get("body", b"")) / self._rules.body_bytes_per_s
            complete = not message.get("more_body", False)
            return message

        await self._app(scope, timely, send)


def _name_of(host: bytes) -> str | None:
    """Return the name in a ``Host`` header, lower case, without its port; ``None`` if it has none."""
    try:
        text = host.decode("ascii").lower()
    except UnicodeDecodeError:
        return None
    if text.startswith("["):
        name, bracket, port = text[1:].partition("]")
        return name if bracket and (not port or (port[0] == ":" and port[1:].isdigit())) else None
    name, colon, port = text.partition(":")
    return name.rstrip(".") or None if not colon or port.isdigit() else None


def _without_file(path: bytes) -> bytes:
    """Return a request's path without the name of a file at its end, which is bytes."""
    parts = path.split(b"/", _FILE_PARTS)
    if len(parts) > _FILE_PARTS and parts[1:3] == [b"v1", b"agents"] and parts[5] in _FILES:
        parts.pop()
    return b"/".join(parts)


def _is_text(quoted: bytes) -> bool:
    try:
        unquote_to_bytes(quoted).decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_json_or_empty(headers: dict[bytes, bytes]) -> bool:
    kind = headers.get(b"content-type")
    if kind is None:
        return headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers
    kind = kind.partition(b";")[0].strip().lower()
    return kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))
