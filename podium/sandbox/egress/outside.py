"""The network that the proxy uses: it resolves names itself, and connects to addresses of the public internet only."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

__all__ = ["Outside", "is_public", "of_this_machine", "resolve"]

Connect = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

_NOT_PUBLIC: Final = (IPv4Network("168.63.129.16/32"), IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
"""Public by their numbers: Azure's host of a machine, protocols (Oracle's metadata among them), relays of 6to4."""
_UNICAST: Final = IPv6Network("2000::/3")
"""All that is given out of IPv6."""
_TRANSLATED: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
"""NAT64: the last four bytes are an address of IPv4."""
_COMPATIBLE: Final = IPv6Network("::/96")


def is_public(text: str) -> bool:
    """Whether an address is one of the public internet: not private, of a link, of a host, multicast or reserved."""
    try:
        address = ip_address(text)
    except ValueError:  # with a zone: of a link
        return False
    if isinstance(address, IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            return is_public(str(inner))
        return address in _UNICAST and address.is_global
    return address.is_global and not address.is_multicast and not any(address in each for each in _NOT_PUBLIC)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the address of IPv4 that is meant by one of IPv6."""
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour
    if address.teredo:
        return address.teredo[1]
    if address in _COMPATIBLE or any(address in each for each in _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def of_this_machine(address: str) -> bool:
    """Whether a public address is one of this machine: who would connect to it would do so from itself."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing
        except OSError:
            return False  # no way there
        return ip_address(probe.getsockname()[0]) == ip_address(address)


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name, in the order in which to try them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


@dataclass(frozen=True, slots=True)
class Outside:
    """How the proxy reaches servers; tests have a network of their own."""

    resolve: Resolve = resolve
    connect: Connect = asyncio.open_connection
    """Called with an address that was checked, never with a name."""
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    """For the requests with credentials."""
