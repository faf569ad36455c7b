"""uvicorn's HTTP protocol, with limits that it lacks.

uvicorn (0.54, h11) limits the size of headers (64 KiB) and the idle time between two requests of a connection, but not
the time in which the headers of a request must come, nor the number of connections of an address: a client that sends a
byte a minute keeps its connection for hours. Here such a connection is answered 408 and closed, one too many 429,
headers that are too long 431, and what is not HTTP 400, each in the shape of all errors. What a refused client still
sends is read and dropped for a while: the kernel would answer it with a reset, which takes the answer from the client.
A client that takes nothing of its answer is cut off: uvicorn waits for it without a limit, and closing the connection
would wait as well.
"""

from __future__ import annotations

import ipaddress
import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from coordinator.gateway.protection.rules import HEADERS_TOO_LARGE, is_loopback_name

if TYPE_CHECKING:
    import asyncio

    from coordinator.gateway.protection.rules import Rules

__all__ = ["guarded_protocol"]

_RETRY_AFTER_S: Final = 1
_LINGER_S: Final = 2.0
"""Time in which what a refused client sends is dropped, unless it closes the connection before."""
_CLOSE: Final = (b"connection", b"close")


class _Connections:
    """The open connections, by address."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._proxies = [ipaddress.ip_network(proxy, strict=False) for proxy in rules.trusted_proxies]
        self._by_address: Counter[str] = Counter()

    def add(self, address: str) -> bool:
        """Count a connection; return whether it is one too many."""
        self._by_address[address] += 1
        if self._rules.connections and self._by_address.total() > self._rules.connections:
            return True
        most = self._rules.connections_per_address
        return bool(most) and self._by_address[address] > most and not self._is_exempt(address)

    def remove(self, address: str) -> None:
        """Forget a connection."""
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _is_exempt(self, address: str) -> bool:
        if is_loopback_name(address):
            return True
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._proxies)


def guarded_protocol(rules: Rules) -> type[H11Protocol]:
    """Return the class of a server's connections; it counts those of all its instances."""

    class GuardedProtocol(_Guarded):
        limits = rules
        open = _Connections(rules)

    return GuardedProtocol


class _Guarded(H11Protocol):
    limits: ClassVar[Rules]
    open: ClassVar[_Connections]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._header_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._address: str | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._address = self.client[0] if self.client is not None else ""
        if self.open.add(self._address):
            self._refuse(429, "too_many_connections", "rate_limit_error", "too many connections; try again later")
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        self._writing_resumed()
        if self._address is not None:
            self.open.remove(self._address)
            self._address = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.trailing_data[0]:  # else uvicorn's own timer runs: the connection is idle
            self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.limits.stall_timeout_s:
            self._await_progress()

    def resume_writing(self) -> None:
        self._writing_resumed()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        error = sys.exception()  # uvicorn calls this as it handles h11's
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._refuse(431, "headers_too_large", "invalid_request_error", HEADERS_TOO_LARGE)
        else:
            self._refuse(400, "invalid_http", "invalid_request_error", f"this is not HTTP: {msg.lower()}")

    def _await_progress(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self.limits.stall_timeout_s, self._look_at_progress, unsent)

    def _look_at_progress(self, unsent: int) -> None:
        """Cut the client off if it took nothing since the last look; nothing is written while writing is paused."""
        if self.transport.get_write_buffer_size() >= unsent:
            self.transport.abort()
        else:
            self._await_progress()

    def _writing_resumed(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _watch(self) -> None:
        """Have the timer run while the headers of a request are awaited."""
        if self.conn.their_state is not h11.IDLE or self._refused or self.transport.is_closing():
            self._stop_watching()
        elif self._header_timer is None and self.limits.header_timeout_s:
            self._header_timer = self.loop.call_later(self.limits.header_timeout_s, self._headers_late)

    def _stop_watching(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_late(self) -> None:
        self._header_timer = None
        if not self._refused and not self.transport.is_closing():
            self._refuse(408, "headers_too_slow", "invalid_request_error", "the request did not come in time")

    def _refuse(self, status: int, code: str, kind: str, message: str) -> None:
        """Answer an error, and close the connection when the client does, or after a while."""
        self._refused = True
        self._stop_watching()
        self._unset_keepalive_if_required()
        error = {"message": message, "type": kind, "code": code, "param": None}
        body = json.dumps({"error": error}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            _CLOSE,
            *([(b"retry-after", str(_RETRY_AFTER_S).encode())] if status == 429 else []),
        ]
        try:
            events: tuple[h11.Event, ...] = (
                h11.Response(status_code=status, headers=headers, reason=b""),
                h11.Data(data=body),
                h11.EndOfMessage(),
            )
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # an answer was begun
            pass
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)
