"""An HTTP proxy that stands before a server and fails as networks do: refuses, stalls, tears bodies, alters them."""

from __future__ import annotations

import http.client
import http.server
import socket
import struct
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Exchange", "FaultyProxy", "running_halt", "running_proxy"]

Fault = Literal["none", "error", "tear", "stall", "alter", "reset", "close", "hold"]
POLL_S = 0.02
"""How often a proxy looks whether it is to end; half a second by default."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was answered."""

    method: str
    path: str
    range: str | None
    answered_bytes: int


@dataclass(slots=True)
class FaultyProxy:
    """What the proxy does with requests, and which it saw."""

    upstream: int
    port: int = 0
    fault: Fault = "none"
    failures: int = 0
    """So many requests from now on fail so; below 0, all."""
    only: str = ""
    """Only those of this method fail; any if empty."""
    status: tuple[int, str] = (503, "Slow Down")
    """What the fault ``error`` answers."""
    stall_s: float = 30.0
    delay_s: float = 0.0
    """How long each answer takes."""
    exchanges: list[Exchange] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    forgets_conditions: bool = False
    """Whether writes replace what they are not to, as servers do that do not know ``If-None-Match``."""
    conditional: threading.Lock = field(default_factory=threading.Lock)
    """Held while a conditional write is upstream: moto's server looks and writes in two steps, S3 in one."""
    over: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    """Ends the fault ``hold``: what was held up is passed on."""
    held: int = 0
    """So many requests were held up, or are."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    on_put: Callable[[], None] | None = None
    """Called when a PUT has come, before it is passed on."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def fail(self, fault: Fault, times: int = -1, only: str = "") -> None:
        with self.lock:
            self.fault, self.failures, self.only = fault, times, only

    def reads(self) -> list[Exchange]:
        """The requests for bytes of packs so far."""
        return [item for item in self.exchanges if item.method == "GET" and "/packs/" in item.path]

    def next_fault(self, method: str) -> Fault:
        with self.lock:
            if self.failures == 0 or (self.only and self.only != method):
                return "none"
            self.failures -= 1
            return self.fault


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultyProxy

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the client went away
            self.close_connection = True

    def do(self) -> None:
        proxy = self.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = proxy.next_fault(self.command)
        on_put = proxy.on_put
        if on_put is not None and self.command == "PUT":
            on_put()
        if fault == "hold":
            with proxy.changed:
                proxy.held += 1
                proxy.changed.notify_all()
            proxy.released.wait()
        if fault == "stall":
            proxy.over.wait(proxy.stall_s)
        if fault in ("reset", "stall"):
            self._reset()
            return
        if fault == "close":
            self.close_connection = True
            return
        if fault == "error":
            self.send_response(*proxy.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if proxy.delay_s:
            time.sleep(proxy.delay_s)
        is_conditional = self.command == "PUT" and ("If-None-Match" in self.headers or "If-Match" in self.headers)
        upstream = http.client.HTTPConnection("127.0.0.1", proxy.upstream, timeout=60)
        try:
            dropped = ("expect", *(("if-none-match",) if proxy.forgets_conditions else ()))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            with proxy.conditional if is_conditional else nullcontext():
                upstream.request(self.command, self.path, body, headers)
                answer = upstream.getresponse()
                data = answer.read()
        except OSError:  # nobody there
            self._reset()
            return
        finally:
            upstream.close()
        with proxy.lock:  # before the client can go on
            proxy.exchanges.append(Exchange(self.command, self.path, self.headers.get("Range"), len(data)))
        self.send_response(answer.status, answer.reason)
        own = ("connection", "transfer-encoding", "date", "server")
        for name, value in answer.getheaders():
            if name.lower() not in own and (name.lower() != "content-length" or self.command == "HEAD"):
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault == "tear":
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            self._reset()
            return
        if fault == "alter" and data:
            data = data[:-1] + bytes([data[-1] ^ 1])
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do  # noqa: N815 - as the base class finds them

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.connection.close()

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):  # it was reset
            pass

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is overridden
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def running_proxy(upstream: int) -> Iterator[FaultyProxy]:
    """Run a proxy before a port of this machine."""
    proxy = FaultyProxy(upstream)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    with _Server(("127.0.0.1", 0), handler) as server:
        proxy.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), name="faulty-proxy", daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.over.set()
            proxy.released.set()
            server.shutdown()
            thread.join()


@contextmanager
def running_halt(port: int, upstream: int, after_bytes: int, reached: threading.Event) -> Iterator[None]:
    """Pass bytes on, on a port, until a client has sent so many on one connection; then pass on no more of them."""

    def carry(source: socket.socket, target: socket.socket, limit: int | None) -> None:
        sent = 0
        try:
            while data := source.recv(65536):
                sent += len(data)
                if limit is not None and sent > limit:
                    reached.set()
                    while source.recv(65536):
                        pass
                    break
                target.sendall(data)
        except OSError:
            pass
        finally:
            for side in (source, target):
                try:
                    side.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def connect(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", upstream)) as server:
            back = threading.Thread(target=carry, args=(server, client, None))
            back.start()
            carry(client, server, after_bytes)
            back.join()

    listening = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=connect, args=(client,)))
            threads[-1].start()

    threads: list[threading.Thread] = []
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for each in (thread, *threads):
            each.join(30)
