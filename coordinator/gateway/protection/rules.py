"""`Rules`: whom a gateway talks to, how fast, and over what."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["HEADERS_TOO_LARGE", "MAX_HEADER_BYTES", "Rules", "Tls", "is_loopback_name", "read_rules"]


MAX_HEADER_BYTES: Final = 64 * 1024
"""Longest line and headers of a request: the limit of uvicorn and h11 for those that come in pieces."""
HEADERS_TOO_LARGE: Final = f"the line and the headers of a request may have {MAX_HEADER_BYTES} bytes"


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a certificate."""

    certificate: Path
    """The certificate, and those between it and the root, in PEM."""
    key: Path
    """Its private key, in PEM."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits of a gateway. Times are seconds, 0 means no limit."""

    allowed_hosts: frozenset[str] = frozenset()
    """Names in the ``Host`` header besides those of loopback, lower case, without ports; ``*`` for all."""
    origins: frozenset[str] = frozenset()
    """Origins of web pages that may call from another host (CORS), such as ``https://app.example``."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are believed."""
    tls: Tls | None = None
    requests_per_s: float = 0.0
    """Requests of one address in the long run. Twice as many, at least 20, are accepted at once. Not of loopback."""
    connections: int = 4096
    """Open connections of all clients."""
    connections_per_address: int = 256
    """Open connections of one address that is neither loopback nor a trusted proxy."""
    body_bytes: int = 8 * 1024 * 1024
    """Longest body of a request, but of an uploaded file."""
    upload_bytes: int = 1024 * 1024 * 1024
    """Largest file that can be uploaded."""
    header_timeout_s: float = 10.0
    """For a request's line and headers, from the connection or the end of the answer before."""
    body_timeout_s: float = 30.0
    """For a request's body, and more for a long one: it must come with `body_bytes_per_s` at least."""
    body_bytes_per_s: int = 10_000
    stall_timeout_s: float = 60.0
    """For a client that takes nothing of its answer, so long that the buffers are full."""

    @property
    def burst(self) -> int:
        """Requests of one address that are accepted at once."""
        return max(20, round(2 * self.requests_per_s))


def read_rules(
    *,
    host: str,
    allowed_hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    trusted_proxies: Sequence[str] = (),
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    limits: Rules | None = None,
) -> Rules:
    """Return the rules that options of the command line give.

    Args:
        host: the address or name to listen at: a name is an allowed host.
        limits: rules with the limits of numbers, sizes and times; the default ones if not given.

    Raises:
        InvalidInput: an option cannot be used.
    """
    if (tls_cert is None) != (tls_key is None):
        raise InvalidInput("TLS needs both files: give --tls-cert and --tls-key")
    for path in (tls_cert, tls_key):
        if path is not None and not path.is_file():
            raise InvalidInput(f"there is no file {path}; give certificate and key in PEM")
    for origin in origins:
        scheme, separator, rest = origin.partition("://")
        if scheme not in {"http", "https"} or not separator or not rest or "/" in rest or "*" in rest:
            raise InvalidInput(f"{origin!r} is not an origin; write it as browsers do, such as https://app.example")
    for proxy in trusted_proxies:
        try:
            ipaddress.ip_network(proxy, strict=False)
        except ValueError:
            raise InvalidInput(f"{proxy!r} is not an address or a network, such as 10.0.0.0/8") from None
    named = {_host_name(name) for name in (*allowed_hosts, host)} - {"0.0.0.0", "::", ""}  # noqa: S104
    return replace(
        limits or Rules(),
        allowed_hosts=frozenset(named),
        origins=frozenset(origin.lower() for origin in origins),
        trusted_proxies=tuple(trusted_proxies),
        tls=Tls(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None,
    )


def _host_name(name: str) -> str:
    """Return a host's name as `Rules.allowed_hosts` has it.

    Raises:
        InvalidInput: it has a scheme or a port.
    """
    text = name.lower().rstrip(".").removeprefix("[").removesuffix("]")
    if "/" in text or ":" in text:
        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            raise InvalidInput(f"{name!r} is not a host's name; write it without scheme and port") from None
    return text


def is_loopback_name(host: str) -> bool:
    """Whether a host's name or address is this machine's loopback."""
    if host in {"localhost", "localhost.localdomain"} or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
