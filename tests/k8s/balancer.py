"""A TCP balancer, ``python -m tests.k8s.balancer DESCRIPTOR PROBE HOST:PORT...``, in place of a Service.

A connection goes to the next server whose probe, a path of HTTP, answers 200. It listens at a socket that it is given,
so it may listen in one network and connect in another one. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress
from itertools import cycle
from typing import TYPE_CHECKING, Final

from coordinator.door import pipe

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROBE_S: Final = 5.0
_WAIT_S: Final = 0.2
_TRIES: Final = 50


class Balancer:
    """Passes connections on.

    Args:
        servers: their addresses.
        probe: a path.
    """

    def __init__(self, servers: Sequence[tuple[str, int]], probe: str) -> None:
        self._servers = servers
        self._next = cycle(servers)
        self._probe = probe

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass a connection on until one side has ended it."""
        try:
            for _ in range(_TRIES):
                server = next(self._next)
                with suppress(OSError, TimeoutError):
                    if await self._is_ready(server):
                        await pipe((reader, writer), await asyncio.open_connection(*server))
                        return
                await asyncio.sleep(_WAIT_S)
        finally:
            writer.close()

    async def _is_ready(self, server: tuple[str, int]) -> bool:
        async with asyncio.timeout(_PROBE_S):
            reader, writer = await asyncio.open_connection(*server)
            writer.write(f"GET {self._probe} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            said = await reader.readline()
            writer.close()
            return b" 200 " in said


async def main(descriptor: str, probe: str, *servers: str) -> None:
    """Serve until the end of the standard input."""
    addresses = [(host, int(port)) for host, _, port in (server.partition(":") for server in servers)]
    listener = socket.socket(fileno=int(descriptor))
    async with await asyncio.start_server(Balancer(addresses, probe).serve, sock=listener):
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
