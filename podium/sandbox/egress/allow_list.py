"""Which hosts and ports a command may reach by the proxy. Pure: no name is resolved here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from podium.errors import SandboxRefused

__all__ = ["Proxied", "is_name"]

_LABEL: Final = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME: Final = re.compile(rf"(?:{_LABEL}\.)*(?![0-9]+$|0x[0-9a-f]*$){_LABEL}")
"""A name of DNS in lower case. Its last label is no number, so no address is one, in any notation of libraries."""
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_DEFAULT_PORTS: Final = (80, 443)
_OF_CONNECTION: Final = {
    "connection",
    "content-length",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
_NO_CREDENTIALS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({})


def is_name(host: str) -> bool:
    """Whether it is a name of a host in lower case, and no address."""
    return len(host) <= 253 and _NAME.fullmatch(host) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxied:
    """A network of some hosts, by HTTP and TLS only, through a proxy outside of the sandbox."""

    allow: tuple[str, ...]
    """Names: ``pypi.org`` is that host, ``*.example.org`` all below it; ``:port`` for one port, else 80 and 443."""
    credentials: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: _NO_CREDENTIALS, repr=False)
    """Headers by host, which the proxy adds to requests of ``http://`` to it, and sends on by TLS, to port 443.

    They never enter the sandbox, and requests of ``https://`` do not have them: the proxy does not see into those.
    """

    def __post_init__(self) -> None:
        """Refuse what is no list of hosts."""
        if not self.allow:
            raise SandboxRefused("the network of a sandbox allows no host: name some, or say none")
        for entry in self.allow:
            _check_entry(entry)
        for host, headers in self.credentials.items():
            if not is_name(host) or not self.allows(host, 443):
                raise SandboxRefused(f"credentials for {host!r}: it is no host that the sandbox may reach at port 443")
            for name, value in headers.items():
                if not _HEADER.fullmatch(name) or name.lower() in _OF_CONNECTION:
                    raise SandboxRefused(f"credentials for {host}: {name!r} is no header that can be added")
                if not value.isascii() or not value.isprintable():
                    raise SandboxRefused(f"credentials for {host}: the value of {name} is no text of a header")

    def allows(self, host: str, port: int) -> bool:
        """Whether a host, in lower case, may be reached at a port."""
        for entry in self.allow:
            name, _, its_port = entry.lower().partition(":")
            if port not in ((int(its_port),) if its_port else _DEFAULT_PORTS):
                continue
            if host == name or (name.startswith("*.") and host.endswith(name[1:])):
                return True
        return False


def _check_entry(entry: str) -> None:
    name, colon, port = entry.lower().partition(":")
    why = None
    if not name.isascii():
        why = "a name is written in ASCII (xn--…)"
    elif name.startswith("*.") and "." not in name[2:]:
        why = "* stands for what is below a name of two parts or more"
    elif not is_name(name.removeprefix("*.")):
        why = "it is a name as pypi.org or *.example.org, perhaps with :port; no address, no URL"
    elif colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        why = "a port is a number from 1 to 65535"
    if why is not None:
        raise SandboxRefused(f"{entry!r} is no host that a sandbox can be allowed to reach: {why}")
