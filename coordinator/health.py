"""The answers to a cluster's probes of a process that has no gateway, or none yet: ``/healthz`` and ``/readyz``.

A thread of its own answers, so that it does while the process waits for a database. It tells nobody why: the logs do.
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

__all__ = ["answering"]

_REQUEST_S: Final = 5.0
"""Timeout of a request, after which its connection is closed."""
_POLL_S: Final = 0.1
"""Interval of looks whether the server is to end."""


@contextmanager
def answering(
    listener: socket.socket,
    *,
    is_live: Callable[[], bool] = lambda: True,
    is_ready: Callable[[], bool] = lambda: False,
    tls: ssl.SSLContext | None = None,
) -> Iterator[None]:
    """Answer on a listening socket while the context lasts: 200, or 503 for no, and for all other paths.

    Args:
        listener: is not closed.
        is_live: whether the process works; false has a cluster start it again. Called in a thread.
        is_ready: whether it can be used. Called in a thread.
        tls: of the server.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = _REQUEST_S

        def setup(self) -> None:
            if tls is not None:
                self.request.settimeout(_REQUEST_S)
                self.request = tls.wrap_socket(self.request, server_side=True)
            super().setup()

        def do_GET(self) -> None:
            questions = {"/healthz": ("ok", is_live), "/readyz": ("ready", is_ready)}
            status, question = questions.get(self.path.partition("?")[0], ("", lambda: False))
            code = HTTPStatus.OK if question() else HTTPStatus.SERVICE_UNAVAILABLE
            body = json.dumps({"status": status if code == HTTPStatus.OK else "unavailable"}).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing of requests: there is one every few seconds."""

    server = _Server(listener, Handler)
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        super().__init__(listener.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that went away, or speaks no TLS."""
