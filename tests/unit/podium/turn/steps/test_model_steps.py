"""Calls of models as steps: an answer is durable, and a further attempt gets the same chunks without a call."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import pytest

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.errors import PodiumError
from podium.models import Finished, LLMMessage, ModelError, TextDelta, Usage
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from podium.models import LLMStreamChunk

ASKED = [LLMMessage("user", "hello")]


class Says:
    """A model that says given chunks, or fails."""

    def __init__(self, *chunks: LLMStreamChunk | ModelError) -> None:
        self.chunks = chunks
        self.closed = 0

    async def stream(
        self, messages: Sequence[LLMMessage], *, tools: Iterable[Any] | None = None, temperature: float | None = None
    ) -> AsyncIterator[LLMStreamChunk]:
        try:
            for chunk in self.chunks:
                if isinstance(chunk, ModelError):
                    raise chunk
                yield chunk
        finally:
            self.closed += 1


def hello() -> Says:
    return Says(TextDelta("a"), TextDelta("b"), Usage(3, 2), Finished("stop", "m-1"))


class Asking(BaseAgent):
    """Runs the program of the test."""

    class State(DeltaState):
        said: str = ""
        log: list[str] = []

    program: Callable[[Asking, AgentContext[Any]], Awaitable[None]]
    attempts = 0

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        type(self).attempts += 1
        await type(self).program(self, ctx)


@pytest.fixture(autouse=True)
def _anew() -> None:
    Asking.attempts = 0


def first_time() -> bool:
    return Asking.attempts == 1


async def test_an_answer_streams_and_a_further_attempt_replays_it_without_a_call() -> None:
    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        reply = await ctx.send_message()
        async for chunk in ctx.llm("fast").stream(ASKED, temperature=0.5):
            if isinstance(chunk, TextDelta):
                ctx.state.said += chunk.text
                with (ctx.workspace / "said.txt").open("a") as file:
                    file.write(chunk.text)
                await reply.stream_token(chunk.text)
            ctx.state.log.append(type(chunk).__name__)
        if first_time():
            raise ConnectionError("after the answer")

    Asking.program = program
    async with AgentHarness(Asking, models={"fast": hello()}) as agent:
        answer = await agent.send("go")
        assert answer.ok
        assert answer.text == "ab"
        assert Asking.attempts == 2
        (call,) = agent.models.calls
        assert (call.profile, call.temperature, call.turn, list(call.messages)) == ("fast", 0.5, 1, ASKED)
        assert agent.state == {"said": "ab", "log": ["TextDelta", "TextDelta", "Usage", "Finished"]}
        assert (agent.workspace / "said.txt").read_text() == "ab"


async def test_an_answer_is_durable_before_its_last_chunk() -> None:
    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        async with aclosing(ctx.llm("fast").stream(ASKED)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Finished):
                    break
        if first_time():
            raise ConnectionError("the last chunk was not left behind")

    Asking.program = program
    async with AgentHarness(Asking, models={"fast": hello()}) as agent:
        assert (await agent.send("go")).ok
        assert len(agent.models.calls) == 1


async def test_an_answer_as_a_whole() -> None:
    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        answered = await ctx.llm("fast").answer(ASKED)
        ctx.state.said = answered.message.text
        assert answered.usage.output_tokens == 2

    Asking.program = program
    async with AgentHarness(Asking, models={"fast": hello()}) as agent:
        assert (await agent.send("go")).ok
        assert agent.state["said"] == "ab"


async def test_a_call_that_failed_is_made_again_by_a_further_attempt() -> None:
    model = Says(TextDelta("a"), ModelError("cut", "unavailable"))

    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        if not first_time():
            model.chunks = hello().chunks
        async for chunk in ctx.llm("fast").stream(ASKED):
            ctx.state.said += chunk.text if isinstance(chunk, TextDelta) else ""

    Asking.program = program
    async with AgentHarness(Asking, models={"fast": model}) as agent:
        assert (await agent.send("go")).ok
        assert agent.state["said"] == "ab"
        assert len(agent.models.calls) == 2


async def test_a_failure_that_the_program_handled_is_replayed_with_what_was_said_before_it() -> None:
    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        try:
            async for chunk in ctx.llm("fast").stream(ASKED):
                ctx.state.log.append(getattr(chunk, "text", ""))
        except ModelError as error:
            ctx.state.log.append(f"{error.kind} {error.status} {error}")
        await ctx.step("next", lambda: 1)
        if first_time():
            raise ConnectionError("again")

    Asking.program = program
    failing = Says(TextDelta("a"), ModelError("slow down", "rate_limited", status=429))
    async with AgentHarness(Asking, models={"fast": failing}) as agent:
        assert (await agent.send("go")).ok
        assert agent.state["log"] == ["a", "rate_limited 429 slow down"]
        assert len(agent.models.calls) == 1


async def test_a_call_that_the_program_left_is_replayed_up_to_there() -> None:
    model = hello()

    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        async with aclosing(ctx.llm("fast").stream(ASKED)) as chunks:
            async for chunk in chunks:
                ctx.state.log.append(getattr(chunk, "text", ""))
                break
        assert model.closed == 1
        await ctx.step("next", lambda: 1)
        if first_time():
            raise ConnectionError("again")

    Asking.program = program
    async with AgentHarness(Asking, models={"fast": model}) as agent:
        assert (await agent.send("go")).ok
        assert agent.state["log"] == ["a"]
        assert len(agent.models.calls) == 1


async def test_a_program_that_reads_on_where_it_had_left_pauses() -> None:
    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        async with aclosing(ctx.llm("fast").stream(ASKED)) as chunks:
            async for _ in chunks:
                if first_time():
                    break
        await ctx.step("next", lambda: 1)
        if first_time():
            raise ConnectionError("again")

    Asking.program = program
    async with AgentHarness(Asking, models={"fast": hello()}) as agent:
        asked = await agent.send("go")
        assert asked.paused
        assert "reads on in step 'llm fast#1'" in asked.frames[-1]["reason"]


async def test_a_program_that_asks_something_else_pauses() -> None:
    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        await ctx.llm("fast").answer([LLMMessage("user", str(Asking.attempts))])
        raise ConnectionError("again")

    Asking.program = program
    async with AgentHarness(Asking, models={"fast": hello()}) as agent:
        asked = await agent.send("go")
        assert asked.paused
        assert "with other arguments" in asked.frames[-1]["reason"]


async def test_steps_inside_of_the_loop_over_an_answer_are_replayed_in_their_places() -> None:
    ran: list[str] = []

    def note(text: str) -> str:
        ran.append(text)
        return text.upper()

    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        async for chunk in ctx.llm("fast").stream(ASKED):
            if isinstance(chunk, TextDelta):
                ctx.state.said += await ctx.step("note", note, chunk.text)
        ctx.state.log.append(await ctx.step("note", note, "c"))
        if Asking.attempts < 3:
            raise ConnectionError("again")

    Asking.program = program
    async with AgentHarness(Asking, models={"fast": hello()}) as agent:
        assert (await agent.send("go")).ok
        assert agent.state == {"said": "AB", "log": ["C"]}
        assert ran == ["a", "b", "c"]
        assert len(agent.models.calls) == 1


async def test_two_answers_at_once() -> None:
    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        async def ask(text: str) -> None:
            async for chunk in ctx.llm("fast").stream([LLMMessage("user", text)]):
                if isinstance(chunk, TextDelta):
                    ctx.state.log.append(text + chunk.text)
                    await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask("x"))
            tasks.create_task(ask("y"))
        if first_time():
            raise ConnectionError("again")

    Asking.program = program
    async with AgentHarness(Asking, models={"fast": hello()}) as agent:
        assert (await agent.send("go")).ok
        assert sorted(cast("list[str]", agent.state["log"])) == ["xa", "xb", "ya", "yb"]
        assert len(agent.models.calls) == 2


async def test_a_turn_that_fails_in_the_middle_of_an_answer_ends_the_call() -> None:
    model = hello()

    async def program(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        async for _ in ctx.llm("fast").stream(ASKED):
            if first_time():
                raise ConnectionError("in the middle")

    Asking.program = program
    async with AgentHarness(Asking, models={"fast": model}) as agent:
        assert (await agent.send("go")).ok
        assert model.closed == len(agent.models.calls) == 2


async def test_who_calls_no_model_is_told_how() -> None:
    async def unknown(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        await ctx.llm("slow").answer(ASKED)

    async def nested(self: Asking, ctx: AgentContext[Asking.State]) -> None:
        await ctx.step("outer", lambda: ctx.llm("fast").answer(ASKED))

    for program, kind, text in (
        (unknown, "ModelError", "there is no profile 'slow' in this test; its profiles are: fast"),
        (nested, "ContextMisuse", "is called inside of step 'outer#1'"),
    ):
        Asking.program = program
        async with AgentHarness(AskingOnce, models={"fast": hello()}) as agent:
            error = (await agent.send("go")).error
            assert error is not None
            assert error["type"] == kind
            assert text in str(error["message"])


class AskingOnce(Asking):
    max_attempts = 1


class Beginning(BaseAgent):
    async def on_init(self, ctx: AgentContext[Any]) -> None:
        with pytest.raises(PodiumError, match="this hook handles no message"):
            await ctx.llm("fast").answer(ASKED)

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await ctx.send_message("begun")


async def test_hooks_without_a_message_call_no_model() -> None:
    async with AgentHarness(Beginning, models={"fast": hello()}) as agent:
        assert (await agent.send("go")).text == "begun"


async def test_the_record_keeps_who_answered_and_the_tokens() -> None:
    model = Says(TextDelta("a"), Usage(3, 2), Finished("stop", "m-1", cost="0.5"))

    async def program(self: Asking, ctx: AgentContext[Any]) -> None:
        del self
        async with aclosing(ctx.llm("code").stream(ASKED)) as chunks:
            async for _ in chunks:
                break
        async for _ in ctx.llm("code").stream(ASKED):
            pass

    Asking.program = program
    async with AgentHarness(Asking, models={"code": model}) as agent:
        assert (await agent.send("go")).ok
        ((_, payload),) = agent.events("turn.committed")
    steps = cast("Any", payload)["steps"]["steps"]
    assert [(step["name"], step["status"]) for step in steps] == [("llm code", "left"), ("llm code", "done")]
    call = steps[1]["model_call"]
    assert call.pop("digest")
    tokens = {"input_tokens": 3, "output_tokens": 2, "cached_tokens": 0}
    assert call == {"profile": "code", "model": "m-1", "cost": "0.5"} | tokens
