"""The head of a request to a proxy, read strictly: what two readers could read differently is refused. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

__all__ = ["Head", "Refused", "parse_head"]

_TOKEN: Final = rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_REQUEST: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.[01]")
_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\x20-\x7e\t\x80-\xff]*)")
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_OF_CONNECTION: Final = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "expect"}


class Refused(Exception):
    """A request that the proxy does not carry out, with the status and the sentence of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Head:
    """A request: a tunnel, or one of plain HTTP."""

    method: str
    host: str
    """In lower case, without a dot at its end."""
    port: int
    target: str
    """Path and query; empty for a tunnel."""
    fields: tuple[tuple[str, str], ...]
    """Headers that go on to the server; without those of the connection and of proxies."""
    body_bytes: int

    def sent_on(self, added: Mapping[str, str]) -> bytes:
        """Return the head for the server, with headers in place of those of the same name."""
        names = {name.lower() for name in added}
        authority = self.host if self.port in (80, 443) else f"{self.host}:{self.port}"
        fields = [("Host", authority), ("Connection", "close"), *added.items()]
        fields += [(name, value) for name, value in self.fields if name.lower() not in names]
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def parse_head(head: bytes) -> Head:
    """Read a head, without the empty line at its end.

    Raises:
        Refused: it is none, or not one for a proxy.
    """
    first, *lines = head.split(b"\r\n")
    request = _REQUEST.fullmatch(first)
    if request is None:
        raise Refused(400, "this is no request of HTTP/1.1")
    method, target = request[1].decode(), request[2].decode()
    fields = []
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise Refused(400, "a header is malformed")
        fields.append((found[1].decode(), found[2].decode("latin-1").strip(" \t")))
    if method == "CONNECT":
        host, port = _authority(target, None)
        return Head(method, host, port, "", (), 0)
    if method not in _METHODS:
        raise Refused(405, f"the method {method} does not go through this proxy")
    if not target.lower().startswith("http://"):
        raise Refused(400, "a request to a proxy has the whole http:// URL, or the method CONNECT")
    authority, slash, path = target[7:].partition("/")
    if any(each in authority for each in "?#@"):
        raise Refused(400, "the host of the URL is malformed")
    host, port = _authority(authority, 80)
    sent = tuple((n, v) for n, v in fields if n.lower() not in _OF_CONNECTION and not n.lower().startswith("proxy-"))
    return Head(method, host, port, (slash or "/") + path.partition("#")[0], sent, _body_bytes(fields))


def _authority(text: str, default_port: int | None) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port or default_port
    except ValueError:
        host = port = None
    if not host or not port or any(each in text for each in "/?#@\\"):
        raise Refused(400, "the host and port are malformed")
    return host.removesuffix("."), port


def _body_bytes(fields: list[tuple[str, str]]) -> int:
    if any(name.lower() == "transfer-encoding" for name, _ in fields):
        raise Refused(411, "a body that goes through this proxy has a Content-Length")
    lengths = [value for name, value in fields if name.lower() == "content-length"]
    if not lengths:
        return 0
    if len(lengths) > 1 or not re.fullmatch(r"[0-9]{1,15}", lengths[0]):
        raise Refused(400, "the Content-Length is malformed")
    return int(lengths[0])
