"""A change of a file waits for the running turn, but not for as long as garbage collection spares its content."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from coordinator.service import server
from coordinator.service.client import ServiceRefused
from tests.unit.coordinator.service.served import Agents, client_of, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coordinator.home import Home
    from podium.address import Address


class Busy(Agents):
    """Its agents' turns do not end."""

    held = 0

    @asynccontextmanager
    async def asleep(self, _: Address) -> AsyncIterator[None]:
        self.held += 1
        try:
            await asyncio.Event().wait()
            yield
        finally:
            self.held -= 1


async def test_a_turn_that_does_not_end_in_time(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_UPLOAD_WAIT_S", 0.01)
    agents = Busy()
    async with serving(home, agents), client_of(home) as client:
        with pytest.raises(ServiceRefused, match=r"the running turn of hello/a did not end within 0.01 s") as refused:
            await client.change_file("hello/a", "file", None)
    assert refused.value.kind == "AgentAwake"
    assert agents.held == 0
