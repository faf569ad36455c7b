"""Sockets and threads in virtual time: what the service and hosts of a simulated cluster speak over.

A connection delivers in order. While the node of its server is cut off, it holds what either side sends, and delivers
it late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from podium.testing.simulation.virtual_time import VirtualLoop

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["ClusterLoop", "Place"]

_HELD_S: Final = 0.05
"""Interval of looks whether a node is still cut off."""


class Place:
    """Where a server is."""

    is_cut = False
    """Whether nothing gets there, or from there."""


class ClusterLoop(VirtualLoop):
    """A virtual loop with Unix sockets, whose servers are on nodes; calls in threads are made at once."""

    def __init__(self, generator: random.Random) -> None:
        super().__init__()
        self._generator = generator
        self._servers: dict[str, _Server] = {}
        self.places: dict[str, Place] = {}
        """Of the servers, by the names of their sockets."""

    def run_in_executor(self, _: object, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Call at once: the simulation has no threads."""
        answer = self.create_future()
        try:
            answer.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001  it is the answer
            answer.set_exception(error)
        return answer

    async def create_unix_server(self, factory: Callable[[], Any], path: str, **_: Any) -> Any:  # type: ignore[override]
        """Listen."""
        name = path.rpartition("/")[2]
        server = self._servers[name] = _Server(self, name, factory)
        return server

    async def create_unix_connection(self, factory: Callable[[], Any], path: str, **_: Any) -> Any:  # type: ignore[override]
        """Connect.

        Raises:
            ConnectionRefusedError: nobody listens.
        """
        name = path.rpartition("/")[2]
        await asyncio.sleep(self._latency_s())
        server = self._servers.get(name)
        if server is None or self.places[name].is_cut:
            raise ConnectionRefusedError(name)
        near, far = _End(self, self.places[name]), _End(self, self.places[name])
        near.peer, far.peer = far, near
        server.ends.append(far)
        for end, protocol in ((far, server.factory()), (near, factory())):
            end.set_protocol(protocol)
            protocol.connection_made(end)
        return near, near.get_protocol()

    def end_server(self, name: str) -> None:
        """End a server with its process: its connections break, and nothing that it writes arrives any more."""
        server = self._servers.pop(name, None)
        for end in server.ends if server is not None else ():
            end.close()

    def close_server(self, name: str) -> None:
        """Accept no further connections."""
        self._servers.pop(name, None)

    def _latency_s(self) -> float:
        return 0.01 * self._generator.random() ** 2


class _Server:
    def __init__(self, loop: ClusterLoop, name: str, factory: Callable[[], Any]) -> None:
        self._loop = loop
        self._name = name
        self.factory = factory
        self.ends: list[_End] = []

    def close(self) -> None:
        """Accept no further connections."""
        self._loop.close_server(self._name)


class _End(asyncio.Transport):
    """One end of a connection."""

    peer: _End

    def __init__(self, loop: ClusterLoop, place: Place) -> None:
        super().__init__()
        self._loop = loop
        self._place = place
        self._protocol: Any = None
        self._closing = False
        self._under_way: deque[bytes | None] = deque()
        """What was sent; ``None`` for the end."""

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        if not self._closing:
            self._send(bytes(data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._send(None)
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        """Read on: what is read is bounded by the window of deliveries."""

    def resume_reading(self) -> None:
        """Read on."""

    def get_write_buffer_size(self) -> int:
        return 0

    def _send(self, data: bytes | None) -> None:
        self._under_way.append(data)
        if len(self._under_way) == 1:
            self._loop.call_later(self._loop._latency_s(), self._arrive)

    def _arrive(self) -> None:
        if self._place.is_cut:
            self._loop.call_later(_HELD_S, self._arrive)
            return
        data = self._under_way.popleft()
        if self._under_way:
            self._loop.call_later(self._loop._latency_s(), self._arrive)
        if self.peer._closing:
            return
        if data is None:
            self.peer.close()
        else:
            self.peer._protocol.data_received(data)
