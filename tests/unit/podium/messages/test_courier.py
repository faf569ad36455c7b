"""The courier's task: receivers are woken while further messages are delivered, and no failure ends it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from structlog.testing import capture_logs

from chronicle.canonical import encode
from chronicle.clock import ManualClock
from chronicle.errors import InboxFull, Unavailable
from chronicle.ids import IdSource, MessageId
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import OutboxMessage, Outcome, Settlement, StoredStep
from chronicle.testing.journal_contract import Writer
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.answer_message import ANSWER_PREFIX, AnswerMessage
from podium.messages import courier as module
from podium.messages.courier import Courier, deliver_outbox
from podium.messages.inbox import drop_message
from podium.testing import AgentHarness
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DEADLINE_S = 60
RECEIVERS = [f"echo/{number}" for number in range(6)]


class Teller(BaseAgent):
    """Tells each of the agents that its message names."""

    class State(DeltaState):
        pass

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        for target in message["to"]:
            await ctx.tell(target, {"text": "hello"})


@pytest.fixture
async def store() -> AsyncIterator[MemoryJournalStore]:
    """A store whose outbox has a message for each receiver."""
    store = MemoryJournalStore()
    async with AgentHarness(Teller, "a", store=store) as teller:
        await teller.send({"to": RECEIVERS})
        yield store


async def test_receivers_are_told_before_the_whole_outbox_is_delivered(
    store: MemoryJournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_AT_ONCE", 2)
    left: list[int] = []

    async def arrived(_: Address) -> None:
        left.append(len(store.outbox()))

    await _run_until(Courier(store, IdSource(), ManualClock(), arrived), lambda: len(left) == len(RECEIVERS))
    assert left == [4, 4, 2, 2, 0, 0]


async def test_a_failing_store_and_a_failing_wake_end_nothing(
    store: MemoryJournalStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_MAX_AT_ONCE", 1)
    told: list[Address] = []
    read, failures = store.outbox_envelopes, [Unavailable("the disk is busy")]

    def outbox_envelopes() -> Any:
        if failures:
            raise failures.pop()
        return read()

    async def arrived(address: Address) -> None:
        told.append(address)
        if len(told) == 1:
            raise RuntimeError("a bug")

    monkeypatch.setattr(store, "outbox_envelopes", outbox_envelopes)
    courier = Courier(store, IdSource(), ManualClock(), arrived)

    def all_told() -> bool:
        courier.notice()
        return len(told) == len(RECEIVERS)

    await _run_until(courier, all_told)
    assert told == [Address("echo", str(number)) for number in range(len(RECEIVERS))]


async def test_what_is_held_waits_in_order_and_delays_no_other_receiver(
    store: MemoryJournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_AT_ONCE", 2)
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    async with AgentHarness(Teller, "b", store=store) as teller:
        await teller.send({"to": ["echo/0", "echo/1", "echo/7"]})
    sent = [envelope.message_id for envelope in store.outbox_envelopes() if envelope.target == "echo/0"]
    holds = {Address("echo", "0"): "too many agents"}
    told: list[Address] = []

    async def arrived(address: Address) -> None:
        told.append(address)

    courier = Courier(store, IdSource(), ManualClock(), arrived, checks=lambda: holds.get)
    free = [Address("echo", str(number)) for number in (1, 2, 3, 4, 5, 7)]
    running = asyncio.create_task(courier.run())
    try:
        await until(lambda: set(told) == set(free) and courier.held == holds)
        assert [envelope.message_id for envelope in store.outbox_envelopes()] == sent
        holds.clear()
        await until(lambda: not store.outbox_envelopes() and not courier.held)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert _inbox(store, "echo/0") == sent


async def test_a_full_inbox_holds_all_later_messages_to_it(store: MemoryJournalStore) -> None:
    async with AgentHarness(Teller, "b", store=store) as teller:
        await teller.send({"to": ["echo/0"] * 4 + ["echo/9"]})
    sent = [envelope.message_id for envelope in store.outbox_envelopes() if envelope.target == "echo/0"]
    told: list[Address] = []

    async def arrived(address: Address) -> None:
        told.append(address)

    courier = Courier(store, IdSource(), ManualClock(), arrived, inbox_limit=2)
    await _run_until(courier, lambda: bool(courier.held))
    assert courier.held == {Address("echo", "0"): f"its inbox is full: {InboxFull(2)}"}
    assert _inbox(store, "echo/0") == sent[:2]
    assert [envelope.message_id for envelope in store.outbox_envelopes()] == sent[2:]
    assert Address("echo", "9") in told
    session = store.session("echo/0")
    drop_message(store, session, store.pending(session.session_id)[0].message_id, IdSource(), 0)
    await _run_until(courier, lambda: len(store.outbox_envelopes()) == len(sent) - 3)
    assert _inbox(store, "echo/0") == sent[1:3]


async def test_a_receiver_is_told_although_its_message_could_not_be_removed_from_the_outbox(
    store: MemoryJournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", DEADLINE_S)
    told: list[Address] = []
    tries: list[str] = []

    def outbox_delivered(message_id: str) -> None:
        tries.append(message_id)
        raise Unavailable("the disk is full")

    async def arrived(address: Address) -> None:
        told.append(address)

    monkeypatch.setattr(store, "outbox_delivered", outbox_delivered)
    courier = Courier(store, IdSource(), ManualClock(), arrived)
    with capture_logs() as logs:
        await _run_until(courier, lambda: bool(told))
    assert told == [Address("echo", "0")]
    assert len(tries) == 1, "a store that fails is not asked again at once"
    assert [entry["event"] for entry in logs] == ["outbox_not_delivered"]


async def test_a_message_that_no_inbox_can_take_holds_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Neither of other receivers, nor of other senders to the same one."""
    store, ids = MemoryJournalStore(), IdSource()
    forger = Writer.on(store, "echo/forger")
    taken, text = forger.admit(), cast("bytes", "a str, not bytes")
    forged = (
        OutboxMessage(ids.message(0), "echo/0", text, 0, "echo/forger"),
        OutboxMessage(taken, "echo/0", b"{}", 0, "echo/forger"),
    )
    forger.write(outbox=forged)
    async with AgentHarness(Teller, "honest", store=store) as teller:
        await teller.send({"to": ["echo/0", "echo/1"]})
    told: list[Address] = []

    async def arrived(address: Address) -> None:
        told.append(address)

    courier = Courier(store, ids, ManualClock(), arrived)
    with capture_logs() as logs:
        await courier.look()
    assert told == [Address("echo", "0"), Address("echo", "1")]
    assert {entry["event"] for entry in logs} >= {"delivery_failed", "not_delivered"}
    assert [message.sender for message in store.outbox()] == ["echo/forger", "echo/forger"]
    assert Address("echo", "0") in courier.held


@pytest.mark.parametrize(
    "pause",
    [
        {},
        5,
        {"kind": "promise", "agents": 5},
        {"kind": "promise", "agents": ["echo/forger"], "reason": "", "schema": True, "expires": "soon"},
    ],
)
async def test_an_answer_to_a_step_of_another_form_stays_alone(pause: Any) -> None:
    store, ids = MemoryJournalStore(), IdSource()
    forger = Writer.on(store, "echo/forger")
    run = forger.admit()
    body = encode({"format": 1, "args_hash": "", "base_turn": 0, "started_ms": 0, "pause": pause})
    store.put_step(forger.session.session_id, StoredStep(run, 1, "promise p#1", body), None)
    answer = AnswerMessage(run, "p", 1).to_body()
    forger.write(
        settled=(Settlement(run, Outcome.PAUSED),),
        outbox=(
            OutboxMessage(MessageId(ids.other(ANSWER_PREFIX, 0)), "echo/forger", answer, 0, "echo/forger"),
            OutboxMessage(ids.message(0), "echo/forger", b"{}", 0, "echo/forger"),
        ),
    )
    with capture_logs() as logs:
        assert deliver_outbox(store, ids, 0) == [Address("echo", "forger")]
    assert [entry["event"] for entry in logs] == ["not_delivered"]
    assert len(store.outbox()) == 1


def _inbox(store: MemoryJournalStore, name: str) -> list[str | None]:
    session = store.session(name)
    return [message.idempotency_key for message in store.pending(session.session_id)]


async def _run_until(courier: Courier, condition: Any) -> None:
    running = asyncio.create_task(courier.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
