"""Promises that another agent resolves or rejects: with its turn, once, and only if the promise names it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import InvalidInput
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import MessageStatus
from podium.address import Address
from podium.agent import AgentContext, BaseAgent, DeltaState
from podium.errors import ContextMisuse, InvalidAddress, PromiseRejected
from podium.messages.courier import Courier, deliver_outbox
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chronicle.journal.records import InboxMessage

IDS = IdSource()


class Shop(BaseAgent):
    """Waits for a payment, which the bank makes."""

    max_attempts = 1

    class State(DeltaState):
        paid: list[int] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        if message["text"] == "nothing":
            return
        try:
            by = message.get("by", "bank/main")
            for _ in range(message.get("times", 1)):
                ctx.state.paid.append(await ctx.promise("payment", schema=int, timeout=message.get("timeout"), by=by))
        except PromiseRejected as error:
            ctx.reply(str(error))


class Bank(BaseAgent):
    """Pays, or does not."""

    max_attempts = 1

    class State(DeltaState):
        pass

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        if "reason" in message:
            await ctx.reject("shop/a", message["run"], "payment", message["reason"])
        else:
            await ctx.resolve("shop/a", message["run"], message.get("promise", "payment"), message["value"])
        if message.get("fail"):
            raise ValueError("as told")


class Home:
    """A shop and two banks over one journal."""

    def __init__(self, store: MemoryJournalStore, shop: AgentHarness, bank: AgentHarness, other: AgentHarness) -> None:
        self.store, self.shop, self.bank, self.other = store, shop, bank, other

    async def order(self, **more: Any) -> str:
        exchange = await self.shop.send({"text": "tea", **more})
        return exchange.receipt.message_id

    def deliver(self, **options: Any) -> list[Address]:
        return deliver_outbox(self.store, IDS, self.shop.clock.now_ms(), **options)

    def advance(self) -> None:
        for agent in (self.shop, self.bank, self.other):
            agent.clock.advance(1)

    def message(self, run: str) -> InboxMessage:
        return self.store.message(run)  # type: ignore[arg-type]  # it is the id of one


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    async with _home("default") as home:
        yield home


@asynccontextmanager
async def _home(tenant: str) -> AsyncIterator[Home]:
    store = MemoryJournalStore()
    async with (
        AgentHarness(Shop, "a", store=store, tenant=tenant) as shop,
        AgentHarness(Bank, "main", store=store, tenant=tenant) as bank,
        AgentHarness(Bank, "other", store=store, tenant=tenant) as other,
    ):
        yield Home(store, shop, bank, other)


@pytest.mark.parametrize("tenant", ["default", "acme"])
async def test_the_agent_that_the_promise_names_resolves_it_with_its_turn(tenant: str) -> None:
    async with _home(tenant) as home:
        run = await home.order()
        await home.bank.send({"run": run, "value": 5})
        assert home.message(run).status is MessageStatus.PAUSED
        assert home.deliver() == [Address("shop", "a", tenant)]
        assert not home.store.outbox()
        await home.shop.receive()
        assert home.shop.state == {"paid": [5]}
        _, committed = home.shop.events("turn.committed")[-1]
        assert str(Address("bank", "main", tenant)) in str(committed["steps"])
        (_, paused) = home.shop.events("turn.paused")[-1]
        assert paused["agents"] == ["bank/main"]
        assert len(home.shop.events("user_message")) == 1


async def test_it_is_rejected(home: Home) -> None:
    run = await home.order()
    await home.bank.send({"run": run, "reason": "no money"})
    await home.shop.receive()
    (_, answered) = home.shop.events("message.answered")[-1]
    assert answered["data"] == "no money"
    assert home.shop.state == {"paid": []}


async def test_no_other_agent_may(home: Home) -> None:
    """Nor the one that is named by the promise of another run."""
    run = await home.order(by="bank/other")
    await home.bank.send({"run": run, "value": 5})
    assert home.deliver() == []
    assert home.message(run).status is MessageStatus.PAUSED
    await home.other.send({"run": run, "value": 6})
    await home.shop.receive()
    assert home.shop.state == {"paid": [6]}
    home.deliver()
    assert not home.store.outbox()  # the answer of the wrong one went with its run


async def test_none_may_by_default(home: Home) -> None:
    run = await home.order(by=[])
    await home.bank.send({"run": run, "value": 5})
    home.deliver()
    assert home.message(run).status is MessageStatus.PAUSED
    await home.shop.resume(run, 7, promise="payment")
    assert home.shop.state == {"paid": [7]}


async def test_an_agent_of_another_tenant_with_the_same_name_may_not() -> None:
    async with _home("default") as home, AgentHarness(Bank, "main", store=home.store, tenant="acme") as stranger:
        run = await home.order()
        await stranger.send({"run": run, "value": 5})
        home.deliver()
        assert home.message(run).status is MessageStatus.PAUSED
        assert not home.store.outbox()  # there is no such run in its tenant


async def test_a_turn_that_fails_resolves_nothing(home: Home) -> None:
    run = await home.order()
    await home.bank.send({"run": run, "value": 5, "fail": True})
    assert not home.store.outbox()


async def test_one_that_comes_before_the_promise_waits_for_it(home: Home) -> None:
    await home.bank.send({"run": "msg_none", "value": 1})
    assert home.deliver() == [Address("shop", "a")]  # dropped: there is no such run
    assert not home.store.outbox()
    first = await home.order()
    receipt = home.shop.admit({"text": "tea"})
    await home.bank.send({"run": receipt.message_id, "value": 6})
    home.deliver()
    assert len(home.store.outbox()) == 1
    await home.bank.send({"run": first, "value": 5})
    await home.shop.receive()
    await home.shop.receive()
    assert home.shop.state == {"paid": [5, 6]}
    assert not home.store.outbox()


async def test_one_that_does_not_fit_stays_and_is_shown_until_the_run_ends(home: Home) -> None:
    run = await home.order()
    told: list[Address] = []

    async def arrived(address: Address) -> None:
        told.append(address)

    courier = Courier(home.store, IDS, home.shop.clock, arrived)
    for value, promise in (("five", "payment"), (5, "other")):
        await home.bank.send({"run": run, "value": value, "promise": promise})
    await courier.look()
    assert len(home.store.outbox()) == 2
    assert "an answer of bank/main" in courier.held[Address("shop", "a")]
    assert told == []
    await home.shop.resume(run, 7)
    await courier.look()
    assert not home.store.outbox()
    assert courier.held == {}


async def test_one_that_somebody_forestalled_does_not_answer_the_next_promise_of_that_name(home: Home) -> None:
    run = await home.order(times=2)
    await home.bank.send({"run": run, "value": 1})
    home.advance()
    await home.shop.resume(run, 2, promise="payment")
    home.deliver()
    assert home.message(run).status is MessageStatus.PAUSED
    assert not home.store.outbox()  # it is dropped
    await home.bank.send({"run": run, "value": 3})
    home.deliver()
    await home.shop.receive()
    assert home.shop.state == {"paid": [2, 3]}


async def test_one_that_is_sent_twice_answers_once(home: Home) -> None:
    run = await home.order(times=2)
    for _ in range(2):
        await home.bank.send({"run": run, "value": 1})
    home.advance()
    home.deliver()
    await home.shop.receive()
    home.deliver()
    assert home.message(run).status is MessageStatus.PAUSED
    assert not home.store.outbox()


async def test_it_goes_past_a_full_inbox(home: Home) -> None:
    class Boss(BaseAgent):
        class State(DeltaState):
            pass

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await ctx.tell("shop/a", {"text": "nothing"})
            await ctx.tell("shop/a", {"text": "nothing"})

    run = await home.order()
    async with AgentHarness(Boss, "b", store=home.store) as boss:
        await boss.send("go")
    await home.bank.send({"run": run, "value": 5})
    assert home.deliver(inbox_limit=1) == [Address("shop", "a")]
    assert home.message(run).status is MessageStatus.PENDING
    assert [message.sender for message in home.store.outbox()] == ["boss/b", "boss/b"]


async def test_one_that_is_late_changes_nothing(home: Home) -> None:
    run = await home.order(timeout=10)
    await home.bank.send({"run": run, "value": 5})
    home.shop.clock.advance(10)
    home.deliver()
    assert home.message(run).status is MessageStatus.PAUSED
    await home.shop.advance(1)
    assert home.message(run).status is MessageStatus.PARKED
    home.deliver()
    assert not home.store.outbox()


async def test_a_courier_that_dies_between_its_writes_is_made_good() -> None:
    class Forgetful(MemoryJournalStore):
        lost = False

        def outbox_delivered(self, message_id: Any) -> None:
            if not self.lost:
                self.lost = True
                raise ConnectionResetError
            super().outbox_delivered(message_id)

    store = Forgetful()
    async with AgentHarness(Shop, "a", store=store) as shop, AgentHarness(Bank, "main", store=store) as bank:
        run = (await shop.send({"text": "tea"})).receipt.message_id
        await bank.send({"run": run, "value": 5})
        with pytest.raises(ConnectionResetError):
            deliver_outbox(store, IDS, shop.clock.now_ms())
        await shop.receive()
        await shop.receive()
        assert shop.state == {"paid": [5]}
        assert not store.outbox()


async def test_what_cannot_be_sent_is_refused(home: Home) -> None:
    refused: list[str] = []

    class Clumsy(BaseAgent):
        class State(DeltaState):
            pass

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            bad: list[tuple[Any, ...]] = [
                ("nobody", "msg_1", "payment", 5),
                ("acme:shop/a", "msg_1", "payment", 5),
                (7, "msg_1", "payment", 5),
                ("shop/a", None, "payment", 5),
                ("shop/a", "msg_1", "", 5),
                ("shop/a", "msg_1", "1st", 5),
                ("shop/a", "msg_1", "payment", float("nan")),
                ("shop/a", "msg_1", "payment", {1, 2}),
            ]
            for arguments in bad:
                with pytest.raises((InvalidInput, InvalidAddress)) as error:
                    await ctx.resolve(*arguments)
                refused.append(str(error.value))
            for reason in (None, 5, "x" * 2001):
                with pytest.raises(InvalidInput):
                    await ctx.reject("shop/a", "msg_1", "payment", reason)  # type: ignore[arg-type]
            with pytest.raises(ContextMisuse):
                await ctx.step("s", lambda: ctx.resolve("shop/a", "msg_1", "payment", 5))
            for by in ("nobody", "acme:bank/main", 5, [5]):
                with pytest.raises((InvalidInput, InvalidAddress, TypeError)):
                    await ctx.promise("payment", by=by)  # type: ignore[arg-type]

    async with AgentHarness(Clumsy, "c", store=home.store) as clumsy:
        assert (await clumsy.send("go")).ok
    assert len(refused) == 8
    assert not home.store.outbox()
