"""Heads of requests, and first messages of TLS: what is malformed is refused, and nothing else is raised."""

from __future__ import annotations

import ssl
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.sandbox.egress.client_hello import NotTls, server_name
from podium.sandbox.egress.heads import Refused, parse_head


def test_what_goes_on_to_the_server() -> None:
    head = parse_head(
        b"POST http://Files.Example.org./a?b=c#d HTTP/1.1\r\nHost: evil.com\r\nProxy-Authorization: x\r\n"
        b"X-Key: mine\r\n"
        b"Connection: keep-alive\r\nUpgrade: h2c\r\nContent-Length: 3\r\nAccept: */*"
    )
    assert (head.host, head.port, head.target, head.body_bytes) == ("files.example.org", 80, "/a?b=c", 3)
    assert head.sent_on({"X-Key": "theirs"}) == (
        b"POST /a?b=c HTTP/1.1\r\nHost: files.example.org\r\nConnection: close\r\nX-Key: theirs\r\n"
        b"Content-Length: 3\r\nAccept: */*\r\n\r\n"
    )


def test_a_tunnel() -> None:
    head = parse_head(b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: evil.com")
    assert (head.method, head.host, head.port, head.target) == ("CONNECT", "pypi.org", 443, "")
    assert parse_head(b"CONNECT [::1]:443 HTTP/1.1").host == "::1"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", 400),
        (b"GET / HTTP/1.1", 400),
        (b"GET https://pypi.org/ HTTP/1.1", 400),
        (b"GET http://pypi.org/", 400),
        (b"GET http://pypi.org/ HTTP/2.0", 400),
        (b"GET  http://pypi.org/ HTTP/1.1", 400),
        (b"GET http://user@pypi.org/ HTTP/1.1", 400),
        (b"GET http://evil.com\\@pypi.org/ HTTP/1.1", 400),
        (b"GET http://evil.com?.pypi.org/ HTTP/1.1", 400),
        (b"GET http:///path HTTP/1.1", 400),
        (b"GET http://pypi.org:99999/ HTTP/1.1", 400),
        (b"CONNECT pypi.org HTTP/1.1", 400),
        (b"CONNECT pypi.org:0 HTTP/1.1", 400),
        (b"CONNECT pypi.org:443/x HTTP/1.1", 400),
        (b"CONNECT [::1:443 HTTP/1.1", 400),
        (b"TRACE http://pypi.org/ HTTP/1.1", 405),
        (b"PROPFIND http://pypi.org/ HTTP/1.1", 405),
        (b"GET http://pypi.org/ HTTP/1.1\r\n folded: x", 400),
        (b"GET http://pypi.org/ HTTP/1.1\r\nName : x", 400),
        (b"GET http://pypi.org/ HTTP/1.1\r\nA: b\nHost: evil.com", 400),
        (b"GET http://pypi.org/ HTTP/1.1\r\nA: b\x00", 400),
        (b"GET http://pypi.org/ HTTP/1.1\r\nno colon", 400),
        (b"POST http://pypi.org/ HTTP/1.1\r\nTransfer-Encoding: chunked", 411),
        (b"POST http://pypi.org/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", 400),
        (b"POST http://pypi.org/ HTTP/1.1\r\nContent-Length: -1", 400),
        (b"POST http://pypi.org/ HTTP/1.1\r\nContent-Length: 1, 2", 400),
    ],
)
def test_what_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(Refused) as raised:
        parse_head(head)
    assert raised.value.status == status


@given(st.binary(max_size=200), st.sampled_from([b"", b"GET http://a.org/ HTTP/1.1\r\n", b"CONNECT ", b"GET http://"]))
def test_nothing_else_is_raised(rest: bytes, start: bytes) -> None:
    try:
        head = parse_head(start + rest)
    except Refused:
        return
    assert b"\n" not in head.sent_on({}).replace(b"\r\n", b"")
    assert head.sent_on({}).count(b"\r\n\r\n") == 1


@cache
def hello(name: str | None) -> bytes:
    out = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def in_records(message: bytes, size: int) -> bytes:
    body = message[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(message[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


@pytest.mark.parametrize("size", [1, 3, 100, 16384])
def test_the_name_in_tls(size: int) -> None:
    message = in_records(hello("Files.Example.org"), size)
    assert server_name(message) == "files.example.org"
    assert server_name(message + b"more") == "files.example.org"
    assert server_name(message[:-1]) is None
    assert server_name(in_records(hello(None), size)) == ""


@given(st.integers(0, 400), st.binary(min_size=1, max_size=4), st.integers(0, 600))
def test_a_damaged_message(at: int, damage: bytes, length: int) -> None:
    message = hello("files.example.org")
    try:
        server_name((message[:at] + damage + message[at + len(damage) :])[:length])
    except NotTls:
        pass
