"""Hosts that were lost with their nodes, as the service learns of them."""

from __future__ import annotations

import asyncio

from coordinator.fleet.deaths.losses import Losses


async def test_losses_are_told_once_and_waited_for() -> None:
    losses = Losses()
    losses.note(["host_1"])
    seen, first = await losses.after(None)
    assert first == ["host_1"]
    waiting = asyncio.ensure_future(losses.after(seen))
    await asyncio.sleep(0)
    losses.note([])
    await asyncio.sleep(0)
    assert not waiting.done()
    losses.note(["host_2", "host_3"])
    seen, more = await waiting
    assert more == ["host_2", "host_3"]
    losses.note(["host_4"])
    assert (await losses.after(seen))[1] == ["host_4"], "also what was lost while nobody waited"


async def test_of_another_run_of_the_coordinator_nothing_is_known() -> None:
    before, now = Losses(), Losses()
    before.note(["host_1"])
    seen, _ = await before.after(None)
    other, none = await now.after(seen)
    assert none == []
    assert other[0] != seen[0]
