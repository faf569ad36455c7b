"""Steps that do not fit the program any more: the turn pauses, and a person decides what becomes of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from chronicle.canonical import Json
from chronicle.journal.records import MessageStatus
from podium.agent import AgentContext, Permanent
from podium.errors import DecisionInvalid, RunNotPaused
from podium.history.step_record import GO_ON, TRY_AGAIN, PauseRecord, standing
from podium.messages.inbox import list_inbox, retry_message
from podium.testing import AgentHarness
from podium.testing.harness import Exchange
from podium.turn.activation import Step
from tests.unit.podium.turn.steps.planned import Planned, ran


async def step(ctx: AgentContext[Any], name: str, argument: str = "") -> None:
    """A step that leaves its traces in state and files."""

    def work(_argument: str) -> None:
        ran(name)
        ctx.state.done.append(name)
        with (ctx.workspace / "log.txt").open("a") as log:
            log.write(f"{name}\n")

    await ctx.step(name, work, argument)


async def ends_a_and_b(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
    await step(ctx, "a")
    await step(ctx, "b")
    if Planned.then is not None:
        Planned.program = Planned.then
        raise OSError("lost")


async def other_name(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
    await step(ctx, "a")
    await step(ctx, "new")


async def other_arguments(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
    await step(ctx, "a", "A")


async def other_order(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
    await step(ctx, "b")
    await step(ctx, "a")


async def fewer(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
    await step(ctx, "a")


async def caught(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
    try:
        await step(ctx, "new")
    except Exception:  # noqa: BLE001 - as careless programs do
        await step(ctx, "a")


async def raises(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
    try:
        await step(ctx, "new")
    except Permanent as error:
        raise ValueError("something else") from error


def log(agent: AgentHarness) -> str:
    return (agent.workspace / "log.txt").read_text()


def status(agent: AgentHarness, asked: Exchange) -> MessageStatus:
    return agent.store.message(asked.receipt.message_id).status


def choices(asked: Exchange) -> list[str]:
    pending = asked.frames[-2]
    assert (pending["type"], pending["call_id"]) == ("tool_decision_pending", "program 3")
    found: list[str] = pending["schema"]["enum"]
    return found


@pytest.mark.parametrize(
    ("then", "what", "keeps"),
    [
        (other_name, "'new#1' where the record has step 'b#1'", "a#1 and drops b#1"),
        (other_arguments, "'a#1' with other arguments", ""),
        (other_order, "'b#1' where the record has step 'a#1'", ""),
        (fewer, "returned without step 'b#1'", "a#1 and drops b#1"),
        (caught, "'new#1' where the record has step 'a#1'", ""),
        (raises, "'new#1' where the record has step 'a#1'", ""),
    ],
)
async def test_another_program_pauses_the_turn(then: Any, what: str, keeps: str) -> None:
    Planned.program, Planned.then = ends_a_and_b, then
    async with AgentHarness(Planned) as agent:
        asked = await agent.send("go")
        assert asked.paused
        assert status(agent, asked) is MessageStatus.PAUSED
        reason = asked.frames[-1]["reason"]
        assert what in reason
        assert (f"go_on keeps {keeps}" in reason) == bool(keeps)
        assert choices(asked) == ["try_again", *(["go_on"] if keeps else []), "begin_anew", "give_up"]
        assert Planned.runs == {"a": 1, "b": 1}
        assert agent.state["done"] == []
        assert agent.activation.turn == 0
        with pytest.raises(DecisionInvalid):
            await agent.resume(asked.receipt.message_id, "go_on" if not keeps else "yes")
        given_up = await agent.resume(asked.receipt.message_id, "give_up", by="kim")
        assert given_up.error == {
            "type": "Cancelled",
            "message": "it was given up, as its steps did not fit any more",
        }
        assert status(agent, asked) is MessageStatus.CANCELLED
        (settled,) = await agent.activation.settled(asked.receipt.message_id)
        assert settled["error"] == given_up.error
        ((_, cancelled),) = agent.events("turn.cancelled")
        assert cancelled["given_up"] is True
        assert Planned.runs == {"a": 1, "b": 1}
        Planned.program, Planned.then = ends_a_and_b, None
        assert (await agent.send("the next one")).ok


async def test_to_go_on_keeps_the_steps_that_fit_and_runs_the_others() -> None:
    Planned.program, Planned.then = ends_a_and_b, other_name
    async with AgentHarness(Planned) as agent:
        asked = await agent.send("go")
        await agent.sleep()
        assert (await agent.resume(asked.receipt.message_id, "go_on", by="kim")).ok
        assert Planned.runs == {"a": 1, "b": 1, "new": 1}
        assert agent.state["done"] == ["a", "new"]
        assert log(agent) == "a\nnew\n"
        ((_, payload),) = agent.events("turn.committed")
        summary: Any = payload["steps"]
        assert [(each["key"], each["status"]) for each in summary["steps"]] == [
            ("a#1", "done"),
            ("b#1", "dropped"),
            ("program 3", "done"),
            ("new#1", "done"),
        ]
        assert summary["steps"][2]["pause"] == {"kind": "program", "outcome": "answered", "by": "kim"}


@pytest.mark.parametrize("dies", [False, True])
async def test_an_attempt_that_goes_on_is_itself_recorded(dies: bool) -> None:
    async def then(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await step(ctx, "a")
        await step(ctx, "new")
        if Planned.runs["behind"] < 1:
            ran("behind")
            raise OSError("lost once more")
        await step(ctx, "last")

    Planned.program, Planned.then = ends_a_and_b, then
    async with AgentHarness(Planned) as agent:
        asked = await agent.send("go")
        if dies:
            await agent.kill()
        assert (await agent.resume(asked.receipt.message_id, "go_on")).ok
        assert Planned.runs == {"a": 1, "b": 1, "new": 1, "behind": 1, "last": 1}
        assert agent.state["done"] == ["a", "new", "last"]
        assert log(agent) == "a\nnew\nlast\n"


async def test_to_begin_anew_runs_all_steps_again() -> None:
    Planned.program, Planned.then = ends_a_and_b, other_order
    async with AgentHarness(Planned) as agent:
        asked = await agent.send("go")
        assert (await agent.resume(asked.receipt.message_id, "begin_anew")).ok
        assert Planned.runs == {"a": 2, "b": 2}
        assert agent.state["done"] == ["b", "a"]
        assert log(agent) == "b\na\n"


async def test_code_that_was_restored_loses_no_step() -> None:
    Planned.program, Planned.then = ends_a_and_b, fewer
    async with AgentHarness(Planned) as agent:
        asked = await agent.send("go")
        again = await agent.resume(asked.receipt.message_id, "try_again")
        assert again.paused, "the program is the wrong one still"
        Planned.program, Planned.then = ends_a_and_b, None
        assert (await agent.resume(asked.receipt.message_id, "try_again")).ok
        assert Planned.runs == {"a": 1, "b": 1}
        assert agent.state["done"] == ["a", "b"]


async def test_what_is_dropped_is_what_was_shown_whatever_the_program_is_by_then() -> None:
    Planned.program, Planned.then = ends_a_and_b, fewer
    async with AgentHarness(Planned) as agent:
        asked = await agent.send("go")
        Planned.program = other_order
        again = await agent.resume(asked.receipt.message_id, "go_on")
        assert again.paused
        assert "'b#1' where the record has step 'a#1'" in again.frames[-1]["reason"]
        assert Planned.runs == {"a": 1, "b": 1}, "the step that was to be kept is not run again"
        with pytest.raises(RunNotPaused):
            await agent.resume(asked.receipt.message_id, "begin_anew", call_id="program 3")
        assert (await agent.resume(asked.receipt.message_id, "begin_anew", call_id="program 4")).ok
        assert agent.state["done"] == ["b", "a"]


@pytest.mark.parametrize("restored", [False, True])
async def test_a_kill_between_the_question_and_its_commit_asks_again(
    restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    Planned.program, Planned.then = ends_a_and_b, fewer
    async with AgentHarness(Planned) as agent:
        receipt = agent.admit("go")
        assert await agent.activation.handle_next() is Step.RETRY
        asking = asyncio.Event()

        async def dies(*_: Any) -> None:
            asking.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(agent.activation._runner, "pause", dies)  # the process is killed there
        lost = asyncio.create_task(agent.activation.handle_next())
        await asking.wait()
        lost.cancel()
        await asyncio.wait([lost])
        await agent.kill()
        if restored:
            Planned.program, Planned.then = ends_a_and_b, None
            assert await agent.activation.handle_next() is Step.HANDLED
            assert agent.state["done"] == ["a", "b"]
            return
        assert await agent.activation.handle_next() is Step.HANDLED
        assert agent.store.message(receipt.message_id).status is MessageStatus.PAUSED
        done = await agent.resume(receipt.message_id, "go_on")
        assert done.ok
        assert Planned.runs == {"a": 1, "b": 1}


async def test_a_pause_that_was_never_shown_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt died at a decision before its commit, and the program changed before that decision."""

    async def asks(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await step(ctx, "a")
        ctx.state.notes["decided"] = await ctx.decide({"type": "integer"}, reason="how many?")

    async def changed(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await step(ctx, "new")

    Planned.program = asks
    async with AgentHarness(Planned) as agent:
        receipt = agent.admit("go")
        asking = asyncio.Event()

        async def dies(*_: Any) -> None:
            asking.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(agent.activation._runner, "pause", dies)
        lost = asyncio.create_task(agent.activation.handle_next())
        await asking.wait()
        lost.cancel()
        await asyncio.wait([lost])
        await agent.kill()
        Planned.program = changed
        await agent.receive()
        Planned.program = asks
        await agent.resume(receipt.message_id, "try_again")
        assert agent.store.message(receipt.message_id).status is MessageStatus.PAUSED
        assert (await agent.resume(receipt.message_id, 3)).ok
        assert agent.state["notes"] == {"decided": 3}
        assert Planned.runs == {"a": 1}


async def test_a_failure_with_other_arguments_drops_the_step_that_has_it() -> None:
    arguments = iter("xyyyy")

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        def fails(_: str) -> None:
            ran("fails")
            raise ValueError

        await step(ctx, "a")
        try:
            await ctx.step("fails", fails, next(arguments))
        except ValueError:
            await step(ctx, "b")
        if not Planned.runs["behind"]:
            ran("behind")
            raise OSError("lost")

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        asked = await agent.send("go")
        assert "go_on keeps a#1 and drops b#1" in asked.frames[-1]["reason"]
        assert (await agent.resume(asked.receipt.message_id, "go_on")).ok
        assert Planned.runs == {"a": 1, "fails": 2, "b": 2, "behind": 1}
        assert agent.state["done"] == ["a", "b"]


@pytest.mark.parametrize("drop", [lambda agent, run: agent.activation.cancel(run), None])
async def test_a_turn_that_waits_for_a_person_can_be_cancelled(drop: Callable[..., Any] | None) -> None:
    Planned.program, Planned.then = ends_a_and_b, fewer
    async with AgentHarness(Planned) as agent:
        asked = await agent.send("go")
        session = agent.store.session(agent.address.name)
        with pytest.raises(RunNotPaused):
            retry_message(agent.store, session, asked.receipt.message_id, 0, drop_steps=True)
        if drop is not None:
            await drop(agent, asked.receipt.message_id)
            assert status(agent, asked) is MessageStatus.CANCELLED
            assert not agent.store.steps_of_session(session.session_id)
        assert Planned.runs == Counter(a=1, b=1)
        assert len(list_inbox(agent.store, agent.blobs, session)) == (drop is None)


def test_what_an_answer_drops_is_what_the_question_named_also_behind_a_pause_that_was_not_reached() -> None:
    waiting: PauseRecord = {"kind": "decide", "reason": "", "schema": True, "expires": None}
    answered: PauseRecord = {**waiting, "outcome": "answered", "by": None}
    asked: PauseRecord = {**answered, "kind": "program", "fits": 1}
    steps: list[tuple[PauseRecord | None, Json]] = [
        (None, 1),  # pay
        (waiting, None),  # the process died before the message paused
        (asked, TRY_AGAIN),
        (answered, True),
        (None, 2),  # charge
        (None, 3),  # mail
    ]
    assert standing(steps) == [0, 3, 4, 5]
    assert standing([*steps, ({**asked, "fits": 3}, GO_ON)]) == [0, 3, 4]
