"""Deliveries over a host's socket: frames in order, errors as they were, and ends of either side."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import NotFound
from chronicle.ids import MessageId
from coordinator.fleet.delivery import DeliveryChannel, DeliveryServer
from podium.errors import AgentAsleep, HostDied, PodiumError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from podium.turn.stream import Frame

DEADLINE_S = 30
END: Frame = {"type": "turn_end", "turn": 1}


class Host:
    """Yields a frame for each permission, up to the terminal one; or raises."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pulled: dict[str, int] = {}
        self.ended: set[str] = set()
        self.go_on = asyncio.Event()
        self.raises: Exception | None = None
        self.frames = 2
        self._server = DeliveryServer(self._deliver)

    async def start(self) -> DeliveryChannel:
        await self._server.start(self.path)
        return DeliveryChannel(self.path)

    async def closed(self, channel: DeliveryChannel) -> None:
        """Close both ends, and wait until the host has noticed that its peer is gone."""
        self._server.close()
        channel.close()
        await _until(lambda: not any("_serve" in repr(task) for task in asyncio.all_tasks()))

    async def _deliver(self, message_id: MessageId) -> AsyncIterator[list[Frame]]:
        try:
            if self.raises is not None:
                raise self.raises
            for number in range(self.frames):
                self.pulled[message_id] = number + 1
                yield [{"type": "message_update", "delta": f"{message_id}{number}"}]
            await self.go_on.wait()
            yield [END]
        finally:
            self.ended.add(message_id)


async def _all(channel: DeliveryChannel, name: str) -> list[Frame]:
    return [frame async for batch in channel.deliver(MessageId(name)) for frame in batch]


async def _until(true: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not true():
            await asyncio.sleep(0.005)


async def test_deliveries_of_one_connection_do_not_mix(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    host.go_on.set()
    async with asyncio.timeout(DEADLINE_S):
        found = await asyncio.gather(*(_all(channel, name) for name in "abc"))
    assert [[frame.get("delta") for frame in frames[:-1]] for frames in found] == [
        [f"{name}0", f"{name}1"] for name in "abc"
    ]
    assert all(frames[-1] == END for frames in found)
    await host.closed(channel)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (AgentAsleep("it is going to sleep"), AgentAsleep, "it is going to sleep"),
        (NotFound("no such message"), NotFound, "no such message"),
        (KeyError("x"), PodiumError, "KeyError: 'x'"),
    ],
)
async def test_errors_arrive_as_they_were(tmp_path: Path, raised: Exception, kind: type[Exception], text: str) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    host.raises = raised
    with pytest.raises(kind, match=text):
        await _all(channel, "a")
    await host.closed(channel)


async def test_a_host_that_is_gone_is_told_from_one_that_dies(tmp_path: Path) -> None:
    with pytest.raises(AgentAsleep):
        await _all(DeliveryChannel(tmp_path / "nobody"), "a")

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_unix_server(die, path=str(tmp_path / "dying"))
    channel = DeliveryChannel(tmp_path / "dying")
    with pytest.raises(HostDied):
        await _all(channel, "a")
    with pytest.raises(AgentAsleep):
        await _all(channel, "a")
    channel.close()
    server.close()


async def test_a_slow_reader_holds_up_no_more_than_its_own_delivery(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    host.frames = 100
    host.go_on.set()
    async with asyncio.timeout(DEADLINE_S), aclosing(channel.deliver(MessageId("slow"))) as slow:
        await anext(slow)
        assert len(await _all(channel, "quick")) == 101
        assert host.pulled["slow"] < 10
        assert len([batch async for batch in slow]) == 100
    await host.closed(channel)


async def test_a_reader_that_goes_ends_its_delivery(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    async with aclosing(channel.deliver(MessageId("a"))) as frames:
        await anext(frames)
    await _until(lambda: "a" in host.ended)
    await host.closed(channel)


async def test_closing_lets_running_deliveries_end(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    channel = await host.start()
    running = asyncio.ensure_future(_all(channel, "a"))
    await _until(lambda: host.pulled.get("a") == 2)
    channel.close()
    host.go_on.set()
    async with asyncio.timeout(DEADLINE_S):
        assert (await running)[-1] == END
    await host.closed(channel)
