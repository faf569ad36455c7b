"""A proxy before an HTTP server that cuts connections where a test says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

__all__ = ["Cut", "CuttingProxy", "cutting_proxy"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a connection."""

    after: bytes
    """The last bytes of the answer that are passed on; empty: the whole answer is."""
    on_request: Callable[[], None] | None = None
    """Called when the request has come."""


@dataclass(slots=True)
class CuttingProxy:
    """A proxy, and what it saw. Each connection serves one request."""

    url: str = ""
    last_event_ids: list[str | None] = field(default_factory=list)
    """The ``Last-Event-ID`` of each request."""
    cut: int = 0
    """How many connections were cut."""


@asynccontextmanager
async def cutting_proxy(server: str, cuts: Sequence[Cut], *, rest: str | None = None) -> AsyncIterator[CuttingProxy]:
    """Run a proxy before the server at a URL. Connections after those of ``cuts`` are passed on whole.

    Args:
        rest: the server of every connection but the first one.
    """
    proxy = CuttingProxy()
    planned = iter(cuts)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cut = next(planned, Cut(b""))
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"\r\nlast-event-id: *(.*?)\r\n", head, re.IGNORECASE)
        proxy.last_event_ids.append(found[1].decode() if found else None)
        if cut.on_request is not None:
            cut.on_request()
        to = urlsplit(server if rest is None or len(proxy.last_event_ids) == 1 else rest)
        answer, request = await asyncio.open_connection(to.hostname, to.port)
        request.write(re.sub(rb"\r\nconnection: [^\r]*", b"\r\nConnection: close", head, flags=re.IGNORECASE))
        length = re.search(rb"\r\ncontent-length: *([0-9]+)", head, re.IGNORECASE)
        request.write(await reader.readexactly(int(length[1]) if length else 0))
        passed = b""
        while data := await answer.read(65536):
            end = (passed + data).find(cut.after) + len(cut.after) - len(passed) if cut.after else 0
            passed += data
            if cut.after and cut.after in passed:
                writer.write(data[:end])
                proxy.cut += 1
                break
            writer.write(data)
        request.close()
        writer.close()

    async with await asyncio.start_server(carry, "127.0.0.1", 0) as listening:
        proxy.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield proxy
