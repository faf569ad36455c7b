"""Read-only handlers: what they see beside a turn, that they change nothing, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from chronicle.ids import IdSource
from podium import ReadFailed, ReadOnly
from podium.address import Address
from podium.agent import AgentContext, BaseAgent, DeltaState, handler
from podium.errors import InvalidMessage, UnknownHandler
from podium.history.branching import fork_agent
from podium.state import OutsideTurn
from podium.testing import AgentHarness
from tests.waiting import until


class Nothing(BaseModel):
    pass


class Amount(BaseModel):
    amount: int


class Account(BaseAgent):
    """An account, whose owner may have to decide."""

    class State(DeltaState):
        balance: int = 0
        log: list[str] = []

    begun: ClassVar[asyncio.Event]
    may_end: ClassVar[asyncio.Event]
    kept: ClassVar[Any] = None
    left: ClassVar[asyncio.Queue[list[str]]]
    task: ClassVar[asyncio.Task[None]]
    max_attempts = 1
    turn_timeout_s = 30

    @handler
    async def pay(self, ctx: AgentContext[State], amount: Amount) -> None:
        ctx.state.balance += amount.amount
        ctx.state.log.append("paid")
        type(self).kept = ctx.state
        if amount.amount > 100:
            await ctx.decide(bool, reason="so much?")
        self.begun.set()
        await self.may_end.wait()

    @handler(read_only=True)
    async def balance(self, ctx: AgentContext[State], _: Nothing) -> int:
        assert (ctx.message_id, ctx.sender, ctx.caller.scopes) == (None, None, frozenset())
        return ctx.state.balance

    @handler(read_only=True)
    async def fails(self, ctx: AgentContext[State], amount: Amount) -> int:
        match amount.amount:
            case 1:
                ctx.state.balance = 7
            case 2:
                ctx.state.log.append("read")
            case 3:
                await asyncio.create_task(self._change(ctx))
            case 4:
                await ctx.send_message("hi")
            case 5:
                await ctx.tell("account/bob", {})
            case 6:
                await ctx.step("x", len, [])
            case 7:
                (ctx.workspace / "x").write_text("x")
            case 8:
                ctx.reply(3)
            case 9:
                self.kept.balance = 7
            case 10:
                raise SystemExit("no")
            case 11:
                await asyncio.sleep(3600)
            case _:
                await ctx.ask("account/bob", {})
        return 0

    @handler(read_only=True)
    async def leaves(self, ctx: AgentContext[State], _: Nothing) -> None:
        type(self).task = asyncio.create_task(self._later(ctx))

    async def _later(self, ctx: AgentContext[State]) -> None:
        await self.may_end.wait()
        found = []
        for state in (ctx.state, self.kept):
            try:
                state.balance = 7
            except OutsideTurn as error:
                found.append(type(error).__name__)
        try:
            await ctx.tell("account/bob", {})
        except ReadOnly as error:
            found.append(type(error).__name__)
        await self.left.put(sorted(found, reverse=True))

    async def _change(self, ctx: AgentContext[State]) -> None:
        ctx.state.balance = 7


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Account.begun, Account.may_end = asyncio.Event(), asyncio.Event()


PAY: dict[str, Any] = {"handler": "pay", "input": {"amount": 5}}
BALANCE: dict[str, Any] = {"handler": "balance", "input": {}}


async def test_a_read_beside_a_turn_sees_the_last_commit_and_nothing_of_the_turn() -> None:
    async with AgentHarness(Account) as account:
        assert await account.read(BALANCE) == 0
        paying = asyncio.create_task(account.send(PAY))
        await Account.begun.wait()
        assert await account.read(BALANCE) == 0
        Account.may_end.set()
        assert (await paying).ok
        assert await account.read(BALANCE) == 5
        assert account.activation.turn == 1
        assert [payload["message"] for _, payload in account.events("user_message")] == [PAY], "a read is not recorded"


async def test_a_read_beside_a_paused_turn() -> None:
    async with AgentHarness(Account) as account:
        Account.may_end.set()
        await account.send(PAY)
        assert (await account.send({"handler": "pay", "input": {"amount": 500}})).paused
        assert await account.read(BALANCE) == 5
        await account.kill()
        assert await account.read(BALANCE) == 5


@pytest.mark.parametrize("what", [*range(1, 10), 12])
async def test_what_a_read_may_not_do_is_refused_and_changes_nothing(what: int) -> None:
    async with AgentHarness(Account) as account:
        paying = asyncio.create_task(account.send(PAY))  # its state could be changed, too
        await Account.begun.wait()
        with pytest.raises(ReadOnly, match="a read-only handler reads the state|no hook of account"):
            await account.read({"handler": "fails", "input": {"amount": what}})
        Account.may_end.set()
        assert (await paying).ok
        assert account.state == {"balance": 5, "log": ["paid"]}


async def test_a_handler_that_raises_or_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AgentHarness(Account) as account:
        with pytest.raises(ReadFailed, match="SystemExit: no"):
            await account.read({"handler": "fails", "input": {"amount": 10}})
        monkeypatch.setattr(Account, "turn_timeout_s", 0.01)
        with pytest.raises(ReadFailed, match=r"fails took longer than its limit of 0\.01 s"):
            await account.read({"handler": "fails", "input": {"amount": 11}})


async def test_a_message_that_does_not_fit_a_read() -> None:
    async with AgentHarness(Account) as account:
        with pytest.raises(InvalidMessage, match="input should be a valid integer") as wrong:
            await account.read({"handler": "fails", "input": {"amount": "x"}})
        assert wrong.value.param == "message.input.amount"
        with pytest.raises(UnknownHandler):
            await account.read({"handler": "gone"})
        with pytest.raises(InvalidMessage, match="pay is not read-only: send it a message"):
            await account.read(PAY)
        error = (await account.send(BALANCE)).error
        assert error is not None
        assert error["type"] == "InvalidMessage"
        assert "balance is read-only" in str(error["message"])


async def test_a_task_that_a_read_leaves_behind_changes_nothing() -> None:
    async with AgentHarness(Account) as account:
        Account.left = asyncio.Queue()
        await account.read({"handler": "leaves", "input": {}})
        paying = asyncio.create_task(account.send(PAY))
        await Account.begun.wait()
        Account.may_end.set()
        assert await Account.left.get() == ["ReadOnly", "OutsideTurn", "OutsideTurn"]
        assert (await paying).ok
        assert account.state == {"balance": 5, "log": ["paid"]}


async def test_a_fork_is_read_as_it_is() -> None:
    async with AgentHarness(Account, "ann") as ann:
        Account.may_end.set()
        await ann.send(PAY)
        fork_agent(ann.store, ann.address, 1, Address("account", "bob"), IdSource(), ann.clock.now_ms())
        await ann.send(PAY)
        async with AgentHarness(Account, "bob", store=ann.store, blobs=ann.blobs, clock=ann.clock) as bob:
            assert (await bob.read(BALANCE), await ann.read(BALANCE)) == (5, 10)


class Bank(BaseAgent):
    """Reads an account, as a step."""

    class State(DeltaState):
        seen: list[int] = []

    fails: ClassVar[bool] = False

    @handler
    async def look(self, ctx: AgentContext[State], amount: Amount) -> None:
        account = ctx.ask(Account, "ann", timeout=60)
        if amount.amount == 2:
            await anext(account.balance.stream(Nothing()))
        elif amount.amount:
            await account.fails(amount)
        ctx.state.seen.append(await account.balance(Nothing()))
        if type(self).fails:
            type(self).fails = False
            Account.may_end.set()
            await until(lambda: Account.kept is None)
            raise ConnectionError("lost behind the read")


async def test_an_agent_reads_another_one_beside_its_turn_and_once() -> None:
    async with (
        AgentHarness(Account, "ann") as account,
        AgentHarness(Bank, "b", store=account.store, blobs=account.blobs, clock=account.clock) as bank,
    ):
        paying = asyncio.create_task(account.send(PAY))
        await Account.begun.wait()
        Bank.fails = True
        looking = asyncio.create_task(bank.send({"handler": "look", "input": {"amount": 0}}))
        assert (await paying).ok, "the turn ends after it was read"
        Account.kept = None
        assert (await looking).ok
        assert bank.state == {"seen": [0]}, "a further attempt does not read again"
        for amount, kind, says in ((1, "AskFailed", "ReadOnly"), (2, "InvalidMessage", "balance is read-only")):
            error = (await bank.send({"handler": "look", "input": {"amount": amount}})).error
            assert error is not None
            assert error["type"] == kind
            assert says in str(error["message"])
        assert account.store.pending(account.store.session("account/ann").session_id) == [], "nothing was sent"


async def test_an_agent_that_does_not_exist_is_not_read() -> None:
    async with AgentHarness(Bank, "b") as bank:
        error = (await bank.send({"handler": "look", "input": {"amount": 0}})).error
        assert error is not None
        assert (error["type"], error["message"]) == ("AskFailed", "there is no agent account/ann to read")
