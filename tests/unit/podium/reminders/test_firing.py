"""What sends reminders: once for each time, jitter if there are many, and woken agents told."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import InvalidInput, Unavailable
from chronicle.ids import IdSource, MessageId
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import Outcome, Reminder, SetReminder, Settlement
from chronicle.testing.journal_contract import Writer
from podium.address import Address
from podium.caller import Caller
from podium.messages.headers import Headers, ReminderHeader
from podium.reminders.delayed import DelayedMessage
from podium.reminders.firing import Jitter, NotFired, ReminderTask, fire_reminder
from podium.reminders.plans import Plan
from podium.reminders.schedule import At, Cron, Every
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from podium.reminders.schedule import Rule

IDS = IdSource()
ALICE = Address("hello", "alice")
NOW_MS = 1_700_000_000_000


class Store(MemoryJournalStore):
    """Refuses to fire as often as it is told, or fires later than it answers, and has a clock of its own."""

    refusals = 0
    late: Callable[[], object] | None = None
    ahead_ms = 0

    def now_ms(self, given_ms: int) -> int:
        return given_ms + self.ahead_ms

    def fire_reminder(self, *args: Any, **more: Any) -> Any:
        if self.late is not None:
            self.late = partial(super().fire_reminder, *args, **more)
            raise Unavailable("it took too long")
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("not now")
        return super().fire_reminder(*args, **more)


@pytest.fixture
def store() -> Store:
    """A new one."""
    return Store()


def set_reminder(
    store: MemoryJournalStore, name: str = "tea", rule: Rule | None = None, due_ms: int = NOW_MS, agent: Address = ALICE
) -> Reminder:
    """Set a reminder, and return it as it is stored."""
    body = Plan(agent, rule or At(), {"text": name}).to_body()
    writer = Writer.on(store, agent.name, agent.tenant)
    writer.write(reminders=(SetReminder(name, due_ms, body),))
    return next(each for each in store.reminders(writer.session.session_id) if each.name == name)


def test_firing_sends_the_message_with_its_header(store: Store) -> None:
    reminder = set_reminder(store, rule=Every(60_000))
    assert fire_reminder(store, IDS, reminder, NOW_MS + 150_000) == ALICE
    (message,) = store.pending(reminder.session_id)
    assert (message.body, message.sender, message.idempotency_key) == (b'{"text":"tea"}', None, None)
    assert Headers.from_json(message.headers).reminder == ReminderHeader("tea", NOW_MS, 2)
    (moved,) = store.reminders(reminder.session_id)
    assert moved.due_ms == NOW_MS + 180_000
    assert Plan.from_body(moved.body) == replace(Plan.from_body(reminder.body), sent=message.message_id)
    assert fire_reminder(store, IDS, reminder, NOW_MS + 150_000) is NotFired.GONE
    assert len(store.pending(reminder.session_id)) == 1


def test_a_repeated_one_waits_while_its_last_message_is_pending(store: Store) -> None:
    reminder = set_reminder(store, rule=Every(60_000))
    fire_reminder(store, IDS, reminder, NOW_MS)
    (moved,) = store.reminders(reminder.session_id)
    for later_ms in (60_000, 180_000):
        assert fire_reminder(store, IDS, moved, NOW_MS + later_ms) is NotFired.WAITS
    assert list(store.reminders(reminder.session_id)) == [moved]
    (first,) = store.pending(reminder.session_id)
    Writer.on(store).write(settled=(Settlement(first.message_id, Outcome.PARKED),))
    assert fire_reminder(store, IDS, moved, NOW_MS + 180_000) == ALICE
    (second,) = store.pending(reminder.session_id)
    assert Headers.from_json(second.headers).reminder == ReminderHeader("tea", NOW_MS + 60_000, 2)


def test_one_whose_last_message_is_not_known_any_more_fires(store: Store) -> None:
    body = Plan(ALICE, Every(60_000), {}, MessageId("msg_pruned")).to_body()
    Writer.on(store).write(reminders=(SetReminder("tea", NOW_MS, body),))
    (reminder,) = store.due_reminders(NOW_MS, 1)
    assert fire_reminder(store, IDS, reminder, NOW_MS) == ALICE


def test_agents_of_tenants_are_reminded(store: Store) -> None:
    theirs = Address("hello", "alice", "acme")
    assert fire_reminder(store, IDS, set_reminder(store, agent=theirs), NOW_MS) == theirs


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'{"agent":"a/b","rule":{"cron":"no line","tz":"UTC"},"message":{}}',
        b'{"agent":"a/b","rule":{"moon":"full"},"message":{}}',
        b'{"agent":"nobody","rule":{},"message":{}}',
    ],
)
def test_what_cannot_be_read_stays(store: Store, body: bytes) -> None:
    reminder = set_reminder(store)
    Writer.on(store).write(reminders=(SetReminder("tea", NOW_MS, body),))
    (unreadable,) = store.reminders(reminder.session_id)
    with pytest.raises(InvalidInput):
        fire_reminder(store, IDS, unreadable, NOW_MS)
    assert list(store.reminders(reminder.session_id)) == [unreadable]


# -- the jitter --------------------------------------------------------------------------------------------------------


def reminders(count: int, due_ms: int = NOW_MS) -> list[Reminder]:
    session_id = IDS.session(NOW_MS)
    return [Reminder(session_id, f"r{number}", due_ms, b"") for number in range(count)]


def test_a_few_fire_at_once() -> None:
    due = reminders(50)
    assert Jitter(random.Random(1)).due(due, NOW_MS) == due


def test_many_are_spread_over_a_span_that_grows_with_them() -> None:
    for count, span_ms in ((550, 10_000), (2050, 40_000), (20_000, 300_000)):
        jitter, due = Jitter(random.Random(1)), reminders(count)
        early = jitter.due(due, NOW_MS)
        assert len(early) < count / 100
        half = jitter.due(due, NOW_MS + span_ms // 2)
        assert 0.4 * count < len(half) < 0.6 * count
        assert jitter.due(due, NOW_MS + span_ms) == due


def test_one_that_comes_later_does_not_wait_for_the_many() -> None:
    jitter, many = Jitter(random.Random(1)), reminders(1000)
    jitter.due(many, NOW_MS)
    (late,) = reminders(1, NOW_MS + 10)
    assert late in jitter.due([*many, late], NOW_MS + 10)


def test_what_fired_or_went_is_forgotten() -> None:
    jitter, many = Jitter(random.Random(1)), reminders(100)
    jitter.due(many, NOW_MS)
    first_ms = jitter.next_ms()
    assert first_ms is not None
    for reminder in many[1:]:
        jitter.forget(reminder)
    assert jitter.next_ms() is not None
    assert jitter.due([], NOW_MS) == []
    assert jitter.next_ms() is None


# -- the task ----------------------------------------------------------------------------------------------------------


class Bell:
    """A task on a store, and who was told."""

    def __init__(self, store: Store) -> None:
        self.clock = ManualClock(NOW_MS)
        self.told: list[Address] = []
        self.task = ReminderTask(store, IDS, self.clock, self._arrived, random.Random(1))

    async def _arrived(self, address: Address) -> None:
        self.told.append(address)


async def test_the_task_fires_what_is_due_and_says_when_to_look_again(store: Store) -> None:
    bell = Bell(store)
    assert await bell.task.look() == 2.0
    set_reminder(store, "soon", due_ms=NOW_MS + 500)
    set_reminder(store, "later", due_ms=NOW_MS + 60_000)
    assert await bell.task.look() == 0.5
    assert bell.told == []
    bell.clock.advance(0.5)
    assert await bell.task.look() == 2.0
    assert bell.told == [ALICE]


@pytest.mark.parametrize("ahead_ms", [-86_400_000, -700, 700, 86_400_000])
async def test_they_go_by_the_clock_of_the_journal(store: Store, ahead_ms: int) -> None:
    """The clock of the coordinator's machine is another one."""
    bell = Bell(store)
    store.ahead_ms = ahead_ms
    set_reminder(store, "due", due_ms=NOW_MS + ahead_ms)
    set_reminder(store, "later", rule=Every(60_000), due_ms=NOW_MS + ahead_ms + 500)
    assert await bell.task.look() == 0.5
    assert bell.told == [ALICE]
    bell.clock.advance(0.5)
    await bell.task.look()
    assert bell.told == [ALICE, ALICE]
    assert store.next_reminder_ms() == NOW_MS + ahead_ms + 60_500


@pytest.mark.usefixtures("caplog")
async def test_a_fire_that_failed_comes_again(store: Store) -> None:
    bell, reminder = Bell(store), set_reminder(store)
    store.refusals = 1
    assert await bell.task.look() == 2.0
    assert bell.told == []
    bell.clock.advance(2)
    await bell.task.look()
    assert bell.told == [ALICE]
    assert len(store.pending(reminder.session_id)) == 1


@pytest.mark.usefixtures("caplog")
async def test_an_agent_is_told_of_one_that_fired_although_it_seemed_to_have_failed(store: Store) -> None:
    """A database answers late, or not, and has made the write."""
    bell, reminder = Bell(store), set_reminder(store)
    store.late = bool
    await bell.task.look()
    fire, store.late = store.late, None
    bell.clock.advance(1)
    await bell.task.look()
    assert bell.told == []
    fire()
    bell.clock.advance(1)
    await bell.task.look()
    await bell.task.look()
    assert bell.told == [ALICE]
    assert len(store.pending(reminder.session_id)) == 1


@pytest.mark.usefixtures("caplog")
async def test_one_that_cannot_be_read_does_not_stop_the_others(store: Store) -> None:
    bell = Bell(store)
    nobodys = b'{"agent":"nobody","rule":{},"message":{}}'
    always = b'{"agent":"hello/alice","rule":{"every_ms":0},"message":{}}'
    daily = b'{"agent":"hello/alice","rule":{"cron":"0 9 * * *","tz":"UTC"},"message":{}}'
    broken = (
        SetReminder("broken", NOW_MS - 1, b"{}"),
        SetReminder("nobody's", NOW_MS - 1, nobodys),
        SetReminder("always", NOW_MS - 1, always),
        SetReminder("before all time", -(2**62), daily),
    )
    Writer.on(store).write(reminders=broken)
    set_reminder(store)
    set_reminder(store, "soon", due_ms=NOW_MS + 500)
    assert await bell.task.look() == 0.5
    assert bell.told == [ALICE]
    set_reminder(store, "again")
    assert await bell.task.look() == 0.5
    assert bell.told == [ALICE, ALICE]


@pytest.mark.usefixtures("caplog")
async def test_one_that_fails_delays_no_other(store: Store) -> None:
    bell = Bell(store)
    set_reminder(store, "fails")
    set_reminder(store, "soon", due_ms=NOW_MS + 300)
    store.refusals = 1
    assert await bell.task.look() == 0.3
    bell.clock.advance(0.3)
    assert await bell.task.look() == 1.7
    assert bell.told == [ALICE]
    bell.clock.advance(1.7)
    assert await bell.task.look() == 2.0
    assert bell.told == [ALICE, ALICE]
    assert not store.next_reminder_ms()


async def test_many_that_wait_delay_no_other(store: Store) -> None:
    for number in range(300):
        set_reminder(store, rule=Every(1000), agent=Address("hello", f"a{number}"))
    bell = Bell(store)
    while len(bell.task._held) < 300:  # nobody handles the messages
        bell.clock.advance(await bell.task.look())
    for seconds in range(20):  # all of them wait, and are looked at again
        set_reminder(store, f"at {seconds}", due_ms=bell.clock.now_ms())
        assert 0 < await bell.task.look() <= 2.0
        assert bell.told[300:] == [ALICE] * (seconds + 1)
        bell.clock.advance(1)
    assert store.backlog().pending == 320


async def test_one_that_waited_fires_when_its_message_was_handled(store: Store) -> None:
    reminder = set_reminder(store, rule=Every(1000))
    bell = Bell(store)
    await bell.task.look()
    bell.clock.advance(10.5)
    await bell.task.look()
    (first,) = store.pending(reminder.session_id)
    Writer.on(store).write(settled=(Settlement(first.message_id, Outcome.CONSUMED),))
    assert bell.told == [ALICE]
    bell.clock.advance(2)
    await bell.task.look()
    assert bell.told == [ALICE, ALICE]
    (second,) = store.pending(reminder.session_id)
    assert Headers.from_json(second.headers).reminder == ReminderHeader("tea", NOW_MS + 1000, 11)


async def test_repeated_reminders_after_an_outage_come_once_each(store: Store) -> None:
    agents = [Address("hello", f"a{number}") for number in range(300)]
    for agent in agents:
        set_reminder(store, rule=Cron("* * * * *", "UTC"), agent=agent)
    bell = Bell(store)
    bell.clock.advance(3600)
    waits = []
    for _ in range(1000):
        waits.append(await bell.task.look())
        if len(bell.told) == len(agents):
            break
        bell.clock.advance(min(waits[-1], 0.5))
    assert sorted(map(str, bell.told)) == sorted(map(str, agents))
    for agent in agents:
        (message,) = store.pending(store.session(agent.name).session_id)
        reminder = Headers.from_json(message.headers).reminder
        assert reminder is not None
        assert reminder.missed == 60


async def test_a_delayed_message_is_put_into_the_outbox_and_the_courier_is_told(store: Store) -> None:
    bell, courier = Bell(store), []
    bell.task = ReminderTask(store, IDS, bell.clock, bell._arrived, random.Random(1), sent=lambda: courier.append(1))
    chain = Caller("key_1", agents=("hello/alice",))
    delayed = DelayedMessage(IDS.message(NOW_MS), "hello/bob", {"text": "tea"}, NOW_MS + 500, chain, "00-1")
    writer = Writer.on(store, ALICE.name, "acme")
    writer.write(reminders=(delayed.to_reminder(),))
    assert await bell.task.look() == 0.5
    assert not store.outbox()
    bell.clock.advance(0.5)
    await bell.task.look()
    await bell.task.look()
    (sent,) = store.outbox()
    assert (sent.message_id, sent.target, sent.body) == (delayed.message_id, "hello/bob", b'{"text":"tea"}')
    assert (sent.sender, sent.namespace, sent.created_ms) == ("acme:hello/alice", "acme", NOW_MS + 500)
    assert Headers.from_json(sent.headers) == Headers(trace="00-1", caller=chain)
    assert (bell.told, courier) == ([], [1])
    assert store.next_reminder_ms() is None


@pytest.mark.usefixtures("caplog")
async def test_a_delayed_message_of_another_version_stays(store: Store) -> None:
    bell, name = Bell(store), DelayedMessage(IDS.message(NOW_MS), "hello/bob", {}, NOW_MS, None).to_reminder().name
    for body in (b"[]", b"{}", b'{"tell":{"message_id":"msg_1","to":"a/b"}}', b'{"tell":{"to":"a/b","message":{}}}'):
        Writer.on(store).write(reminders=(SetReminder(name, NOW_MS, body),))
        await bell.task.look()
        assert [each.name for each in store.due_reminders(NOW_MS, 10)] == [name]
    assert not store.outbox()


async def test_it_runs_until_it_is_cancelled_and_looks_when_told(store: Store) -> None:
    bell = Bell(store)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(bell.task.run())
        set_reminder(store)
        bell.task.notice()
        await until(lambda: bell.told == [ALICE])
        running.cancel()
