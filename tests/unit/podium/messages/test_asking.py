"""Questions on their way to the receiver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import NewMessage
from podium.address import Address
from podium.messages.asking import StoreAsker
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BOSS, KIM = Address("boss", "ann"), Address("worker", "kim")


def _not_noticed(_: Sequence[str]) -> None:
    pass


@pytest.mark.parametrize("cancelled_at", ["admit", "message"])
async def test_a_receiver_is_woken_although_its_asker_is_cancelled_before_that(cancelled_at: str) -> None:
    store, ids = MemoryJournalStore(), IdSource()
    reached, may_go_on = asyncio.Event(), asyncio.Event()
    woken: list[tuple[Address, int]] = []

    async def run_store(call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        if call == getattr(store, cancelled_at):
            reached.set()
            await may_go_on.wait()
        return call(*arguments, **named)

    async def wake(address: Address) -> None:
        woken.append((address, len(store.pending(store.session(address.name).session_id))))

    asker = StoreAsker(store, MemoryBlobStore(), ids, run_store, wake)
    question = NewMessage(ids.message(0), b"{}", 0, "ask:1", BOSS.name)
    asking = asyncio.create_task(asker.ask(BOSS, KIM, question, _not_noticed))
    await reached.wait()
    asking.cancel()
    await asyncio.wait({asking})
    assert asking.cancelled()
    may_go_on.set()
    await until(lambda: bool(woken))
    assert woken == [(KIM, 1)]
