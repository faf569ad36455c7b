"""The gateway's listening socket, bound before anything is started."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Final

from chronicle.errors import InvalidInput
from podium.errors import PodiumError

__all__ = ["PortTaken", "is_loopback", "listen", "url_of"]

_BACKLOG: Final = 2048
"""Connections that wait to be accepted, as uvicorn has it; the kernel's limit may be lower."""


class PortTaken(PodiumError):
    """Another process listens at the gateway's address.

    Attributes:
        port: the port.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"port {port} of {host} is taken by another program; give another one with --port")
        self.host = host
        self.port = port


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; clients wait in its backlog until they are served.

    Args:
        host: a name or an address of this machine.
        port: 0 for a free one.

    Raises:
        PortTaken: another process listens there.
        InvalidInput: the host is not of this machine, or the port needs privileges.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInput(f"--host {host} is not an address of this machine: {error}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier gateway may linger
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(host, port) from error
        if error.errno == errno.EACCES:
            raise InvalidInput(
                f"--port {port} needs privileges that this process lacks; give one above 1023"
            ) from error
        raise InvalidInput(f"--host {host} is not an address of this machine: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def is_loopback(listener: socket.socket) -> bool:
    """Whether a listening socket is reached from this machine only."""
    return ipaddress.ip_address(str(listener.getsockname()[0])).is_loopback


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """Return the URL of a listening socket, for a client on this machine."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(str(host))
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    scheme = "https" if tls else "http"
    return f"{scheme}://[{address}]:{port}" if address.version == 6 else f"{scheme}://{address}:{port}"
