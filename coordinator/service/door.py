"""The door of a service: its protocol over TCP, for gateways and commands of the same home on other machines.

A home on servers has directories on several machines, and one service. The service tells the others in a document of
the home where its door is, with a secret that is made anew with each service: who can read the document has the
database's credentials, and is let in. Both sides prove that they know the secret before anything else is said::

    service    {"nonce": S}
    caller     {"nonce": C, "proof": HMAC(secret, "caller" S C), "to": "service" or "models"}
    service    {"proof": HMAC(secret, "service" S C)}

Then the connection is as one to `Home.socket_path`, or to `Home.models_socket`. With a certificate the door speaks TLS;
the document has its fingerprint, so that no authority has to sign it, and no name has to match.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import ssl
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog

from chronicle.errors import ChronicleError, InvalidInput
from coordinator.channel import from_json, pack, read_packet
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from coordinator.documents import Documents

__all__ = ["Door", "DoorOptions", "open_door", "published_door", "through_door", "withdraw_door"]

Target = Literal["service", "models"]

_DOCUMENT: Final = "service"
_TIMEOUT_S: Final = 10.0
"""Of a connection attempt, and of the proofs: nobody else may hold a connection."""
_CLOSE_S: Final = 2.0
"""Of the end of a connection."""
_MAX_PROOF: Final = 1024
"""Bytes of a packet before the caller is known."""
_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 25_000),
)
"""A machine that is gone is noticed after 25 s."""
_ALL: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  they are refused
"""What stands for all addresses of a machine."""
_PIPE_BYTES: Final = 64 * 1024

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


def published_door(documents: Documents) -> Door | None:
    """Return the door of the service of a home as it was last told; ``None`` if there is none.

    Raises:
        Unavailable: the database cannot be reached.
    """
    data = documents.read(_DOCUMENT)
    found = json.loads(data) if data else {}
    return Door(**found) if found else None


def withdraw_door(documents: Documents) -> None:
    """Tell that the service has no door, also if one that was killed has told of its own.

    Raises:
        Unavailable: the database cannot be reached.
    """
    if published_door(documents) is not None:
        documents.write(_DOCUMENT, b"{}")


# -- the service's side -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_door(
    options: DoorOptions,
    documents: Documents,
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    models: Path,
) -> AsyncIterator[Door]:
    """Listen, and tell where, while the context lasts.

    Args:
        serve: serves a connection to the service, and closes it.
        models: the socket of the model gateway.

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
    secret = secrets.token_hex(32)
    tasks = BackgroundTasks()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target = await let_in(reader, writer)
            if target == "models":
                await _pipe(reader, writer, models)
            elif target == "service":
                await serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await writer.wait_closed()

    async def let_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Target | None:
        try:
            _keep_alive(writer)
            async with asyncio.timeout(_TIMEOUT_S):
                return await _let_in(reader, writer, secret)
        except (InvalidInput, OSError, TimeoutError) as error:
            peer = str(writer.get_extra_info("peername"))
            _log.warning("caller_refused", peer=peer, error=str(error) or type(error).__name__)
            return None

    try:
        server = await asyncio.start_server(
            lambda reader, writer: tasks.start_logged(answer(reader, writer), "door"),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=_TIMEOUT_S if tls is not None else None,
            ssl_shutdown_timeout=_TIMEOUT_S if tls is not None else None,
        )
    except OSError as error:
        raise InvalidInput(f"the service cannot listen at {host}:{port} (PODIUM_SERVICE_LISTEN): {error}") from error
    door = Door(options.host or host, server.sockets[0].getsockname()[1], secret, fingerprint)
    documents.write(_DOCUMENT, json.dumps(asdict(door)).encode())
    try:
        yield door
    finally:
        server.close()
        await tasks.close()
        try:
            if published_door(documents) == door:  # else that of the next service
                withdraw_door(documents)
        except ChronicleError as error:  # the next service says where its own is, or that it has none
            _log.warning("door_not_withdrawn", error=str(error))


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
        raise InvalidInput(f"{options.certificate} and its key cannot be used for the service: {error}") from error
    return context, hashlib.sha256(der).hexdigest()


async def _let_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: str) -> Target:
    """Check a caller's proof, and give ours; return where it wants to.

    Raises:
        InvalidInput: it does not know the secret, or what it says cannot be read.
    """
    ours = secrets.token_hex(16)
    await _say(writer, {"nonce": ours})
    said = await _heard(reader)
    theirs, target = _nonce_in(said), said.get("to")
    if not _is_same(said.get("proof"), _proof(secret, "caller", ours, theirs)):
        raise InvalidInput("the caller does not know the secret of this service")
    if target not in ("service", "models"):
        raise InvalidInput(f"the caller wants to {target!r}")
    await _say(writer, {"proof": _proof(secret, "service", ours, theirs)})
    return "models" if target == "models" else "service"


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: Path) -> None:
    """Pass bytes on between a connection and a local socket, until one of them ends."""
    try:
        there, back = await asyncio.open_unix_connection(str(to))
    except OSError:
        writer.close()
        return
    try:
        async with asyncio.TaskGroup() as tasks:
            for source, sink in ((reader, back), (there, writer)):
                tasks.create_task(_copy(source, sink), name="door-pipe")
    except* OSError:
        pass  # one of them is gone
    finally:
        writer.close()
        back.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_PIPE_BYTES):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()
    else:
        sink.close()


# -- the caller's side ------------------------------------------------------------------------------------------------


async def through_door(door: Door, target: Target = "service") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to a service's door.

    Raises:
        OSError: nothing listens there, or it is not the service that told of it.
    """
    context: ssl.SSLContext | None = None
    if door.certificate:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # it is known by its fingerprint
    async with asyncio.timeout(_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(door.host, door.port, ssl=context)
        try:
            _keep_alive(writer)
            _check_certificate(door, writer)
            theirs, ours = _nonce_in(await _heard(reader)), secrets.token_hex(16)
            proof = _proof(door.secret, "caller", theirs, ours)
            await _say(writer, {"nonce": ours, "proof": proof, "to": target})
            said = (await _heard(reader)).get("proof")
            if not _is_same(said, _proof(door.secret, "service", theirs, ours)):
                raise ConnectionRefusedError(f"what listens at {door.address} does not know the service's secret")
        except InvalidInput as error:
            writer.transport.abort()
            raise ConnectionRefusedError(f"what listens at {door.address} is not the service: {error}") from error
        except BaseException:
            writer.transport.abort()
            raise
    return reader, writer


def _check_certificate(door: Door, writer: asyncio.StreamWriter) -> None:
    if not door.certificate:
        return
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if not hmac.compare_digest(hashlib.sha256(shown or b"").hexdigest(), door.certificate):
        raise ConnectionRefusedError(f"what listens at {door.address} has another certificate than the service")


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


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    for level, option, value in _KEEPALIVE:
        connection.setsockopt(level, option, value)
