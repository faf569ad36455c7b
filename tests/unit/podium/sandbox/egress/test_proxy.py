"""The proxy against clients that want too much of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from podium.sandbox.egress import proxy as proxying
from podium.sandbox.egress.allow_list import Proxied
from podium.sandbox.egress.proxy import Denied, Proxy
from podium.tasks import joined_beside
from tests.fuse.sandbox.egress.internet import Internet


class Served:
    def __init__(self, internet: Internet) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.address = self.listener.getsockname()
        self.denied: list[Denied] = []
        allow = Proxied(allow=("*.example.org",))
        self.proxy = Proxy(allow, internet.outside(), self.deny)

    async def deny(self, denied: Denied) -> None:
        self.denied.append(denied)

    async def ask(self, request: bytes) -> bytes:
        """Send something, and return all that comes until the proxy closes."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with Internet(tmp_path).running() as internet:
        served = Served(internet)
        async with joined_beside(served.proxy.serve(served.listener)):
            yield served


GET = b"GET http://files.example.org/ HTTP/1.1\r\n\r\n"


async def test_a_huge_head(served: Served) -> None:
    answer = await served.ask(b"GET http://files.example.org/ HTTP/1.1\r\nA: " + b"a" * 100_000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert (await served.ask(GET)).endswith(b"hello\n")


async def test_a_head_that_does_not_come(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxying, "_HEAD_S", 0.2)
    assert (await served.ask(b"GET http://fil")).startswith(b"HTTP/1.1 408 ")
    tunnel = await served.ask(b"CONNECT files.example.org:443 HTTP/1.1\r\n\r\n\x16\x03\x01")
    assert tunnel == b"HTTP/1.1 200 Connection established\r\n\r\n"


async def test_a_name_that_is_not_resolved(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await served.ask(GET.replace(b"files", b"nowhere"))).startswith(b"HTTP/1.1 502 ")
    monkeypatch.setattr(proxying, "_DIAL_S", 0.2)
    assert (await served.ask(GET.replace(b"files", b"hangs"))).startswith(b"HTTP/1.1 504 ")


async def test_each_denial_is_told_once_and_not_without_end(served: Served) -> None:
    for _ in range(3):
        assert (await served.ask(b"CONNECT evil.com:443 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
    assert [str(each) for each in served.denied] == ["denied egress evil.com:443: it is not on the list"]
    for number in range(2 * proxying._MAX_DENIED):
        await served.ask(f"CONNECT e{number}.com:443 HTTP/1.1\r\n\r\n".encode())
    assert len(served.denied) == proxying._MAX_DENIED


@pytest.mark.parametrize("many", [300, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_many_connections(served: Served, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxying, "_HEAD_S", 600.0)
    held = [await asyncio.open_connection(*served.address) for _ in range(proxying._MAX_CONNECTIONS)]
    for _ in range(many):
        assert (await served.ask(b"")).startswith(b"HTTP/1.1 503 ")
    for _, writer in held:
        writer.close()
    async with asyncio.timeout(60):
        while not (await served.ask(GET)).endswith(b"hello\n"):
            pass
