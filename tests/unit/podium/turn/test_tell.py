"""Messages from agent to agent: sent with the turn, delivered after it, once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import InvalidInput
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.errors import InvalidAddress
from podium.messages.courier import deliver_outbox
from podium.testing import AgentHarness, HarnessOptions

_IDS = IdSource()
_NOW = 1_700_000_000_000


class Echo(BaseAgent):
    """Passes on what it is told to, and notes who told it what."""

    class State(DeltaState):
        heard: list[str] = []

    max_attempts = 1

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.heard.append(message["text"])
        for target in message.get("to", []):
            await ctx.tell(target, {"text": f"from {ctx.key}"})
        if message.get("fail"):
            raise ValueError("as told")


async def test_what_a_turn_sends_is_delivered_once() -> None:
    store = MemoryJournalStore()
    async with AgentHarness(Echo, "a", store=store) as first, AgentHarness(Echo, "b", store=store) as second:
        await first.send({"text": "go", "to": ["echo/b"]})
        _, committed = first.events("turn.committed")[-1]
        (outgoing,) = store.outbox()
        assert committed["sent"] == [outgoing.message_id]
        assert deliver_outbox(store, _IDS, _NOW) == [Address("echo", "b")]
        assert deliver_outbox(store, _IDS, _NOW) == []
        await second.send({"text": "mine"})
        assert second.state["heard"] == ["from a", "mine"]
        _, heard = second.events("user_message")[0]
        assert heard["sender"] == "echo/a"


async def test_messages_stay_in_the_tenant_of_the_sender() -> None:
    store = MemoryJournalStore()
    async with (
        AgentHarness(Echo, "a", store=store, tenant="acme") as first,
        AgentHarness(Echo, "b", store=store, tenant="acme") as second,
        AgentHarness(Echo, "b", store=store) as stranger,
    ):
        await first.send({"text": "go", "to": ["echo/b", "acme:echo/b"]})
        assert deliver_outbox(store, _IDS, _NOW) == [Address("echo", "b", "acme")]
        await second.send({"text": "mine"})
        await stranger.send({"text": "mine"})
        assert second.state["heard"] == ["from a", "from a", "mine"]
        assert stranger.state["heard"] == ["mine"]
        assert second.events("user_message")[0][1]["sender"] == "acme:echo/a"
    assert not store.outbox()


class Asking(BaseAgent):
    """Notes who each of its hooks runs for."""

    class State(DeltaState):
        senders: list[str | None] = []

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        ctx.state.senders.append(ctx.sender)

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.senders.append(ctx.sender)


async def test_an_agent_knows_which_agent_sent_a_message() -> None:
    store = MemoryJournalStore()
    async with AgentHarness(Echo, "a", store=store) as first, AgentHarness(Asking, "b", store=store) as second:
        await second.send("from a client")
        await first.send({"text": "go", "to": ["asking/b"]})
        await second.receive()
        assert second.state["senders"] == [None, None, "echo/a"]


async def test_a_turn_names_who_it_sends_to() -> None:
    async with AgentHarness(Echo, "a") as agent:
        await agent.send({"text": "go", "to": ["echo/b", "echo/c"]})
        await agent.send("nothing to anybody")
        (_, first), (_, second) = agent.events("turn.committed")
        assert len(cast("list[str]", first["sent"])) == 2
        assert first["sent_to"] == ["echo/b", "echo/c"]
        assert "sent_to" not in second


async def test_a_message_is_stamped_before_what_answers_it() -> None:
    clock = ManualClock()

    class Slow(Echo):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            clock.advance(2)
            reply = await ctx.send_message()
            await reply.stream_token("at once", final=True)
            clock.advance(3)

    async with AgentHarness(Slow, "a", clock=clock) as agent:
        await agent.send("hi")
        asked, answered, committed = (event.ts for event, _ in agent.events() if event.turn == 1)
        assert (answered - asked, committed - answered) == (2_000, 3_000)


async def test_a_failed_turn_sends_nothing() -> None:
    async with AgentHarness(Echo, "a") as agent:
        await agent.send({"text": "go", "to": ["echo/b"], "fail": True})
        assert not agent.store.outbox()


async def test_a_courier_that_dies_halfway_is_made_good() -> None:
    class Forgetful(MemoryJournalStore):
        """Loses the note that a message was delivered, once."""

        lost = False

        def outbox_delivered(self, message_id: Any) -> None:
            if not self.lost:
                self.lost = True
                raise ConnectionResetError
            super().outbox_delivered(message_id)

    store = Forgetful()
    async with AgentHarness(Echo, "a", store=store) as first, AgentHarness(Echo, "b", store=store) as second:
        await first.send({"text": "go", "to": ["echo/b"]})
        with pytest.raises(ConnectionResetError):
            deliver_outbox(store, _IDS, _NOW)
        deliver_outbox(store, _IDS, _NOW)
        await second.send({"text": "mine"})
        assert second.state["heard"] == ["from a", "mine"]


async def test_a_full_inbox_keeps_its_mail_and_holds_up_nobody() -> None:
    async with AgentHarness(Echo, "a") as agent:
        await agent.send({"text": "go", "to": ["echo/full", "echo/full", "echo/b"]})
        assert deliver_outbox(agent.store, _IDS, _NOW, inbox_limit=1) == [Address("echo", "full"), Address("echo", "b")]
        (left,) = agent.store.outbox()
        assert left.target == "echo/full"


async def test_unusable_receivers_and_messages_are_refused() -> None:
    caught: list[Exception] = []

    class Clumsy(Echo):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            for target, body in (
                ("nobody", {}),
                ("acme:echo/b", {}),
                ("echo/b", "text"),
                ("echo/b", {"x": float("nan")}),
            ):
                try:
                    await ctx.tell(target, body)  # type: ignore[arg-type]
                except (InvalidAddress, InvalidInput) as error:
                    caught.append(error)

    async with AgentHarness(Clumsy, "a") as agent:
        await agent.send({"text": "go"})
        assert [type(error) for error in caught] == [InvalidAddress, InvalidAddress, InvalidInput, InvalidInput]
        assert not agent.store.outbox()


async def test_a_type_that_the_project_does_not_have_is_refused() -> None:
    store = MemoryJournalStore()
    async with AgentHarness(Echo, "a", store=store, options=HarnessOptions(known_types={"echo", "clerk"})) as agent:
        answer = await agent.send({"text": "go", "to": ["clerk/x", "clark/x"]})
        assert answer.error == {
            "type": "UnknownAgentType",
            "message": "no agent class of type 'clark': the known types are clerk, echo",
        }
        assert list(store.outbox()) == []
        assert (await agent.send({"text": "go", "to": ["clerk/x"]})).ok
        assert [message.target for message in store.outbox()] == ["clerk/x"]
