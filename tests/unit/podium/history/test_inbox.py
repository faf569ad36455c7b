"""An agent's inbox for those who look after it: listing, and giving messages up while the agent sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import NotFound
from chronicle.ids import IdSource, MessageId
from chronicle.journal.records import MessageStatus, NewMessage
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import read_agent
from podium.errors import AgentAwake, UnknownAgent
from podium.events import AGENT_CREATED, TURN_CANCELLED
from podium.messages.inbox import drop_message, list_inbox
from podium.testing.harness import AgentHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chronicle.journal.records import Session


class Fussy(BaseAgent):
    class State(DeltaState):
        _entity_type = "fussy"
        count: int = 0

    max_attempts = 2

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        if message["text"] == "bad":
            raise ValueError(f"no, at try with {ctx.state.count}")


@pytest.fixture
async def agent() -> AsyncIterator[AgentHarness]:
    async with AgentHarness(Fussy) as agent:
        yield agent


def session_of(agent: AgentHarness) -> Session:
    return agent.store.session(str(agent.address))


def drop(agent: AgentHarness, message_id: MessageId) -> bool:
    return drop_message(agent.store, session_of(agent), message_id, IdSource(), agent.clock.now_ms())


async def test_what_waits_and_what_was_set_aside_and_why(agent: AgentHarness) -> None:
    bad = (await agent.send("bad")).receipt.message_id
    waits = agent.admit("good").message_id
    entries = list_inbox(agent.store, agent.blobs, session_of(agent))
    assert [(entry.message.message_id, entry.message.status) for entry in entries] == [
        (bad, MessageStatus.PARKED),
        (waits, MessageStatus.PENDING),
    ]
    assert entries[0].message.attempts == 2
    assert entries[0].error == {"type": "ValueError", "message": "no, at try with 1"}
    assert entries[1].error is None


async def test_giving_up_a_parked_and_a_waiting_message_of_an_agent_that_sleeps(agent: AgentHarness) -> None:
    bad = (await agent.send("bad")).receipt.message_id
    with pytest.raises(AgentAwake):
        drop(agent, bad)
    await agent.sleep()
    waits = agent.admit("good").message_id
    for message_id in (bad, waits):
        assert drop(agent, message_id) is True
        assert drop(agent, message_id) is False
        assert agent.store.message(message_id).status is MessageStatus.CANCELLED
    assert [payload["message_id"] for _, payload in agent.events(TURN_CANCELLED)] == [bad, waits]
    assert list_inbox(agent.store, agent.blobs, session_of(agent)) == []
    assert (await agent.send("good")).ok
    assert agent.state == {"count": 1}


async def test_what_was_handled_or_never_came_cannot_be_given_up(agent: AgentHarness) -> None:
    done = (await agent.send("good")).receipt.message_id
    await agent.sleep()
    with pytest.raises(NotFound, match="handled already"):
        drop(agent, done)
    with pytest.raises(NotFound):
        drop(agent, MessageId("msg_no"))
    async with AgentHarness(Fussy, "other", store=agent.store, blobs=agent.blobs) as other:
        theirs = other.admit("good").message_id
        with pytest.raises(NotFound, match="in the inbox of fussy/test"):
            drop(agent, theirs)


async def test_an_agent_that_never_started_starts_after_its_first_message_was_given_up(agent: AgentHarness) -> None:
    ids, now_ms = IdSource(), agent.clock.now_ms()
    session = agent.store.ensure_session("fussy/new", ids.session(now_ms), ids.branch(now_ms), now_ms)
    message_id = ids.message(now_ms)
    agent.store.admit(session.session_id, NewMessage(message_id, b"{}", now_ms))
    assert drop_message(agent.store, session, message_id, ids, now_ms) is True
    address = Address("fussy", "new")
    with pytest.raises(UnknownAgent, match="never started"):
        read_agent(agent.store, agent.blobs, address)
    async with AgentHarness(Fussy, "new", store=agent.store, blobs=agent.blobs) as new:
        assert (await new.send("good")).ok
        assert new.state == {"count": 1}
        types = [event.type for event, _ in new.events()]
        assert types[:2] == [TURN_CANCELLED, AGENT_CREATED]
        assert read_agent(agent.store, agent.blobs, address, 0).state == {"count": 0}
