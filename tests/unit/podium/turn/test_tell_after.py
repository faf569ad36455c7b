"""Messages to other agents that are sent at a later time: with the turn, once, and without the sender."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.canonical import decode
from chronicle.errors import InvalidInput, NotFound
from chronicle.ids import IdSource, MessageId
from chronicle.journal.memory import MemoryJournalStore
from coordinator.operations.reminders import cancel, reminder_page
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.errors import ContextMisuse, Permanent
from podium.history.branching import fork_agent, rewind_agent
from podium.testing import AgentHarness


class Echo(BaseAgent):
    """Passes on what it is told to, later."""

    class State(DeltaState):
        heard: list[str] = []
        fails: int = 0

    max_attempts = 2

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.heard.append(f"{message['text']} by {ctx.sender}")

        async def send() -> None:
            for after in message.get("after", []):
                await ctx.tell("echo/b", {"text": f"after {after}"}, after=after)

        if message.get("in_step"):
            await ctx.step("send", send)
        else:
            await send()
        if message.get("fail"):
            raise ValueError("as told")

    async def on_reminder(self, ctx: AgentContext[Any], reminder: Any) -> None:
        ctx.state.heard.append(f"reminded of {reminder.name}")


@pytest.fixture
def store() -> MemoryJournalStore:
    """A new journal."""
    return MemoryJournalStore()


async def test_it_is_sent_when_its_time_has_come_and_wakes_its_receiver_alone(store: MemoryJournalStore) -> None:
    async with AgentHarness(Echo, "a", store=store) as sender, AgentHarness(Echo, "b", store=store) as receiver:
        await sender.send({"text": "go", "after": ["2h", 60]})
        await sender.sleep()
        await receiver.receive()
        assert receiver.state["heard"] == []
        assert sender.reminders() == []
        assert not store.outbox()
        await sender.advance(59.9)
        assert not store.outbox()
        await sender.advance(0.1)
        await receiver.receive()
        assert receiver.state["heard"] == ["after 60 by echo/a"]
        await sender.advance(timedelta(days=1).total_seconds())
        await receiver.receive()
        await receiver.receive()
        assert receiver.state["heard"] == ["after 60 by echo/a", "after 2h by echo/a"]
        assert [payload["sender"] for _, payload in receiver.events("user_message")] == ["echo/a", "echo/a"]
        assert len(sender.events("turn.committed")) == 1


async def test_the_turn_names_it_and_the_caller_goes_along(store: MemoryJournalStore) -> None:
    async with AgentHarness(Echo, "a", store=store) as sender, AgentHarness(Echo, "b", store=store) as receiver:
        await sender.send({"text": "go", "after": [1]})
        _, committed = sender.events("turn.committed")[-1]
        assert committed["sent_to"] == ["echo/b"]
        await sender.advance(1)
        (message,) = store.outbox()
        assert [message.message_id] == committed["sent"]
        await receiver.receive()
        _, heard = receiver.events("user_message")[0]
        assert cast("dict[str, Any]", heard["caller"])["agents"] == ["echo/a"]


async def test_a_turn_that_fails_sends_nothing_later(store: MemoryJournalStore) -> None:
    async with AgentHarness(Echo, "a", store=store) as sender:
        await sender.send({"text": "go", "after": [1], "fail": True})
        assert store.next_reminder_ms() is None
        assert not store.outbox()


async def test_a_step_that_is_not_run_again_keeps_the_time(store: MemoryJournalStore) -> None:
    class Once(Echo):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await super().on_message(ctx, message)
            if not message.get("told"):
                await ctx.sleep("1h")

    async with AgentHarness(Once, "a", store=store) as sender:
        now_ms = sender.clock.now_ms()
        await sender.send({"text": "go", "after": [7200], "in_step": True})
        assert store.next_reminder_ms() == now_ms + 3_600_000  # the end of the pause: the turn is not committed
        await sender.advance(3600)
        assert store.next_reminder_ms() == now_ms + 7_200_000
        assert len(sender.events("turn.committed")) == 1


async def test_forks_do_not_have_it_and_rewinds_leave_it(store: MemoryJournalStore) -> None:
    blobs, ids = MemoryBlobStore(), IdSource()
    async with AgentHarness(Echo, "a", store=store, blobs=blobs) as sender:
        await sender.send({"text": "go", "after": [5]})
        await sender.sleep()
        now_ms = sender.clock.now_ms()
        rewind_agent(store, blobs, sender.address, 0, None, ids, now_ms)
        fork = Address("echo", "fork")
        fork_agent(store, sender.address, 1, fork, ids, now_ms)
        assert not store.reminders(store.session(fork.name).session_id)
        await sender.advance(5)
        assert [message.target for message in store.outbox()] == ["echo/b"]


async def test_it_goes_with_its_sender(store: MemoryJournalStore) -> None:
    async with AgentHarness(Echo, "a", store=store) as sender:
        await sender.send({"text": "go", "after": [5]})
        (reminder,) = store.due_reminders(sender.clock.now_ms() + 5_000, 10)
    store.delete_session(reminder.session_id, 1)
    assert store.next_reminder_ms() is None


async def test_it_is_listed_and_cancelled(store: MemoryJournalStore) -> None:
    class Both(Echo):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await super().on_message(ctx, message)
            await ctx.remind("tea", every=60)
            assert [each.name for each in await ctx.reminders()] == ["tea"]

    async with AgentHarness(Both, "a", store=store) as sender:
        await sender.send({"text": "go", "after": [5, 6]})
        first, second = cast("list[str]", sender.events("turn.committed")[-1][1]["sent"])
        page = reminder_page(store, sender.address, 2, None)
        assert {each.name: (each.to, each.message) for each in page.items} == {
            first: ("echo/b", {"text": "after 5"}),
            second: ("echo/b", {"text": "after 6"}),
        }
        rest = reminder_page(store, sender.address, 2, page.next_cursor)
        assert [(each.name, each.to) for each in rest.items] == [("tea", None)]
        cancel(store, sender.address, first)
        with pytest.raises(NotFound):
            cancel(store, sender.address, first)
        with pytest.raises(NotFound):
            cancel(store, sender.address, f"\x1ftell {second}")
        await sender.advance(10)
        assert [message.message_id for message in store.outbox()] == [MessageId(second)]


class Fickle(BaseAgent):
    """Tells something later, and takes it back."""

    class State(DeltaState):
        told: str = ""
        back: list[bool] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if "tell" in message:
            ctx.state.told = await ctx.tell("echo/b", {"text": message["tell"]}, after=60)
            await ctx.tell("echo/b", {"text": "kept"}, after=60)
        if "back" in message:
            ctx.state.back.extend([await ctx.cancel_reminder(message["back"] or ctx.state.told) for _ in range(2)])
        if "fail" in message:
            raise Permanent("as told")


async def test_a_turn_takes_back_what_an_earlier_one_has_told(store: MemoryJournalStore) -> None:
    async with AgentHarness(Fickle, "a", store=store) as sender:
        await sender.send({"tell": "never"})
        await sender.send({"back": None, "fail": True})
        assert len(store.reminders(store.session("fickle/a").session_id)) == 2, "it was not committed"
        await sender.send({"back": None})
        assert sender.state["back"] == [True, False]
        await sender.advance(60)
        assert [decode(message.body) for message in store.outbox()] == [{"text": "kept"}]
        await sender.send({"back": str(store.outbox()[0].message_id)})
        assert sender.state["back"][2:] == [False, False]
        assert len(store.outbox()) == 1, "it was sent"


async def test_a_turn_takes_back_what_it_has_told(store: MemoryJournalStore) -> None:
    async with AgentHarness(Fickle, "a", store=store) as sender:
        await sender.send({"tell": "never", "back": None})
        assert sender.state["back"] == [True, False]
        assert sender.state["told"] not in cast("list[str]", sender.events("turn.committed")[-1][1]["sent"])
        await sender.advance(60)
        assert [decode(message.body) for message in store.outbox()] == [{"text": "kept"}]


async def test_a_step_takes_nothing_back(store: MemoryJournalStore) -> None:
    class Steps(Fickle):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            told = await ctx.tell("echo/b", {}, after=60)
            with pytest.raises(ContextMisuse):
                await ctx.step("back", ctx.cancel_reminder, told)

    async with AgentHarness(Steps, "a", store=store) as sender:
        await sender.send({})
        assert store.next_reminder_ms() is not None


async def test_times_that_are_none_are_refused(store: MemoryJournalStore) -> None:
    refused: list[str] = []

    class Clumsy(Echo):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            bad: list[Any] = [0, -1, float("nan"), "10y", "", "soon", timedelta(days=3650), True, [1], "-2h"]
            for after in bad:
                with pytest.raises(InvalidInput) as error:
                    await ctx.tell("echo/b", {}, after=after)
                refused.append(str(error.value))
            with pytest.raises(InvalidInput):
                await ctx.tell("echo/b", "text", after=1)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput):
                await ctx.tell("echo/b", {"x": float("nan")}, after=1)

    async with AgentHarness(Clumsy, "a", store=store) as sender:
        assert (await sender.send({"text": "go"})).ok
        assert len(refused) == 10
        assert all("the delay of a message lasts" in each for each in refused)
        assert store.next_reminder_ms() is None
