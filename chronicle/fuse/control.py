"""What the host, the zygote and the mount servers say to each other over Unix sockets.

A frame is four bytes of length, big-endian, and that many bytes of MessagePack. A request is a map with ``op`` and the
operation's arguments; its answer is ``{"ok": value}`` or ``{"error": {"type", "message", "fields"}}``. Answers come in
the order of the requests. Both ends are of one installation and one user: the sockets are in a directory that only that
user may enter, and the protocol has no version of its own.

The clients block with a deadline; the servers never block on a peer: what it sends is collected until a frame is whole,
and a peer that does not take its answer is dropped.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgpack

from chronicle import errors
from chronicle.errors import ChronicleError, StaleEpoch, Unavailable
from chronicle.ids import BlobId
from chronicle.workspace.port import Iteration, LayerSpec, Quota, TreeRef

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Acceptor",
    "Connection",
    "ControlClient",
    "Ended",
    "Message",
    "answer_error",
    "answer_ok",
    "iteration_from_wire",
    "iteration_to_wire",
    "listen",
    "pack",
    "raise_error",
    "ref_from_wire",
    "ref_to_wire",
    "spec_from_wire",
    "spec_to_wire",
    "unpack",
]

log = logging.getLogger(__name__)

Message = dict[str, Any]
"""A frame's content."""

_LENGTH: Final = struct.Struct(">I")
_FRAME_LIMIT: Final = 256 * 1024 * 1024
"""Bytes. Only a damaged stream says more: the longest frames are histories, about 100 bytes an iteration."""
_RECEIVE: Final = 256 * 1024
_PEER_DEADLINE_S: Final = 5.0
"""A peer that waits for an answer takes it at once, unless it was stopped: then it loses its connection."""
_BACKLOG: Final = 128
_SHUT_S: Final = 0.01
"""How long a loop pauses when it cannot let anybody in: who knocks stays there, and the loop would do nothing else."""


class Ended(Unavailable):
    """Nobody serves at a socket: who did has ended, or is ending and takes nothing on. What it had begun ends with it.

    Not raised of who is there and does not answer: that may have been stopped.
    """


_MESSAGE_ONLY: Final = {
    name: kind
    for name in (
        "NotFound",
        "BlobMissing",
        "InvalidInput",
        "Conflict",
        "Corrupt",
        "UnsupportedFormat",
        "Unavailable",
        "StorageRefused",
    )
    if isinstance(kind := getattr(errors, name), type)
} | {"Ended": Ended}


class ControlClient:
    """The blocking end: one request, one answer. Not for two threads at once.

    Args:
        path: the socket.
        deadline_s: how long to wait for the connection.

    Raises:
        Ended: nobody listens there.
        Unavailable: it cannot be connected to.
    """

    def __init__(self, path: Path, deadline_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(deadline_s)
        try:
            with _short(path) as name:
                self._socket.connect(name)
        except OSError as error:
            self._socket.close()
            kind = Ended if isinstance(error, (FileNotFoundError, ConnectionError)) else Unavailable
            raise kind(f"nobody answers at {path}: {error}") from error

    def call(self, op: str, deadline_s: float, **arguments: object) -> Any:
        """Send a request and return what its answer holds.

        Raises:
            ConnectionError: the peer went away; the request may have been carried out.
            TimeoutError: no answer in time; the connection cannot be used any more.
            ChronicleError: the error that the peer answered.
        """
        until = time.monotonic() + deadline_s
        self._socket.settimeout(deadline_s)
        self._socket.sendall(_frame({"op": op, **arguments}))
        (length,) = _LENGTH.unpack(self._receive(_LENGTH.size, until))
        answer: Message = unpack(self._receive(length, until))
        if "error" in answer:
            raise_error(answer["error"])
        return answer["ok"]

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

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
    """The serving end of one connection: takes what is there and never waits for more.

    Args:
        connection: a connected stream socket, which the peer owns from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._buffer = bytearray()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def pid(self) -> int:
        """Return the process id of who connected."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", credentials)[0]
        return pid

    def receive(self) -> tuple[list[Message], bool]:
        """Return the frames that are complete by now, and whether the connection is still open."""
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
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > _FRAME_LIMIT:
                return messages, False
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(unpack(bytes(self._buffer[_LENGTH.size : end])))
            del self._buffer[:end]
        return messages, is_open

    def send(self, message: Message) -> bool:
        """Send a frame; return False if the peer is gone or does not take it within five seconds."""
        frame = _frame(message)
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
        """Hang up."""
        self._socket.close()


class Acceptor:
    """The serving end of a listening socket, which never raises: a loop with other things to do goes on with them.

    Args:
        listener: a listening socket that does not block; it stays its owner's.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._shut = False

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._listener.fileno()

    def accept(self) -> Connection | None:
        """Let in who waits first; None if nobody does any more, or the process has no descriptor or memory for it.

        Who is not let in goes on waiting. That is logged once, until somebody is let in again.
        """
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            if not self._shut:
                log.error("callers wait, as no connection can be taken: %s", error.strerror)  # noqa: TRY400 - no bug
            self._shut = True
            time.sleep(_SHUT_S)
            return None
        self._shut = False
        return Connection(connection)


def listen(path: Path) -> socket.socket:
    """Return a listening socket at a path, in place of what was there; only this user may connect.

    Raises:
        Unavailable: the directory is not there or not writable.
    """
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    old_mask = os.umask(0o177)
    try:
        with _short(path) as name:
            listener.bind(name)
    except OSError as error:
        listener.close()
        raise Unavailable(f"cannot listen at {path}: {error}") from error
    finally:
        os.umask(old_mask)
    listener.listen(_BACKLOG)
    return listener


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Name a socket by way of its directory's descriptor: a socket's path may have 107 bytes, a home may be deep."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _frame(message: Message) -> bytes:
    body = pack(message)
    return _LENGTH.pack(len(body)) + body


def pack(message: Message) -> bytes:
    """Return a message as MessagePack. Paths are ``str``, with surrogate escapes where their bytes are not UTF-8."""
    body: bytes = msgpack.packb(message, unicode_errors="surrogateescape")
    return body


def unpack(body: bytes) -> Message:
    """Return the message of such bytes."""
    message: Message = msgpack.unpackb(body, unicode_errors="surrogateescape")
    return message


def answer_ok(value: object = None) -> Message:
    """Return the answer of an operation that was carried out."""
    return {"ok": value}


def answer_error(error: Exception) -> Message:
    """Return the answer of one that was not. What is no `ChronicleError` is a bug, or the disk: `Unavailable`."""
    if isinstance(error, StaleEpoch):
        return {"error": {"type": "StaleEpoch", "message": str(error), "fields": [error.epoch, error.current]}}
    for kind in type(error).__mro__:
        if kind.__name__ in _MESSAGE_ONLY:
            return {"error": {"type": kind.__name__, "message": str(error)}}
    message = f"{type(error).__name__}: {error}" if not isinstance(error, ChronicleError) else str(error)
    return {"error": {"type": "Unavailable", "message": message}}


def raise_error(error: Message) -> NoReturn:
    """Raise the error of an answer here, as the type it had there."""
    if error["type"] == "StaleEpoch":
        raise StaleEpoch(*error["fields"])
    raise _MESSAGE_ONLY.get(error["type"], Unavailable)(error["message"])


def ref_to_wire(ref: TreeRef | None) -> list[str] | None:
    """Return a tree reference as a list of its two ids."""
    return None if ref is None else [ref.tree_id, ref.oplog_id]


def ref_from_wire(value: list[str] | None) -> TreeRef | None:
    """Return the tree reference of such a list."""
    return None if value is None else TreeRef(BlobId(value[0]), BlobId(value[1]))


def spec_to_wire(spec: LayerSpec) -> Message:
    """Return a layer's specification as a map."""
    return {
        "workspace_id": spec.workspace_id,
        "layers": os.fspath(spec.layers.absolute()),
        "base": ref_to_wire(spec.base),
        "epoch": spec.epoch,
        "turn": spec.turn,
        "quota": None if spec.quota is None else [spec.quota.bytes, spec.quota.files, spec.quota.file_bytes],
        "gives_up_when_full": spec.gives_up_when_full,
    }


def spec_from_wire(value: Message) -> LayerSpec:
    """Return the specification of such a map."""
    return LayerSpec(
        workspace_id=value["workspace_id"],
        layers=Path(value["layers"]),
        base=ref_from_wire(value["base"]),
        epoch=value["epoch"],
        turn=value["turn"],
        quota=None if value["quota"] is None else Quota(*value["quota"]),
        gives_up_when_full=value.get("gives_up_when_full", False),  # a zygote may be older than its caller
    )


def iteration_to_wire(item: Iteration) -> list[object]:
    """Return one version of a path as a list of its fields, in their order."""
    return [item.iteration, item.timestamp, item.size, item.hash, item.op, item.turn, item.source, item.mode]


def iteration_from_wire(value: list[Any]) -> Iteration:
    """Return the version of such a list."""
    return Iteration(*value)
