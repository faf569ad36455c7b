"""Steps when something happens between two attempts, or to the journal."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from chronicle.errors import Unavailable
from chronicle.ids import SessionId
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import MessageStatus, StoredStep
from podium.agent import AgentContext
from podium.errors import Evicted, Permanent
from podium.history.step_record import open_pause
from podium.messages.inbox import list_inbox, retry_message
from podium.testing import AgentHarness
from podium.turn.activation import Step
from tests.unit.podium.turn.steps.planned import Planned, files, ran, three


class LosesAnAnswer(MemoryJournalStore):
    """A journal that stores the first step and loses the answer."""

    lost = False

    def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        super().put_step(session_id, step, epoch)
        if not self.lost:
            self.lost = True
            raise Unavailable("the answer was lost")


@pytest.mark.usefixtures("caplog")
async def test_a_step_whose_answer_was_lost_is_looked_up() -> None:
    Planned.program = three
    async with AgentHarness(Planned, store=LosesAnAnswer()) as agent:
        assert (await agent.send("go")).ok
        assert Planned.runs == {"a": 1, "b": 1, "c": 1}


async def test_a_step_of_an_activation_that_lost_its_lease_is_refused() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await ctx.step("a", ran, "a")
        session = agent.store.session(agent.address.name)
        agent.store.acquire_lease(session.session_id, "other", agent.clock.now_ms(), 60_000, takeover=True)
        await ctx.step("b", ran, "b")

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        agent.admit("go")
        with pytest.raises(Evicted):
            await agent.activation.handle_next()
        (step,) = agent.store.steps_of_session(agent.store.session(agent.address.name).session_id)
        assert step.key == "a#1"
        await agent.kill()
        Planned.program = None
        agent.store.drop_steps(step.message_id)


class Initial(Planned):
    """Changes its state, and files if told to, at each waking."""

    max_attempts = 2
    files: ClassVar[bool] = False

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        ctx.state.done.append("woken")
        if self.files:
            (ctx.workspace / "woken.txt").write_text(str(len(ctx.state.done)))


@pytest.mark.parametrize("changes", [False, True])
async def test_steps_go_on_after_a_turn_between_two_attempts_unless_both_changed_files(changes: bool) -> None:
    stepped = asyncio.Event()

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        def work() -> None:
            ran("work")
            ctx.state.notes["work"] = 1
            (ctx.workspace / "work.txt").write_text("done")

        await ctx.step("work", work)
        if not stepped.is_set():
            stepped.set()
            await asyncio.Event().wait()

    Planned.program, Initial.files = program, changes
    async with AgentHarness(Initial) as agent:
        agent.admit("go")
        lost = asyncio.create_task(agent.activation.handle_next())
        await stepped.wait()
        lost.cancel()
        await asyncio.wait([lost])
        await agent.kill()
        await agent.receive()
        assert Planned.runs == {"work": 1}
        inbox = list_inbox(agent.store, agent.blobs, agent.store.session(agent.address.name))
        if changes:
            assert inbox[0].message.status is MessageStatus.PAUSED
            pause = open_pause(inbox[0].steps[-1].body)
            assert pause is not None
            assert "they and a later turn changed" in pause["reason"] or "was changed since" in pause["reason"]
        else:
            assert not inbox
            assert agent.state["done"] == ["woken", "woken"]
            assert agent.state["notes"] == {"work": 1}
            assert files(agent) == {"work.txt": "done"}


class Closing(Planned):
    """Changes what it is told to as it falls asleep."""

    max_attempts = 2
    changes: ClassVar[str] = ""

    async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
        match self.changes:
            case "files":
                (ctx.workspace / "closed.txt").write_text("closed")
            case "work" | "other":
                ctx.state.notes[self.changes] = 7


@pytest.mark.parametrize(("changes", "kept"), [("", True), ("other", True), ("work", False), ("files", False)])
async def test_a_shutdown_between_two_attempts_does_not_outdate_the_steps(
    changes: str, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        def work() -> None:
            ran("work")
            ctx.state.notes["work"] = 1
            (ctx.workspace / "work.txt").write_text("done")

        await ctx.step("work", work)
        ran("attempt")
        if Planned.runs["attempt"] == 1:
            raise ConnectionError("the service ends")

    Planned.program, Closing.changes = program, changes
    async with AgentHarness(Closing) as agent:
        agent.admit("go")
        assert await agent.activation.handle_next() is Step.RETRY
        await agent.sleep()
        Closing.changes = ""
        assert await agent.receive() == 1
        assert not list_inbox(agent.store, agent.blobs, agent.store.session(agent.address.name))
        assert Planned.runs == {"work": 1, "attempt": 2}
        assert files(agent) == {"work.txt": "done"}
        assert agent.state["notes"] == ({"work": 1, "other": 7} if changes == "other" else {"work": 1})
        failed = [payload for _, payload in agent.events("turn.failed") if payload["hook"] == "on_shutdown"]
        assert len(failed) == (not kept)
    told = caplog.text
    assert ("what on_shutdown changed is rolled back" in told) == (not kept)


async def test_a_shutdown_may_change_files_if_the_steps_did_not() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await ctx.step("work", ran, "work")
        ran("attempt")
        if Planned.runs["attempt"] == 1:
            raise ConnectionError("the service ends")

    Planned.program, Closing.changes = program, "files"
    async with AgentHarness(Closing) as agent:
        agent.admit("go")
        assert await agent.activation.handle_next() is Step.RETRY
        await agent.sleep()
        assert await agent.receive() == 1
        assert Planned.runs == {"work": 1, "attempt": 2}
        assert files(agent) == {"closed.txt": "closed"}


@pytest.mark.parametrize("place", ["a", "b"])
async def test_steps_do_not_undo_what_others_changed_while_their_message_was_parked(place: str) -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        def count() -> None:
            ran(message["place"])
            ctx.state.notes[message["place"]] = ctx.state.notes.get(message["place"], 0) + 1

        await ctx.step("count", count)
        if message["parks"] and not Planned.runs["retry"]:
            raise Permanent("not now")

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        parked = await agent.send({"place": "a", "parks": True})
        for _ in range(3):
            assert (await agent.send({"place": place, "parks": False})).ok
        ran("retry")
        session = agent.store.session(agent.address.name)
        retry_message(agent.store, session, parked.receipt.message_id, agent.clock.now_ms())
        await agent.receive()
        waiting = [entry.message.status for entry in list_inbox(agent.store, agent.blobs, session)]
        if place == "a":
            assert waiting == [MessageStatus.PAUSED]
            assert agent.state["notes"] == {"a": 3}
            assert (await agent.resume(parked.receipt.message_id, "begin_anew")).ok
            assert agent.state["notes"] == {"a": 4}
        else:
            assert not waiting
            assert agent.state["notes"] == {"a": 1, "b": 3}
            assert Planned.runs["a"] == 1
