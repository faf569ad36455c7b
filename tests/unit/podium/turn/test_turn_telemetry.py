"""What turns measure, by outcome; which spans they open; what their logs carry."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness, HarnessOptions
from podium.turn.activation import Step
from podium.turn.message_loop import MessageLoop
from podium.turn.telemetry import (
    COMMIT_DURATION,
    MESSAGES_TOLD,
    SEAL_DURATION,
    STEP_DURATION,
    STEPS,
    TOKENS,
    TURN_DURATION,
    TURN_INSTRUMENTS,
    TURNS,
    Attributes,
    Instrument,
    Span,
    SpanKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_AGENT = ("working", "default")


class Working(BaseAgent):
    """Does what it is told."""

    max_attempts = 2

    class State(DeltaState):
        turns: int = 0

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        ctx.state.turns += 100

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.turns += 1
        match message["text"]:
            case "stream":
                reply = await ctx.send_message()
                for token in ("one ", "two ", "three"):
                    await reply.stream_token(token)
            case "tell":
                await ctx.tell("other/one", {"text": "hello"})
                await ctx.tell("other/two", {"text": "hello"})
            case "fail":
                await ctx.send_message("half")
                raise ValueError("no")
            case "steps":
                await ctx.step("double", lambda n: 2 * n, 4)
                await ctx.step("double", lambda n: 2 * n, 5)
                if not failed:
                    failed.append(True)
                    raise ValueError("after the steps")
            case "failing step":
                await ctx.step("divide", lambda n: 1 // n, 0)
            case "hang":
                await asyncio.Event().wait()
            case "log":
                seen.append(structlog.contextvars.get_contextvars())


seen: list[dict[str, Any]] = []
failed: list[bool] = []


class Notes:
    """A meter and a tracer that note everything."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, ...], float] = {}
        self.observed: dict[str, int] = {}
        self.spans: list[tuple[str, SpanKind, dict[str, Any], str | None]] = []
        """Name, kind, attributes, and the name of the parent; in the order of their beginnings."""
        self._open: list[str] = []

    def add(self, counter: Instrument, labels: tuple[str, ...], amount: float = 1) -> None:
        assert len(labels) == len(counter.labels)
        key = (counter.name, *labels)
        self.counts[key] = self.counts.get(key, 0) + amount

    def observe(self, histogram: Instrument, labels: tuple[str, ...], value: float) -> None:
        assert labels == OF_AGENT
        assert value >= 0
        self.observed[histogram.name] = self.observed.get(histogram.name, 0) + 1

    def turns(self, cause: str, outcome: str) -> float:
        return self.counts.get((TURNS.name, *OF_AGENT, cause, outcome), 0)

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
        since_s: float = 0.0,
    ) -> Iterator[Span]:
        assert since_s == 0.0
        known = dict(attributes)
        self.spans.append((name, kind, known, parent or (self._open[-1] if self._open else None)))
        self._open.append(name)
        try:
            yield NotedSpan(known)
        finally:
            self._open.pop()


class NotedSpan:
    traceparent = None

    def __init__(self, attributes: dict[str, Any]) -> None:
        self._attributes = attributes

    def rename(self, name: str) -> None:
        raise NotImplementedError(name)

    def set(self, key: str, value: str | float | bool) -> None:
        self._attributes[key] = value

    def fail(self, kind: str, message: str) -> None:
        self._attributes["failed"] = kind, message


async def test_a_committed_turn_is_counted_and_timed_with_its_parts() -> None:
    notes = Notes()
    async with AgentHarness(Working, options=HarnessOptions(meter=notes)) as agent:
        await agent.send("stream")
        await agent.send("tell")
        await agent.send("steps")
    assert notes.turns("message", "committed") == 3
    assert notes.turns("init", "committed") == 1
    assert notes.counts[TOKENS.name, *OF_AGENT] == 3
    assert notes.counts[MESSAGES_TOLD.name, *OF_AGENT] == 2
    assert notes.observed[TURN_DURATION.name] == sum(notes.counts[key] for key in notes.counts if key[0] == TURNS.name)
    assert notes.observed[SEAL_DURATION.name] >= 3
    assert notes.observed[COMMIT_DURATION.name] >= 3
    used = {name for name, *_ in notes.counts} | set(notes.observed)
    assert used == {instrument.name for instrument in TURN_INSTRUMENTS}


async def test_turns_that_are_rolled_back_are_counted_by_their_outcome() -> None:
    notes = Notes()
    async with AgentHarness(Working, options=HarnessOptions(meter=notes)) as agent:
        agent.admit("fail")
        assert await agent.activation.handle_next() is Step.RETRY
        assert notes.turns("message", "failed") == 1
        await agent.activation.handle_next()
        assert notes.turns("message", "parked") == 1
        assert notes.counts[TOKENS.name, *OF_AGENT] == 2, "what was streamed was streamed"

        hanging = agent.admit("hang").message_id
        for end, outcome in ((agent.activation.interrupt, "interrupted"), (None, "cancelled")):
            handling = asyncio.create_task(agent.activation.handle_next())
            while agent.activation.running_message_id != hanging:
                await asyncio.sleep(0)
            if end is not None:
                end()
            else:
                await agent.activation.cancel(hanging)
            await handling
            assert notes.turns("message", outcome) == 1
    assert notes.turns("message", "committed") == 0


async def test_an_attempt_that_ended_with_its_process_is_counted_by_the_next_activation() -> None:
    notes = Notes()
    async with AgentHarness(Working, options=HarnessOptions(meter=notes)) as agent:
        agent.admit("stream")
        await agent.kill()
        assert notes.turns("message", "failed") == 1
        assert TURN_DURATION.name not in notes.observed, "nobody knows how long it took"


async def test_the_spans_of_a_message_are_attempt_hooks_seal_and_commit() -> None:
    notes = Notes()
    async with AgentHarness(Working, options=HarnessOptions(tracer=notes)) as agent:
        message_id = (await agent.send("stream")).receipt.message_id
        assert [(name, parent) for name, _, _, parent in notes.spans] == [
            ("process working", None),
            ("on_init working", "process working"),
            ("seal", "on_init working"),
            ("commit", "on_init working"),
            ("seal", "process working"),
            ("commit", "process working"),
        ]
        _, kind, attributes, _ = notes.spans[0]
        assert kind is SpanKind.CONSUMER
        assert attributes == {
            "messaging.system": "podium",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": "working/test",
            "messaging.destination.template": "working/{key}",
            "messaging.message.id": message_id,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "working",
            "gen_ai.agent.id": "working/test",
            "gen_ai.conversation.id": agent.activation.lease.session_id,
            "podium.tenant": "default",
            "podium.attempt": 1,
            "podium.epoch": agent.activation.lease.epoch,
            "podium.turn": 2,
        }


async def test_each_attempt_has_a_span_and_says_why_it_failed() -> None:
    notes = Notes()
    async with AgentHarness(Working, options=HarnessOptions(tracer=notes)) as agent:
        await agent.send("fail")
    attempts = [attributes for name, _, attributes, _ in notes.spans if name == "process working"]
    assert [attributes["podium.attempt"] for attributes in attempts] == [1, 2]
    assert [attributes["failed"] for attributes in attempts] == [("ValueError", "no")] * 2


async def test_steps_are_counted_timed_and_traced_and_replayed_ones_told_apart() -> None:
    failed.clear()
    notes = Notes()
    async with AgentHarness(Working, options=HarnessOptions(meter=notes, tracer=notes)) as agent:
        await agent.send("steps")
        await agent.send("failing step")
    outcomes = {key[-1]: count for key, count in notes.counts.items() if key[0] == STEPS.name}
    assert outcomes == {"ended": 2, "replayed": 2, "failed": 2}
    assert notes.observed[STEP_DURATION.name] == 2
    steps = [(name, parent, attributes) for name, _, attributes, parent in notes.spans if name.startswith("step ")]
    assert steps == [
        ("step double", "process working", {"podium.step.key": "double#1"}),
        ("step double", "process working", {"podium.step.key": "double#2"}),
        ("step divide", "process working", {"podium.step.key": "divide#1"}),
        ("step divide", "process working", {"podium.step.key": "divide#1"}),
    ]


async def test_logs_of_a_turn_carry_agent_epoch_and_turn() -> None:
    seen.clear()
    async with AgentHarness(Working) as agent:
        agent.admit("log")
        loop = MessageLoop(agent.activation, idle_timeout_s=0)
        await loop.run()
        assert seen == [{"agent_id": "working/test", "epoch": agent.activation.lease.epoch, "turn": 2}]
    assert not structlog.contextvars.get_contextvars()
