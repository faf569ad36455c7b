"""Steps through the real activation: each ended step runs once, and the turn ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import model_validator

from chronicle.canonical import encode
from chronicle.errors import InvalidInput
from podium.agent import AgentContext, Permanent, Retry
from podium.errors import PodiumError
from podium.history.reachability import reachable_blobs
from podium.history.step_record import roots_of
from podium.testing import AgentHarness, HarnessOptions
from podium.turn.activation import Step
from podium.turn.busy import BusyPolicy
from tests.unit.podium.turn.steps.planned import Planned, files, ran, three


@pytest.mark.parametrize("place", ["", "a", "b", "c"])
async def test_an_attempt_goes_on_after_the_steps_that_ended(place: str) -> None:
    Planned.program, Planned.fail_after = three, place
    async with AgentHarness(Planned) as agent:
        assert (await agent.send("go")).ok
        assert Planned.runs == {"a": 1, "b": 1, "c": 1}
        assert agent.state == {
            "done": ["a", "b", "c"],
            "notes": {},
            "items": [{"message": 1, "a": 1, "b": 2, "c": 3, "after": 3}],
        }
        assert files(agent) == {"a.txt": "a", "b.txt": "bb", "c.txt": "ccc", "log.txt": "begun\na\nb\nc\n"}
        ((_, payload),) = agent.events("turn.committed")
        assert payload["steps"]["count"] == 3  # type: ignore[index, call-overload]
        assert not agent.store.steps_of_session(agent.store.session(agent.address.name).session_id)


@pytest.mark.parametrize("place", ["a", "b", "c"])
async def test_another_activation_goes_on_after_the_steps_that_ended(place: str, tmp_path: Path) -> None:
    killed = asyncio.Event()

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        try:
            await three(self, ctx, message)
        except ConnectionError:
            killed.set()
            await asyncio.Event().wait()

    Planned.program, Planned.fail_after = program, place
    async with AgentHarness(Planned, options=HarnessOptions(directory=tmp_path)) as agent:
        agent.admit("go")
        lost = asyncio.create_task(agent.activation.handle_next())
        await killed.wait()
        await agent.kill()
        lost.cancel()
        assert await agent.receive() == 1
        assert Planned.runs == {"a": 1, "b": 1, "c": 1}
        assert agent.state["items"] == [{"message": 1, "a": 1, "b": 2, "c": 3, "after": 3}]
        assert files(agent)["log.txt"] == "begun\na\nb\nc\n"


async def test_the_patches_of_a_turn_with_steps_give_its_state() -> None:
    Planned.program, Planned.fail_after = three, "b"
    async with AgentHarness(Planned) as agent:
        answer = await agent.send("go")
        assert answer.patch[0] == {"op": "add", "path": "/items/0", "value": {"message": 1}}
        assert encode(agent.activation.state.model_dump()) == encode(agent.state)


async def test_what_the_program_did_otherwise_between_steps_becomes_what_was_recorded() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.notes["tries"] = Planned.runs["tries"]
        ran("tries")
        (ctx.workspace / f"{Planned.runs['tries']}.txt").write_text("")
        await ctx.step("one", ran, "one")
        assert ctx.state.notes == {"tries": 0}
        assert files_of(ctx) == ["1.txt"]
        self.fail_once("one")

    def files_of(ctx: AgentContext[Any]) -> list[str]:
        return sorted(path.name for path in ctx.workspace.iterdir())

    Planned.program, Planned.fail_after = program, "one"
    async with AgentHarness(Planned) as agent:
        assert (await agent.send("go")).ok
        assert Planned.runs == {"tries": 2, "one": 1}
        assert agent.state["notes"] == {"tries": 0}


async def test_steps_of_one_name_are_told_apart_by_their_order() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        for n in range(3):
            ctx.state.notes[str(n)] = await ctx.step("count", ran, "count", n * n)
        self.fail_once("end")

    Planned.program, Planned.fail_after = program, "end"
    async with AgentHarness(Planned) as agent:
        assert (await agent.send("go")).ok
        assert agent.state["notes"] == {"0": 0, "1": 1, "2": 4}
        assert Planned.runs["count"] == 3


async def test_overlapping_steps_are_restored_together() -> None:
    async def work(ctx: AgentContext[Any], name: str, before: asyncio.Event, mine: asyncio.Event) -> str:
        ran(name)
        await before.wait()
        ctx.state.notes[name] = 1
        (ctx.workspace / name).write_text(name)
        mine.set()
        return name

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        start = asyncio.Event()
        start.set()
        ends = [asyncio.Event() for _ in range(3)]
        names = await asyncio.gather(
            ctx.step("x", lambda: work(ctx, "x", ends[1], ends[0])),
            ctx.step("y", lambda: work(ctx, "y", ends[2], ends[1])),
            ctx.step("z", lambda: work(ctx, "z", start, ends[2])),
        )
        ctx.state.done.extend(names)
        self.fail_once("gather")
        await ctx.step("last", ran, "last")
        self.fail_once("last")

    for place in ("", "gather", "last"):
        Planned.program, Planned.fail_after, Planned.runs = program, place, Counter()
        async with AgentHarness(Planned) as agent:
            assert (await agent.send("go")).ok
            assert Planned.runs == {"x": 1, "y": 1, "z": 1, "last": 1}
            assert agent.state == {"done": ["x", "y", "z"], "notes": {"x": 1, "y": 1, "z": 1}, "items": []}
            assert files(agent) == {"x": "x", "y": "y", "z": "z"}


async def test_of_overlapping_steps_those_that_ended_do_not_run_again() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        async def slow() -> str:
            ran("slow")
            (ctx.workspace / "slow").write_text("half")
            if Planned.runs["slow"] == 1:
                await asyncio.Event().wait()
            (ctx.workspace / "slow").write_text("whole")
            return "slow"

        async def fast() -> str:
            ran("fast")
            ctx.state.notes["fast"] = 1
            (ctx.workspace / "fast").write_text("fast")
            return "fast"

        async def branch() -> str:
            found = await ctx.step("fast", fast)
            self.fail_once("fast")
            return found

        async with asyncio.TaskGroup() as group:
            one, other = group.create_task(ctx.step("slow", slow)), group.create_task(branch())
        ctx.state.done.extend([one.result(), other.result()])

    Planned.program, Planned.fail_after = program, "fast"
    async with AgentHarness(Planned) as agent:
        assert (await agent.send("go")).ok
        assert Planned.runs == {"fast": 1, "slow": 2}
        assert agent.state["done"] == ["slow", "fast"]
        assert files(agent) == {"slow": "whole", "fast": "fast"}


async def test_replies_results_and_messages_of_a_step_are_repeated() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        outer = await ctx.send_message("I say ")

        async def speak() -> None:
            ran("speak")
            await outer.stream_token("hello")
            await outer.stream_token(" there", final=True)
            inner = await ctx.send_message("and")
            await inner.stream_token(" more")
            ctx.reply({"n": 1})
            await ctx.tell("other/one", {"text": "hi"})

        await ctx.step("speak", speak)
        self.fail_once("speak")

    for place in ("", "speak"):
        Planned.program, Planned.fail_after, Planned.runs = program, place, Counter()
        async with AgentHarness(Planned) as agent:
            answer = await agent.send("go")
            assert (answer.text, answer.data) == ("I say hello thereand more", {"n": 1})
            assert [payload["text"] for _, payload in agent.events("assistant_message")] == [
                "I say hello there",
                "and more",
            ]
            assert [message.target for message in agent.store.outbox()] == ["other/one"]
            assert Planned.runs == {"speak": 1}


class Odd(ValueError):
    """An exception of the agent's own."""


async def test_a_failure_that_the_program_handled_is_raised_again() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        def primary() -> None:
            ran("primary")
            ctx.state.notes["half"] = 1
            if Planned.runs["primary"] == 1:
                raise Odd("not today")

        try:
            await ctx.step("primary", primary)
        except Odd as error:
            ctx.state.done.append(str(error))
        await ctx.step("fallback", ran, "fallback")
        self.fail_once("fallback")

    Planned.program, Planned.fail_after = program, "fallback"
    async with AgentHarness(Planned) as agent:
        assert (await agent.send("go")).ok
        assert Planned.runs == {"primary": 1, "fallback": 1}
        assert agent.state == {"done": ["not today"], "notes": {"half": 1}, "items": []}


@pytest.mark.parametrize("pauses", range(12))
@pytest.mark.parametrize("beside", ["step", "pause"])
async def test_a_failure_that_the_program_did_not_handle_is_not_raised_again(pauses: int, beside: str) -> None:
    async def other(ctx: AgentContext[Any]) -> None:
        if beside == "step":
            await ctx.step("beside", ran, "beside")
        else:
            await ctx.sleep(1)

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        async def fail() -> None:
            for _ in range(pauses):
                await asyncio.sleep(0)
            ran("failing")
            self.fail_once("failing")

        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("failing", fail))
            group.create_task(other(ctx))

    Planned.program, Planned.fail_after = program, "failing"
    async with AgentHarness(Planned) as agent:
        exchange = await agent.send("go")
        assert exchange.ok if beside == "step" else exchange.paused, exchange.error
    assert Planned.runs["failing"] == 2


async def test_a_step_that_the_program_cancelled_is_not_run_again() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        async def slow() -> None:
            ran("slow")
            await asyncio.Event().wait()

        try:
            async with asyncio.timeout(0.01):
                await ctx.step("slow", slow)
        except TimeoutError:
            ctx.state.done.append("too slow")
        await ctx.step("fallback", ran, "fallback")
        self.fail_once("fallback")

    Planned.program, Planned.fail_after = program, "fallback"
    async with AgentHarness(Planned) as agent:
        assert (await agent.send("go")).ok
        assert Planned.runs == {"slow": 1, "fallback": 1}
        assert agent.state["done"] == ["too slow"]


async def test_what_a_step_said_that_was_cancelled_while_it_ended_is_said_again() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        async def say() -> None:
            ran("said")
            await ctx.send_message("said")
            ctx.state.done.append("said")
            asyncio.get_running_loop().call_soon(said.cancel)  # when the step is being stored

        said = asyncio.create_task(ctx.step("said", say))
        try:
            async with asyncio.timeout(1):  # of a replay, which waits for the program to cancel it again
                await said
        except (asyncio.CancelledError, TimeoutError):
            said.cancel()
        await ctx.step("after", ran, "after")
        self.fail_once("after")

    Planned.program, Planned.fail_after = program, "after"
    async with AgentHarness(Planned) as agent:
        answer = await agent.send("go")
        assert answer.ok
        assert Planned.runs == {"said": 1, "after": 1}
        assert answer.text == "said"
        assert agent.state["done"] == ["said"]


async def test_a_policy_tries_a_step_again() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        def flaky(kind: str) -> str:
            ran(kind)
            if Planned.runs[kind] < 3:
                raise {"often": OSError, "never": TypeError}[kind]("as told")
            return kind

        policy = Retry(attempts=3, delay_s=0, on=(OSError,))
        ctx.state.done.append(await ctx.step("often", flaky, "often", retry=policy))
        with pytest.raises(TypeError, match="as told"):
            await ctx.step("never", flaky, "never", retry=policy)

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        assert (await agent.send("go")).ok
        assert Planned.runs == {"often": 3, "never": 1}


def test_the_delays_of_a_policy_grow_up_to_a_limit() -> None:
    policy = Retry(attempts=9, delay_s=1, backoff=3, max_delay_s=20)
    assert [policy.delay_after_s(tries) for tries in (1, 2, 3, 4)] == [1, 3, 9, 20]


async def test_a_permanent_failure_parks_at_once() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        def pay() -> None:
            ran("pay")
            raise Permanent("the account is closed")

        await ctx.step("pay", pay, retry=Retry(attempts=5, delay_s=0))

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        answer = await agent.send("go")
        assert answer.error == {"type": "Permanent", "message": "the account is closed"}
        assert answer.frames[-1]["parked"]
        assert Planned.runs == {"pay": 1}


async def test_a_cancelled_message_drops_its_steps_and_an_interrupted_one_keeps_them() -> None:
    stepped = asyncio.Event()

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await ctx.step("a", ran, "a")
        stepped.set()
        if Planned.runs["wait"] < 2:
            ran("wait")
            await asyncio.Event().wait()

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        receipt = agent.admit("go")
        session_id = agent.store.session(agent.address.name).session_id
        for end in (agent.activation.interrupt, None):
            stepped.clear()
            running = asyncio.create_task(agent.activation.handle_next())
            await stepped.wait()
            assert len(agent.store.steps_of_session(session_id)) == 1
            if end is not None:
                end()
            else:
                await agent.activation.cancel(receipt.message_id)
            await running
        assert not agent.store.steps_of_session(session_id)
        assert Planned.runs["a"] == 1


async def test_an_artifact_of_a_step_is_kept_until_the_turn_is_committed() -> None:
    data, ids = b"".join(index.to_bytes(4) for index in range(200_000)), []

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        async def publish() -> str:
            ran("publish")
            return await ctx.add_artifact("a.bin", data)

        ids.append(await ctx.step("publish", publish))
        ran("attempt")
        if Planned.runs["attempt"] == 1:
            raise ConnectionError("the service ends")

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        agent.admit("go")
        assert await agent.activation.handle_next() is Step.RETRY
        assert not agent.artifacts()
        (body,) = (
            step.body for step in agent.store.steps_of_session(agent.store.session(agent.address.name).session_id)
        )
        (content,) = roots_of(body)[2]
        assert content.chunked
        assert content.id in reachable_blobs(agent.store, agent.blobs, [])
        assert await agent.receive() == 1
        (artifact,) = agent.artifacts()
        assert agent.artifact(artifact.artifact_id) == data
        assert [artifact.artifact_id] * 2 == ids
        assert Planned.runs == {"publish": 1, "attempt": 2}


async def test_bad_calls_are_refused_with_reasons() -> None:
    kept: list[AgentContext[Any]] = []

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        async def inner() -> None:
            await ctx.step("inner", ran, "inner")

        kept.append(ctx)
        with pytest.raises(PodiumError, match=r"step 'inner' is called inside of step 'outer#1'"):
            await ctx.step("outer", inner)
        with pytest.raises(ValueError, match=r"/rows/0: .* is not JSON; give text.* result of step 'result#1'"):
            await ctx.step("result", lambda: {"rows": [object()]})
        with pytest.raises(ValueError, match=r"/0: a PosixPath is not JSON"):
            await ctx.step("argument", lambda path: None, ctx.workspace)
        with pytest.raises(InvalidInput, match="a step has no name"):
            await ctx.step("", ran, "x")
        with pytest.raises(InvalidInput, match="is no policy"):
            Retry(attempts=0)

    class Initial(Planned):
        async def on_init(self, ctx: AgentContext[Any]) -> None:
            with pytest.raises(PodiumError, match="handles no message, so it has no steps"):
                await ctx.step("a", ran, "a")

    Planned.program = program
    async with AgentHarness(Initial) as agent:
        answer = await agent.send("go")
        assert answer.ok, answer.error
        with pytest.raises(PodiumError, match="turn 1 is over"):
            await kept[0].step("late", ran, "late")
        assert not Planned.runs


async def test_the_idempotency_key_of_a_step_is_its_own_at_each_attempt() -> None:
    keys: list[str] = []

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        def pay() -> None:
            keys.append(ctx.idempotency_key("pay"))
            self.fail_once("pay")

        await ctx.step("pay", pay)
        await ctx.step("pay", pay)

    Planned.program, Planned.fail_after = program, "pay"
    async with AgentHarness(Planned, "ann") as agent:
        receipt = (await agent.send("go")).receipt
        first = f"planned/ann:{receipt.message_id}:pay#1:pay"
        assert keys == [first, first, f"planned/ann:{receipt.message_id}:pay#2:pay"]


async def test_large_results_are_blobs() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        found = await ctx.step("large", lambda: ran("large", "x" * 100_000))
        ctx.state.notes["length"] = len(found)
        if Planned.fail_after:
            (step,) = agent.store.steps_of_session(agent.store.session(agent.address.name).session_id)
            assert len(step.body) < 2_000
        self.fail_once("large")

    Planned.program, Planned.fail_after = program, "large"
    async with AgentHarness(Planned) as agent:
        assert (await agent.send("go")).ok
        assert agent.state["notes"] == {"length": 100_000}
        assert Planned.runs == {"large": 1}


class Ranged(Planned):
    max_attempts = 1

    class State(Planned.State):
        low: int = 0
        high: int = 0

        @model_validator(mode="after")
        def ordered(self) -> Any:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self


async def test_validators_of_the_state_wait_for_the_end_of_the_turn() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.low = 5
        await ctx.step("a", ran, "a")
        if message["text"] == "good":
            ctx.state.high = 6

    Planned.program = program
    async with AgentHarness(Ranged) as agent:
        answer = await agent.send("bad")
        assert answer.error is not None
        assert answer.error["type"] == "InvalidState"
        assert (await agent.send("good")).ok


class Steered(Planned):
    started: asyncio.Event
    heard: asyncio.Event

    def __init__(self) -> None:
        self.started, self.heard = asyncio.Event(), asyncio.Event()

    async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.done.append(message["text"])
        ctx.state.notes["heard"] = await ctx.step("hear", ran, "hear", 7)
        self.heard.set()


async def test_a_message_that_steered_before_a_step_ended_steers_the_next_attempt_too() -> None:
    async def program(self: Any, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await ctx.step("a", ran, "a")
        self.started.set()
        await self.heard.wait()
        await ctx.step("b", ran, "b")
        self.fail_once("b")

    Planned.program, Steered.fail_after = program, "b"
    async with AgentHarness(Steered) as agent:
        going = asyncio.create_task(agent.send("go"))
        while not agent.activation._agent.started.is_set():  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        heard = await agent.send("hear me", when_busy=BusyPolicy.STEER)
        assert (await going).ok
        assert heard.ok
        assert Planned.runs == {"a": 1, "hear": 1, "b": 1}
        assert agent.state == {"done": ["hear me"], "notes": {"heard": 7}, "items": []}
        ((_, payload),) = agent.events("turn.committed")
        assert len(payload["consumed"]) == 2  # type: ignore[arg-type]


# -- what the record keeps ---------------------------------------------------------------------------------------------


def summaries(agent: AgentHarness) -> list[dict[str, Any]]:
    """The summaries of the steps of the one turn."""
    ((_, payload),) = agent.events("turn.committed")
    return cast("Any", payload)["steps"]["steps"]  # type: ignore[no-any-return]


async def test_the_record_keeps_a_summary_of_each_step(tmp_path: Path) -> None:
    failures = iter([OSError("down"), OSError("down")])

    def flaky(value: str) -> str:
        for failure in failures:
            raise failure
        return value

    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        del self, message
        await ctx.step("pay", flaky, "paid", retry=Retry(attempts=3, delay_s=0))
        with contextlib.suppress(ZeroDivisionError):
            await ctx.step("divide", lambda: 1 // 0)
        await ctx.step("pay", flaky, "x" * 100_000)
        with contextlib.suppress(ZeroDivisionError):
            await ctx.step("divide", lambda: 1 // 0)
        if message_attempts.pop():
            raise ConnectionError

    message_attempts = [False, True]
    Planned.program = program
    async with AgentHarness(Planned, options=HarnessOptions(directory=tmp_path)) as agent:
        before = agent.clock.now_ms()
        assert (await agent.send("go")).ok
        found = summaries(agent)
    assert [(step["key"], step["name"], step["status"], step["attempts"]) for step in found] == [
        ("pay#1", "pay", "done", 3),
        ("divide#1", "divide", "failed", 1),
        ("pay#2", "pay", "done", 1),
        ("divide#2", "divide", "failed", 1),
    ]
    assert [step.get("result_bytes") for step in found] == [6, None, 100_002, None]
    assert [step.get("error") for step in found] == [None, "ZeroDivisionError", None, "ZeroDivisionError"]
    assert all(before <= step["started"] <= step["ended"] for step in found)


async def test_a_turn_without_steps_has_no_summary() -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        del self, ctx, message

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        assert (await agent.send("go")).ok
        ((_, payload),) = agent.events("turn.committed")
        assert "steps" not in payload
