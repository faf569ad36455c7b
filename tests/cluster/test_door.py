"""The door between machines: when one of them is gone, the other notices, also while data is on its way."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.door import DoorOptions, listening, through_door
from tests.cluster.machines import new_network

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping
    from pathlib import Path

    from coordinator.door import Serve


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)


async def find(asked: Mapping[str, Any]) -> Serve:
    return echo


async def test_a_machine_that_is_gone_while_data_is_on_its_way_is_noticed(tmp_path: Path) -> None:
    with new_network(tmp_path / "network") as network:
        here, there = network.add("here", "there")
        async with AsyncExitStack() as stack:
            with there.network():
                door = await stack.enter_async_context(listening(DoorOptions((there.address, 0)), "secret", find))
            with here.network():
                reader, writer = await through_door(door, "echo", patience_s=1)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            there.cut()
            writer.write(b"hello?")
            with pytest.raises(TimeoutError, match="the other machine has not answered for 1 s"):
                await reader.read(1)
            assert writer.is_closing()
