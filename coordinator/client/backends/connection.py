"""Requests to a gateway over HTTP, and the translation of what can go wrong with them. It owns httpx."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypedDict
from urllib.parse import quote

import httpx

from chronicle.canonical import decode, encode
from chronicle.errors import InvalidInput
from coordinator.client.errors import BadAnswer, ClientError, InvalidRequest, Unreachable, error_of_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from typing import Unpack

__all__ = ["CONNECTION_LOST", "Connection", "is_transient", "path_of"]

CONNECTION_LOST: Final = "connection_lost"
"""The code of an `Unreachable` whose request may have arrived; of one that did not it is ``unreachable``."""
_CONNECT_S: Final = 10.0
"""Timeout of a new connection."""
_QUIET_S: Final = 60.0
"""Timeout of silence, in either direction: four times the interval of a stream's heartbeats."""
_SHOWN_CHARACTERS: Final = 200
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""The kernel finds a dead peer within a minute, also while an answer without a time limit is awaited."""
_TRANSIENT_STATUSES: Final = frozenset({502, 503, 504})
"""Of a gateway that restarts, or of a proxy before one."""


class RequestParts(TypedDict, total=False):
    """The optional parts of a request; `Connection.response` has their defaults."""

    query: Mapping[str, Any] | None
    """Parameters; those that are ``None`` are left out."""
    body: object
    """A JSON value to send."""
    content: bytes | AsyncIterator[bytes] | None
    """Bytes to send instead."""
    headers: Mapping[str, str] | None
    timeout_s: float | None
    """For the answer to begin; ``None`` for no limit."""


class Connection:
    """A pool of connections to one gateway.

    Args:
        url: its base, such as ``http://127.0.0.1:8700``.
        find_key: returns the API key; empty for none. While it is empty, it is called again whenever the server asks
            for one: the gateway may have started since.

    Raises:
        InvalidRequest: ``url`` is none.
    """

    def __init__(self, url: str, find_key: Callable[[], str]) -> None:
        self.url = url.rstrip("/")
        self._find_key = find_key
        self._key = find_key()
        self._client = httpx.AsyncClient(
            base_url=_parsed(self.url),
            transport=httpx.AsyncHTTPTransport(
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=20), socket_options=_KEEP_ALIVE
            ),
        )

    async def close(self) -> None:
        """Close all connections; open streams end."""
        await self._client.aclose()

    async def json(self, method: str, path: str, **parts: Unpack[RequestParts]) -> Any:
        """Make a request and return its answer, a JSON value; ``None`` if it has no body.

        Args:
            path: of the route, from the base, with its parts quoted.
            parts: see `RequestParts`.

        Raises:
            ClientError: the server refused it, could not be reached, or did not answer with JSON.
        """
        async with self.response(method, path, **parts) as answer:
            return await self.value(answer)

    async def value(self, answer: httpx.Response) -> Any:
        """Return the body of an answer, a JSON value; ``None`` if it has none.

        Raises:
            ClientError: as `json`.
        """
        with _translated(self.url):
            data = await answer.aread()
        if not data:
            return None
        try:
            return decode(data)
        except InvalidInput as error:
            raise BadAnswer(f"{answer.request.url} answered with something else than JSON: {_shown(data)}") from error

    @asynccontextmanager
    async def response(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: object = None,
        content: bytes | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = _QUIET_S,
    ) -> AsyncIterator[httpx.Response]:
        """Make a request and yield its answer while its body is still to be read; it is closed at the end.

        Raises:
            ClientError: as `json`; the body is read by the caller, with `chunks`.
        """
        sent = dict(headers or {})
        if body is not None:
            content = encode(body)
            sent["Content-Type"] = "application/json"

        async def send() -> httpx.Response:
            request = self._client.build_request(
                method,
                path,
                params={name: value for name, value in (query or {}).items() if value is not None},
                content=content,
                headers={**sent, "Authorization": f"Bearer {self._key}"} if self._key else sent,
                timeout=httpx.Timeout(_QUIET_S, connect=_CONNECT_S, read=timeout_s, pool=None),
            )
            with _translated(self.url):
                return await self._client.send(request, stream=True)

        answer = await send()
        if answer.status_code == httpx.codes.UNAUTHORIZED and not self._key:
            self._key = self._find_key()
            if self._key and isinstance(content, bytes | None):  # a stream of bytes cannot be sent twice
                await answer.aclose()
                answer = await send()
        try:
            if not answer.is_success:
                with _translated(self.url):
                    data = await answer.aread()
                raise _refusal(answer, data)
            yield answer
        finally:
            await answer.aclose()

    async def chunks(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        """Yield the bytes of an answer's body as they arrive.

        Raises:
            Unreachable: the connection was lost before the end.
        """
        with _translated(self.url):
            async for chunk in answer.aiter_bytes():
                yield chunk


def path_of(*parts: str | bytes) -> str:
    """Return the path below the API's root that consists of some parts, each quoted; ``/`` stays in bytes.

    Raises:
        InvalidRequest: a part is ``.`` or ``..``, which a path of a URL cannot have.
    """
    for part in parts:
        names = part.split(b"/") if isinstance(part, bytes) else (part,)
        if any(name in {b".", b"..", ".", ".."} for name in names):
            raise InvalidRequest(f"{part!r} cannot be used: a path of a URL has no '.' or '..'", code="invalid_path")
    quoted = (quote(part, safe="/") if isinstance(part, bytes) else quote(part, safe="") for part in parts)
    return "/v1/" + "/".join(quoted)


def is_transient(error: ClientError) -> bool:
    """Whether a request that failed with this error can succeed when it is repeated unchanged."""
    lost = isinstance(error, Unreachable) and error.code == CONNECTION_LOST
    return lost or error.status in _TRANSIENT_STATUSES


def _parsed(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidRequest(f"{url!r} is not a URL: {error}", code="invalid_url") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise InvalidRequest(
            f"{url!r} is not the URL of a podium server; give one such as http://127.0.0.1:8700", code="invalid_url"
        )
    return parsed


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Raise httpx's errors as the client's."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise Unreachable(f"cannot connect to {url}: {_reason(error)}; is the server up?") from error
    except httpx.ReadTimeout as error:
        raise Unreachable(f"{url} did not answer in time", code=CONNECTION_LOST) from error
    except httpx.TransportError as error:
        raise Unreachable(f"the connection to {url} was lost: {_reason(error)}", code=CONNECTION_LOST) from error
    except httpx.DecodingError as error:
        raise BadAnswer(f"the answer of {url} cannot be decoded: {error}") from error


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _refusal(answer: httpx.Response, data: bytes) -> ClientError:
    """Return the error of an answer that is not a success."""
    try:
        body = decode(data)
    except InvalidInput:
        body = None
    told = body.get("error") if isinstance(body, dict) else None
    retry_after = answer.headers.get("Retry-After", "")
    retry_after_s = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    if isinstance(told, dict):
        return error_of_wire(answer.status_code, told, retry_after_s=retry_after_s)
    text = f"{answer.request.url} answered {answer.status_code}: {_shown(data)}"
    if answer.is_redirect:
        return BadAnswer(f"{answer.request.url} redirects to {answer.headers.get('Location')}; give that URL")
    return error_of_wire(answer.status_code, {"message": text}, retry_after_s=retry_after_s)


def _shown(data: bytes) -> str:
    text = " ".join(data.decode(errors="replace").split())
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
