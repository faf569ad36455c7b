"""A door: sockets of a machine over TCP, for processes of the same home on other machines.

A home on servers has directories on several machines. What listens on one of them says where in a document of the home,
with a secret: who can read the document has the database's credentials, and is let in. Both sides prove that they know
the secret before anything else is said::

    door       {"nonce": S}
    caller     {"nonce": C, "proof": HMAC(secret, "caller" S C), "to": TARGET, …}
    door       {"proof": HMAC(secret, "service" S C)}, with "absent" if nothing is there that could answer

Then the connection is as one to the socket that is the target. With a certificate the door speaks TLS; the document has
its fingerprint, so that no authority has to sign it, and no name has to match.

`coordinator.service.door` is that of a service, `coordinator.service.node` has that of another machine's hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.errors import InvalidInput
from coordinator.channel import from_json, pack, read_packet
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    """Serves a connection until one of its ends is closed."""

__all__ = [
    "MAX_UNPROVED",
    "PATIENCE_S",
    "Door",
    "DoorOptions",
    "connected_to",
    "listening",
    "options_of",
    "pipe",
    "piped_to",
    "through_door",
]

_TIMEOUT_S: Final = 10.0
"""Of a connection attempt, and of the proofs: nobody else may hold a connection."""
MAX_UNPROVED: Final = 256
"""Connections at a time that have not proved that they know the secret, for which a caller needs milliseconds: enough
for all hosts of a node that connect again at once."""
_CLOSE_S: Final = 2.0
"""Of the end of a connection."""
_MAX_PROOF: Final = 1024
"""Bytes of a packet before the caller is known."""
PATIENCE_S: Final = 5
"""Seconds after which a machine that is gone is noticed, on a connection that is made again if it is there after all:
the kernels answer for each other, however busy their processes are."""
_PATIENCE_S: Final = 25
"""The same of other connections, whose callers would have to begin again."""
_ALL: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  they are refused
"""What stands for all addresses of a machine."""
_PIPE_BYTES: Final = 64 * 1024
_TCP_INFO: Final = struct.Struct("=2x2B")
"""Of ``struct tcp_info`` (tcp(7)): how often the kernel has sent data, and probes, since the last answer."""
_UCRED: Final = struct.Struct("=iII")
"""``struct ucred`` (unix(7)): process, user, group."""
_LOOKS: Final = 10
"""Looks at a connection in the time after which a silent machine is noticed."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Door:
    """What the document of a door says."""

    host: str
    port: int
    secret: str
    certificate: str = ""
    """SHA-256 of the certificate, hex digits; empty: no TLS."""

    @property
    def address(self) -> str:
        """``HOST:PORT``, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class DoorOptions:
    """Where a door is."""

    listen: tuple[str, int]
    """The address to listen at, and the port; 0: a free one."""
    host: str = ""
    """The name or address by which other machines reach it; by default the one it listens at, if that is one."""
    certificate: Path | None = None
    """Certificate chain, PEM."""
    key: Path | None = None
    """Its private key, PEM."""


def options_of(listen: str, host: str, certificate: Path | None, key: Path | None) -> DoorOptions:
    """Return the options that settings give.

    Raises:
        InvalidInput: they cannot be used.
    """
    address, _, port = listen.rpartition(":")
    if not address or not port.isdecimal():
        raise InvalidInput(f"PODIUM_SERVICE_LISTEN={listen} cannot be used: write HOST:PORT, such as 0.0.0.0:8701")
    return DoorOptions((address.strip("[]"), int(port)), host, certificate, key)


# -- the door's side --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(
    options: DoorOptions,
    secret: str,
    find: Callable[[Mapping[str, Any]], Awaitable[Serve]],
    *,
    patience_s: int = _PATIENCE_S,
) -> AsyncIterator[Door]:
    """Listen while the context lasts; at its end connections are closed.

    Args:
        find: returns what serves a caller, by what it has asked for; raises `InvalidInput` for what there never is, and
            `FileNotFoundError` or `ConnectionRefusedError` if it is not there now. Another `OSError`, such as of a
            process with too many open files, says nothing of it. It is called for callers only that know the secret.
        patience_s: as of `through_door`.

    Raises:
        InvalidInput: the address cannot be listened at, or the certificate not be used.
    """
    host, port = options.listen
    if host in _ALL and not options.host:
        raise InvalidInput(
            f"PODIUM_SERVICE_LISTEN={host}:{port} is each address of this machine, and no other machine reaches it by "
            f"{host}: give PODIUM_SERVICE_HOST, the name or address by which they do"
        )
    tls, fingerprint = _tls_of(options)
    tasks = BackgroundTasks()
    unproved = 0

    async def answer(connection: asyncio.Transport) -> None:
        nonlocal unproved
        unproved += 1
        writer: asyncio.StreamWriter | None = None
        try:
            try:
                if unproved > MAX_UNPROVED:
                    raise InvalidInput(f"{MAX_UNPROVED} connections have proved nothing yet")
                async with asyncio.timeout(_TIMEOUT_S):
                    reader, writer = await _streams(connection, tls)
                    _keep_alive(reader, writer, patience_s)
                    serve = await _let_in(reader, writer, secret, find)
            except (InvalidInput, OSError, TimeoutError) as error:
                peer = str(connection.get_extra_info("peername"))
                _log.warning("caller_refused", peer=peer, error=str(error) or type(error).__name__)
                return
            finally:
                unproved -= 1
            if serve is not None:
                await serve(reader, writer)
        finally:
            if writer is None:
                connection.abort()
            else:
                writer.close()
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(_CLOSE_S):
                        await writer.wait_closed()

    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Arrival(lambda connection: tasks.spawn(answer(connection), "door")), host, port
        )
    except OSError as error:
        raise InvalidInput(f"{host}:{port} cannot be listened at (PODIUM_SERVICE_LISTEN): {error}") from error
    try:
        yield Door(options.host or host, server.sockets[0].getsockname()[1], secret, fingerprint)
    finally:
        server.close()
        await tasks.close()


class _Arrival(asyncio.Protocol):
    """A connection of which nothing is read yet.

    Args:
        on_arrival: is given it.
    """

    def __init__(self, on_arrival: Callable[[asyncio.Transport], None]) -> None:
        self._on_arrival = on_arrival

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand it over."""
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        self._on_arrival(transport)


async def _streams(
    connection: asyncio.Transport, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a connection, after the handshake of TLS if there is to be one."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport: asyncio.Transport | None = connection
    if tls is None:
        connection.set_protocol(protocol)
        connection.resume_reading()
    else:
        transport = await loop.start_tls(connection, protocol, tls, server_side=True, ssl_shutdown_timeout=_TIMEOUT_S)
    assert transport is not None, "it is open"
    protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def piped_to(path: Path, user: int | None = None) -> Serve:
    """Return what passes a connection on to a local socket; arguments and errors are those of `connected_to`."""
    there, back = await connected_to(path, user)
    return lambda reader, writer: pipe((reader, writer), (there, back))


async def connected_to(path: Path, user: int | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to a local socket.

    Args:
        user: whose process has to listen there, whatever the path leads to; ``None``: any.

    Raises:
        PermissionError: another user's process listens there.
        OSError: nothing listens there.
    """
    reader, writer = await asyncio.open_unix_connection(str(path))
    if user is not None and (listens := _peer_user(writer)) != user:
        writer.close()
        raise PermissionError(f"a process of the user {listens} listens at {path}, and not one of {user}")
    return reader, writer


def _peer_user(writer: asyncio.StreamWriter) -> int:
    """Return the user of the process that listens at the other end of a Unix connection."""
    credentials = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(credentials)[1])


def _tls_of(options: DoorOptions) -> tuple[ssl.SSLContext | None, str]:
    """Return the context of a certificate, and its fingerprint; none without one."""
    if options.certificate is None:
        return None, ""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.certificate, options.key)
        first = options.certificate.read_text().partition("-----END CERTIFICATE-----")
        der = ssl.PEM_cert_to_DER_cert("".join(first[:2]).strip())
    except (OSError, ValueError, ssl.SSLError) as error:
        raise InvalidInput(f"{options.certificate} and its key cannot be used: {error}") from error
    return context, hashlib.sha256(der).hexdigest()


async def _let_in(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    secret: str,
    find: Callable[[Mapping[str, Any]], Awaitable[Serve]],
) -> Serve | None:
    """Check a caller's proof, and give ours; return what serves it, ``None`` if that is not there now.

    Raises:
        InvalidInput: it does not know the secret, or what it says cannot be read.
    """
    ours = secrets.token_hex(16)
    await _say(writer, {"nonce": ours})
    said = await _heard(reader)
    theirs = _nonce_in(said)
    if not _is_same(said.get("proof"), _proof(secret, "caller", ours, theirs)):
        raise InvalidInput("the caller does not know the secret of this door")
    proof = {"proof": _proof(secret, "service", ours, theirs)}
    try:
        serve = await find(said)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        await _say(writer, {**proof, "absent": error.strerror or str(error)})
        return None
    with contextlib.suppress(ConnectionError):  # what serves it finds the connection at its end, and closes its own
        await _say(writer, proof)
    return serve


async def pipe(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Pass bytes on between two connections, until one of them ends; then close both."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for source, sink in ((one[0], other[1]), (other[0], one[1])):
                tasks.create_task(_copy(source, sink), name="door-pipe")
    except* OSError:
        pass  # one of them is gone
    finally:
        one[1].close()
        other[1].close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_PIPE_BYTES):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()
    else:
        sink.close()


# -- the caller's side ------------------------------------------------------------------------------------------------


async def through_door(
    door: Door, to: str, *, patience_s: int = _PATIENCE_S, **about: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to what is behind a door.

    Args:
        to: the target.
        patience_s: a machine that is gone for so long is noticed, in seconds.
        about: says more of it.

    Raises:
        FileNotFoundError: the door's own answer: the target is not there.
        OSError, TimeoutError: nothing listens there, or it is not the one that told of it.
    """
    context: ssl.SSLContext | None = None
    if door.certificate:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # it is known by its fingerprint
    async with asyncio.timeout(_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(door.host, door.port, ssl=context)
        try:
            _keep_alive(reader, writer, patience_s)
            _check_certificate(door, writer)
            theirs, ours = _nonce_in(await _heard(reader)), secrets.token_hex(16)
            proof = _proof(door.secret, "caller", theirs, ours)
            await _say(writer, {"nonce": ours, "proof": proof, "to": to, **about})
            said = await _heard(reader)
            if not _is_same(said.get("proof"), _proof(door.secret, "service", theirs, ours)):
                raise ConnectionRefusedError(f"what listens at {door.address} does not know the secret of the door")
            if "absent" in said:
                raise FileNotFoundError(f"behind the door {door.address} there is no {to}: {said['absent']}")
        except InvalidInput as error:
            writer.transport.abort()
            raise ConnectionRefusedError(f"what listens at {door.address} is not that door: {error}") from error
        except BaseException:
            writer.transport.abort()
            raise
    return reader, writer


def _check_certificate(door: Door, writer: asyncio.StreamWriter) -> None:
    if not door.certificate:
        return
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if not hmac.compare_digest(hashlib.sha256(shown or b"").hexdigest(), door.certificate):
        raise ConnectionRefusedError(f"what listens at {door.address} has another certificate than the door")


# -- both -------------------------------------------------------------------------------------------------------------


def _nonce_in(said: dict[str, Any]) -> str:
    """Return what the other side has drawn.

    Raises:
        InvalidInput: it has drawn nothing, or no ASCII.
    """
    match said:
        case {"nonce": str(nonce)} if nonce.isascii():
            return nonce
        case _:
            raise InvalidInput("it says no nonce")


def _is_same(said: object, proof: str) -> bool:
    return isinstance(said, str) and said.isascii() and hmac.compare_digest(said, proof)


def _proof(secret: str, who: str, service_nonce: str, caller_nonce: str) -> str:
    return hmac.new(secret.encode(), f"{who} {service_nonce} {caller_nonce}".encode(), hashlib.sha256).hexdigest()


async def _say(writer: asyncio.StreamWriter, what: dict[str, str]) -> None:
    writer.write(pack(what))
    await writer.drain()


async def _heard(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next packet of a proof.

    Raises:
        InvalidInput: there is none, or it is none.
    """
    data = await read_packet(reader, _MAX_PROOF)
    said = from_json(data) if data is not None else None
    if not isinstance(said, dict):
        raise InvalidInput("it ended the connection" if data is None else "it says no object")
    return said


def _keep_alive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience_s: int) -> None:
    """Have the connection end when the other machine has not answered for a time."""
    connection, step_s = writer.get_extra_info("socket"), max(1, patience_s // 5)
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2 * step_s),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, step_s),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ):
        connection.setsockopt(level, option, value)
    _look(reader, writer, connection, patience_s)


def _look(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    connection: socket.socket,
    patience_s: int,
    silent_s: float | None = None,
) -> None:
    """End the connection if the other machine has been silent for too long, and look again later until it has ended.

    The kernel tells how often it has sent the same again since the last answer; while that is on its way, it sends no
    keep-alive. ``TCP_USER_TIMEOUT`` would also end a connection whose other end lives and reads nothing.

    Args:
        silent_s: when it was first found to be silent, on the loop's clock.
    """
    loop = asyncio.get_running_loop()
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except OSError:
        return  # it has been closed
    now_s, (retransmits, probes) = loop.time(), _TCP_INFO.unpack(info)
    silent_s = (silent_s or now_s) if retransmits or probes else None
    if silent_s is not None and now_s >= silent_s + patience_s:
        reader.set_exception(TimeoutError(errno.ETIMEDOUT, f"the other machine has not answered for {patience_s} s"))
        writer.transport.abort()
        return
    loop.call_later(patience_s / _LOOKS, _look, reader, writer, connection, patience_s, silent_s)
