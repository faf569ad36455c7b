"""`Calls`: calls of a server behind a control socket, from any thread."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from chronicle.control.connections import ControlClient
from chronicle.errors import ChronicleError, Unavailable
from chronicle.system.readiness import is_readable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Calls"]

_DEADLINE_S: Final = 60.0
"""Longer than a server waits for what it needs itself, whose error says more."""
_CONNECT_S: Final = 60.0
"""The server may have to be started first, by a busy machine."""


class Calls:
    """Calls of a server. Each thread that calls has a connection for that time; a free one is used again.

    Args:
        path: the server's socket.
        hello: arguments of the ``hello`` that each connection begins with.
    """

    def __init__(self, path: Path, hello: Mapping[str, object]) -> None:
        self._path = path
        self._hello = dict(hello)
        self._free: deque[ControlClient] = deque()
        self._greeting: Any = None
        self._closed = False
        self._guard = threading.Lock()

    @property
    def greeting(self) -> Any:
        """The server's answer to ``hello``.

        Raises:
            Unavailable: it cannot be reached.
        """
        if self._greeting is None:
            self._give_back(self._connection())
        return self._greeting

    def call(self, op: str, **arguments: object) -> Any:
        """Send a request and return the value of its answer.

        Raises:
            Unavailable: there is no answer, and whether the request was executed is not known; or `close` was called.
            ChronicleError: the error in the answer.
        """
        connection = self._connection()
        try:
            answer = connection.call(op, _DEADLINE_S, **arguments)
        except (OSError, TimeoutError) as error:
            connection.close()
            raise Unavailable(f"{self._path.name} gave no answer to {op}: {str(error) or 'too late'}") from error
        except ChronicleError:
            self._give_back(connection)
            raise
        except BaseException:  # the answer may still come, and would be taken for that of the next call
            connection.close()
            raise
        self._give_back(connection)
        return answer

    def close(self) -> None:
        """Close the free connections; those in use are closed after their calls."""
        with self._guard:
            self._closed = True
            free, self._free = self._free, deque()
        for connection in free:
            connection.close()

    def _connection(self) -> ControlClient:
        if self._closed:
            raise Unavailable(f"the connection to {self._path.name} was closed")
        while self._free:
            try:
                connection = self._free.pop()
            except IndexError:  # another thread was faster
                break
            if not is_readable(connection.fileno()):
                return connection
            connection.close()  # the server has ended meanwhile
        connection = ControlClient(self._path, _CONNECT_S)
        try:
            self._greeting = connection.call("hello", _CONNECT_S, **self._hello)
        except OSError as error:
            connection.close()
            raise Unavailable(f"{self._path.name} does not answer: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _give_back(self, connection: ControlClient) -> None:
        with self._guard:
            if not self._closed:
                self._free.append(connection)
                return
        connection.close()
