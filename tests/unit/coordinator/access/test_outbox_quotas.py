"""Messages between agents under the quotas of their tenant: what is held in the outbox, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from coordinator.access.outbox_quotas import check_of_receivers
from coordinator.access.quotas import Quota
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.messages.courier import deliver_outbox
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from typing import Any

    from chronicle.journal.port import JournalStore

IDS, BLOBS = IdSource(), MemoryBlobStore()
QUOTAS = {"acme": Quota(agents=3)}


class Telling(BaseAgent):
    """Tells the agents that its message names."""

    agent_type = "telling"

    class State(DeltaState):
        _entity_type = "telling"
        _version = 1

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        for number, key in enumerate(message["keys"]):
            await ctx.tell(f"telling/{key}", {"keys": [], "number": number})


async def tell(store: JournalStore, keys: str, tenant: str = "acme") -> None:
    async with AgentHarness(Telling, "a", store=store, blobs=BLOBS, tenant=tenant) as agent:
        await agent.send({"keys": list(keys)})


def deliver(store: JournalStore, quotas: dict[str, Quota] = QUOTAS) -> str:
    """The keys of the agents that got messages."""
    receivers = deliver_outbox(store, IDS, 0, check=check_of_receivers(quotas, store))
    return "".join(sorted(address.key for address in receivers))


def held(store: JournalStore) -> list[str]:
    return [envelope.target.partition("/")[2] for envelope in store.outbox_envelopes()]


async def test_messages_that_would_make_an_agent_too_many_are_held_until_one_is_deleted() -> None:
    store = MemoryJournalStore()
    await tell(store, "bcdbdc")
    assert deliver(store) == "bc"
    assert held(store) == ["d", "d"]
    assert deliver(store) == ""
    check = check_of_receivers(QUOTAS, store)
    assert check(Address("telling", "d", "acme")) == "the tenant acme may have 3 agents, and has them"
    store.delete_session(store.session("telling/c", "acme").session_id, 0)
    assert deliver(store) == "d"
    assert held(store) == []
    session = store.session("telling/d", "acme")
    assert [message.position for message in store.pending(session.session_id)] == [1, 2]


async def test_agents_that_exist_and_those_of_other_tenants_get_their_messages() -> None:
    store = MemoryJournalStore()
    await tell(store, "bcde")
    assert deliver(store) == "bc"
    await tell(store, "bcde", "zeta")
    await tell(store, "bae")
    assert deliver(store) == "abbcde"
    assert held(store) == ["d", "e", "e"]


@pytest.mark.parametrize("quotas", [{}, {"acme": Quota(awake_agents=0, bytes=0, messages_per_minute=0)}])
async def test_without_a_limit_of_agents_nothing_is_held(quotas: dict[str, Quota]) -> None:
    store = MemoryJournalStore()
    await tell(store, "bcde")
    assert deliver(store, quotas) == "bcde"
