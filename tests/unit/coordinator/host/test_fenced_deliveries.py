"""Deliveries of a host whose agent another one has by now: the message is asked for at that one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from chronicle.journal.memory import MemoryJournalStore
from coordinator.host.hosted_agent import HostedAgent
from coordinator.store.permits import HostPermits
from coordinator.store.renewals import Renewals
from podium.errors import AgentAsleep
from podium.testing import AgentHarness
from tests.unit.podium.turn.test_turn import Counter

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore

pytestmark = pytest.mark.usefixtures("caplog")  # the eviction is logged


class Permitted:
    """A journal as a host reads it through a store process, once that has been started again."""

    def __init__(self) -> None:
        self.journal = MemoryJournalStore()
        self.permits: HostPermits | None = None

    def __getattr__(self, name: str) -> Any:
        permits = self.permits
        if permits is None or name not in permits._reads:
            return getattr(self.journal, name)
        return lambda *arguments, **named: permits.call(name, arguments, named)


async def test_a_message_that_a_fenced_host_may_not_read_is_delivered_to_the_next_one() -> None:
    store = Permitted()
    async with AgentHarness(Counter, store=cast("JournalStore", store)) as agent:
        await agent.send("one")
        message_id = agent.admit("two").message_id
        held = agent.activation.lease
        store.journal.acquire_lease(held.session_id, "host_next", held.expires_ms, 10_000, takeover=True)
        store.permits = HostPermits(store.journal, held.holder, Renewals(store.journal))
        hosted = HostedAgent(agent.activation, 1e6, agent.store)
        with pytest.raises(AgentAsleep):
            await anext(hosted.deliver(message_id))
        store.permits = None
        await agent.kill("Evicted")
