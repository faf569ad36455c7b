"""Reminders of an agent under test: set, listed, cancelled and handled by its own code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import ManualClock
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import MessageStatus
from podium.address import Address
from podium.agent import AgentContext, BaseAgent, DeltaState, Reminder
from podium.history.branching import fork_agent, rewind_agent
from podium.reminders.times import from_ms, to_ms
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Diary(BaseAgent):
    """Does with reminders what its messages say, and writes down what it hears."""

    class State(DeltaState):
        _version = 1
        _entity_type = "diary"

        heard: list[str] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        if "remind" in message:
            first = await ctx.remind(**message["remind"])
            ctx.reply(first.isoformat())
        if "cancel" in message:
            ctx.reply(await ctx.cancel_reminder(message["cancel"]))
        if message.get("list"):
            ctx.reply([reminder.name for reminder in await ctx.reminders()])
        if message.get("fail"):
            raise ValueError("as it was told")
        if "text" in message:
            ctx.state.heard.append(message["text"])


class Secretary(Diary):
    """Has a hook for reminders."""

    agent_type = "diary"
    broken = False

    async def on_reminder(self, ctx: AgentContext[Diary.State], reminder: Reminder) -> None:
        if Secretary.broken:
            raise ValueError("no time")
        ctx.state.heard.append(f"{reminder.name} {reminder.due:%d. %H:%M} {reminder.missed} {reminder.message}")


@pytest.fixture
async def agent() -> AsyncIterator[AgentHarness]:
    """One with the default hook."""
    async with AgentHarness(Diary, clock=ManualClock(to_ms(NOON))) as agent:
        yield agent


@pytest.fixture
async def secretary() -> AsyncIterator[AgentHarness]:
    """One with a hook of its own."""
    Secretary.broken = False
    async with AgentHarness(Secretary, clock=ManualClock(to_ms(NOON))) as agent:
        yield agent


async def remind(agent: AgentHarness, name: str, **rule: Any) -> Any:
    """Have the agent set a reminder, and return when it is due first."""
    exchange = await agent.send({"remind": {"name": name, **rule}})
    assert exchange.ok, exchange.error
    return exchange.data


async def test_a_reminder_is_handled_as_a_message(agent: AgentHarness) -> None:
    assert (
        await remind(agent, "tea", at="2026-06-01T12:30+00:00", message={"text": "tea"}) == "2026-06-01T12:30:00+00:00"
    )
    (reminder,) = agent.reminders()
    assert (reminder.name, reminder.due, reminder.message) == ("tea", NOON + timedelta(minutes=30), {"text": "tea"})
    assert (reminder.every, reminder.cron, reminder.tz) == (None, None, None)
    await agent.advance(29 * 60)
    assert agent.state["heard"] == []
    await agent.advance(60)
    assert agent.state["heard"] == ["tea"]
    assert not agent.reminders()
    (_, (_, payload)) = agent.events("user_message")
    assert payload["message"] == {"text": "tea"}
    assert payload["reminder"] == {"name": "tea", "due_ms": to_ms(NOON) + 30 * 60_000, "missed": 0}


async def test_it_wakes_an_agent_that_sleeps(agent: AgentHarness) -> None:
    await remind(agent, "tea", every=3600, message={"text": "tea"})
    await agent.sleep()
    assert await agent.advance(3600)
    assert agent.state["heard"] == ["tea"]


async def test_the_hook_gets_name_time_and_missed_times(secretary: AgentHarness) -> None:
    await remind(secretary, "hourly", every=3600)
    await remind(secretary, "daily", cron="0 9 * * *", tz="Europe/Berlin", message={"n": 1})
    await secretary.advance(3600)
    await secretary.advance(3 * 24 * 3600)
    assert secretary.state["heard"] == [
        "hourly 01. 13:00 0 {}",
        "hourly 01. 14:00 71 {}",
        "daily 02. 07:00 2 {'n': 1}",
    ]
    daily, hourly = secretary.reminders()
    assert (daily.due, daily.cron, daily.tz) == (datetime(2026, 6, 5, 7, tzinfo=UTC), "0 9 * * *", "Europe/Berlin")
    assert (hourly.due, hourly.every) == (datetime(2026, 6, 4, 14, tzinfo=UTC), timedelta(hours=1))


async def test_a_reminder_replaces_that_of_its_name(agent: AgentHarness) -> None:
    await remind(agent, "tea", every=60, message={"text": "first"})
    await remind(agent, "tea", every=120, message={"text": "second"})
    await agent.advance(60)
    assert agent.state["heard"] == []
    await agent.advance(60)
    assert agent.state["heard"] == ["second"]


async def test_reminders_are_listed_with_the_changes_of_the_turn(agent: AgentHarness) -> None:
    await remind(agent, "b", every=60)
    await remind(agent, "c", every=60)
    exchange = await agent.send({"remind": {"name": "a", "every": 60}, "cancel": "b", "list": True})
    assert exchange.data == ["a", "c"]
    assert [reminder.name for reminder in agent.reminders()] == ["a", "c"]
    assert (await agent.send({"cancel": "a"})).data is True
    assert (await agent.send({"cancel": "a"})).data is False
    assert (await agent.send({"list": True})).data == ["c"]


async def test_a_turn_that_fails_sets_none(agent: AgentHarness) -> None:
    await remind(agent, "kept", every=60)
    exchange = await agent.send({"remind": {"name": "lost", "every": 60}, "cancel": "kept", "fail": True})
    assert not exchange.ok
    assert [reminder.name for reminder in agent.reminders()] == ["kept"]


async def test_hooks_without_a_message_set_reminders() -> None:
    class Early(Diary):
        async def on_init(self, ctx: AgentContext[Diary.State]) -> None:
            await ctx.remind("early", every=60, message={"text": "early"})

    async with AgentHarness(Early, clock=ManualClock(to_ms(NOON))) as agent:
        await agent.send({})
        await agent.advance(60)
        assert agent.state["heard"] == ["early"]


async def test_a_reminder_that_fails_is_retried_and_parked(secretary: AgentHarness) -> None:
    await remind(secretary, "tea", every=60)
    Secretary.broken = True
    await secretary.advance(60)
    session_id = secretary.store.session(str(secretary.address)).session_id
    (parked,) = secretary.store.messages(session_id, MessageStatus.PARKED)
    assert parked.attempts == 3
    assert {payload["hook"] for _, payload in secretary.events("turn.failed")} == {"on_reminder"}
    assert len(secretary.reminders()) == 1
    Secretary.broken = False
    await secretary.advance(60)
    assert secretary.state["heard"] == ["tea 01. 12:02 0 {}"]


async def test_forks_have_none_and_rewinds_leave_them(agent: AgentHarness) -> None:
    await agent.send("before")
    await remind(agent, "tea", every=60, message={"text": "tea"})
    await agent.sleep()
    store, ids, now_ms = agent.store, agent._ids, agent.clock.now_ms()
    fork = Address("diary", "fork")
    fork_agent(store, agent.address, None, fork, ids, now_ms)
    assert not store.reminders(store.session(fork.name).session_id)
    rewind_agent(store, agent.blobs, agent.address, 1, None, ids, now_ms)
    assert [reminder.name for reminder in agent.reminders()] == ["tea"]
    await agent.advance(60)
    assert agent.state["heard"] == ["before", "tea"]


async def test_agents_of_one_store_are_reminded_each() -> None:
    store, clock = MemoryJournalStore(), ManualClock(to_ms(NOON))
    async with (
        AgentHarness(Diary, "a", store=store, clock=clock) as one,
        AgentHarness(Diary, "b", store=store, clock=clock) as other,
    ):
        await remind(one, "tea", every=60, message={"text": "one"})
        await remind(other, "tea", every=60, message={"text": "other"})
        await one.advance(60)
        assert (one.state["heard"], other.state["heard"]) == (["one"], [])
        await other.receive()
        assert other.state["heard"] == ["other"]


async def test_an_agent_that_does_not_run_gets_one_message_and_the_missed_times() -> None:
    store, clock = MemoryJournalStore(), ManualClock(to_ms(NOON))
    async with (
        AgentHarness(Diary, "a", store=store, clock=clock) as one,
        AgentHarness(Secretary, "b", store=store, clock=clock) as other,
    ):
        await remind(other, "hourly", every=3600)
        session_id = store.session(str(other.address)).session_id
        for _ in range(4):
            await one.advance(3600)
            assert len(store.pending(session_id)) == 1
        await other.advance(0)
        assert other.state["heard"] == ["hourly 01. 13:00 0 {}", "hourly 01. 14:00 2 {}"]
        assert other.reminders()[0].due == NOON + timedelta(hours=5)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"name": "", "every": 60}, "'' cannot name a reminder"),
        ({"name": "a\nb", "every": 60}, "cannot name a reminder"),
        ({"name": "tea", "cron": "hourly"}, "'hourly' is not a cron line"),
        ({"name": "tea", "cron": "0 9 * * *", "tz": "Europe/Nowhere"}, "tz='Europe/Nowhere' is not a time zone"),
        ({"name": "tea", "at": "2026-06-01T15:00", "tz": "Mars"}, "give one such as 'Europe/Berlin' or 'UTC'"),
        ({"name": "tea", "at": "2026-06-01T11:00+00:00"}, "is in the past"),
        ({"name": "tea", "every": 60, "message": "text"}, "the message of a reminder is a dict, not str"),
    ],
)
async def test_what_cannot_be_set_is_said_and_nothing_is_lost(
    agent: AgentHarness, rule: dict[str, Any], message: str
) -> None:
    await remind(agent, "kept", every=3600)
    exchange = await agent.send({"remind": rule})
    assert exchange.error is not None
    assert exchange.error["type"] == "InvalidInput"
    assert message in str(exchange.error["message"])
    assert [reminder.name for reminder in agent.reminders()] == ["kept"]


async def test_a_late_attempt_sets_a_time_that_has_passed_meanwhile() -> None:
    class Slow(Diary):
        """Its first attempt takes until after the time of the reminder, and fails."""

        agent_type = "diary"

        async def on_message(self, ctx: AgentContext[Diary.State], message: dict[str, Any]) -> None:
            await super().on_message(ctx, message)
            if "minutes" in message and not tried:
                tried.append(ctx.turn)
                clock.advance(message["minutes"] * 60)
                raise ValueError("the first attempt fails")

    tried: list[int] = []
    clock = ManualClock(to_ms(NOON))
    async with AgentHarness(Slow, clock=clock) as agent:
        tea = {"name": "tea", "at": "2026-06-01T12:30+00:00", "message": {"text": "tea"}}
        exchange = await agent.send({"remind": tea, "minutes": 45})
        assert (exchange.error, exchange.data) == (None, "2026-06-01T12:30:00+00:00")
        assert (await agent.send({"remind": tea})).error is not None  # this one was admitted after it
        await agent.advance(0)
        assert agent.state["heard"] == ["tea"]


async def test_a_time_is_given_back_in_utc(agent: AgentHarness) -> None:
    first = datetime.fromisoformat(await remind(agent, "tea", at="2026-06-01T15:00", tz="Europe/Berlin"))
    assert first == from_ms(to_ms(NOON) + 3_600_000)
    assert first.utcoffset() == timedelta(0)


async def test_a_step_cannot_change_reminders() -> None:
    class Hasty(Diary):
        agent_type = "diary"

        async def on_message(self, ctx: AgentContext[Diary.State], message: dict[str, Any]) -> None:
            async def set_it() -> None:
                await ctx.remind("tea", every=60)

            await ctx.step("set", set_it)

    async with AgentHarness(Hasty, clock=ManualClock(to_ms(NOON))) as agent:
        exchange = await agent.send({})
        assert exchange.error is not None
        assert "a step cannot change reminders" in str(exchange.error["message"])
        assert not agent.reminders()
