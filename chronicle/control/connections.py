"""Control sockets: framed messages over Unix sockets, between processes of a node.

Hosts, the zygote, mount servers and the store process speak so. A frame is four bytes of length, big-endian, and that
many bytes of a message (`chronicle.control.messages`). Answers come in the order of the requests. The sockets are in a
directory that only one user may enter.

Clients block with a deadline. Servers never block on a connection: received bytes are collected until a frame is
complete, and a peer that does not take its answer is dropped.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from chronicle.control.messages import LENGTH, MAX_FRAME, Ended, Message, framed, raise_error, unpack
from chronicle.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Acceptor", "Connection", "ControlClient", "listen"]

log = logging.getLogger(__name__)

_RECEIVE: Final = 256 * 1024
_PEER_DEADLINE_S: Final = 5.0
"""A peer that waits for an answer takes it at once, unless it was stopped: then it loses its connection."""
_BACKLOG: Final = 128
_FULL_S: Final = 0.02
"""Pause of a client whose connection finds the queue full."""
_ACCEPT_BACKOFF_S: Final = 0.01
"""Back-off after `accept` fails: peers stay in the backlog, and the loop would spin."""


class ControlClient:
    """The client's end: one request, one answer. Not for two threads at once.

    Args:
        path: the socket.
        deadline_s: time limit of the connection attempt, which waits while as many others wait as may.

    Raises:
        Ended: nothing listens there.
        Unavailable: it cannot be connected to.
    """

    def __init__(self, path: Path, deadline_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(deadline_s)
        try:
            with _short_name(path) as name:
                self._connect(name, time.monotonic() + deadline_s)
        except OSError as error:
            self._socket.close()
            if isinstance(error, BlockingIOError):
                raise Unavailable(f"too many wait for what listens at {path}") from error
            kind = Ended if isinstance(error, (FileNotFoundError, ConnectionError)) else Unavailable
            raise kind(f"nothing listens at {path}: {error}") from error

    def call(self, op: str, deadline_s: float, **arguments: object) -> Any:
        """Send a request and return the value of its answer.

        Raises:
            ConnectionError: the peer is gone; the request may have been executed.
            TimeoutError: no answer in time; the connection cannot be used any more.
            ChronicleError: the error in the answer.
        """
        until = time.monotonic() + deadline_s
        self._socket.settimeout(deadline_s)
        self._socket.sendall(framed({"op": op, **arguments}))
        (length,) = LENGTH.unpack(self._receive(LENGTH.size, until))
        answer: Message = unpack(self._receive(length, until))
        if "error" in answer:
            raise_error(answer["error"])
        return answer["ok"]

    def fileno(self) -> int:
        """Return the descriptor; it is readable while no call runs only if the other end has hung up."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _connect(self, name: str, until: float) -> None:
        while True:
            try:
                self._socket.connect(name)
            except BlockingIOError:  # the queue of connections is full
                if time.monotonic() >= until:
                    raise
                time.sleep(_FULL_S)
            else:
                return

    def _receive(self, size: int, until: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            part = self._socket.recv(min(size - len(parts), _RECEIVE))
            if not part:
                raise ConnectionResetError("the other end hung up")
            parts += part
        return bytes(parts)


class Connection:
    """The server's end of a connection: takes the bytes that are there and never waits for more.

    Args:
        connection: a connected stream socket, which this object owns from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._buffer = bytearray()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def pid(self) -> int:
        """Return the process id of the client."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", credentials)[0]
        return pid

    def receive(self) -> tuple[list[Message], bool]:
        """Return the frames that are complete, and whether the connection is still open."""
        is_open = True
        try:
            data = self._socket.recv(_RECEIVE)
            is_open = bool(data)
            self._buffer += data
        except BlockingIOError:
            pass
        except OSError:
            is_open = False
        messages: list[Message] = []
        while len(self._buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME:
                return messages, False
            end = LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(unpack(bytes(self._buffer[LENGTH.size : end])))
            del self._buffer[:end]
        return messages, is_open

    def send(self, message: Message) -> bool:
        """Send a frame; return False if the peer is gone or does not take it within five seconds."""
        frame = framed(message)
        try:
            sent = self._socket.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent == len(frame):
            return True
        self._socket.settimeout(_PEER_DEADLINE_S)
        try:
            self._socket.sendall(memoryview(frame)[sent:])
        except OSError:
            return False
        finally:
            with suppress(OSError):
                self._socket.setblocking(False)
        return True

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Acceptor:
    """The server's end of a listening socket. It never raises, so that a loop can go on with its other work.

    Args:
        listener: a non-blocking listening socket; it stays its owner's.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._is_failing = False

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._listener.fileno()

    def accept(self) -> Connection | None:
        """Accept the next connection; None if there is none, or the process has no descriptor or memory for it.

        Then it backs off for a moment; peers stay in the backlog. The failure is logged once, until an accept succeeds.
        """
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            if not self._is_failing:
                log.error("no connection can be accepted: %s", error.strerror)  # noqa: TRY400 - no bug
            self._is_failing = True
            time.sleep(_ACCEPT_BACKOFF_S)
            return None
        self._is_failing = False
        return Connection(connection)


def listen(path: Path) -> socket.socket:
    """Return a listening socket at a path, replacing a file there; only this user may connect.

    Raises:
        Unavailable: the directory is missing or not writable.
    """
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    old_mask = os.umask(0o177)
    try:
        with _short_name(path) as name:
            listener.bind(name)
    except OSError as error:
        listener.close()
        raise Unavailable(f"cannot listen at {path}: {error}") from error
    finally:
        os.umask(old_mask)
    listener.listen(_BACKLOG)
    return listener


@contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """Name a socket by its directory's descriptor: a socket's path may have 107 bytes, and homes may be deep."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
