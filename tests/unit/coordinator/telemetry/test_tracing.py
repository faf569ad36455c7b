"""Traces at a real receiver of OTLP: spans and their parents, what the variables say, and a collector that is away."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.environment import traces_to
from coordinator.telemetry.traceparent import read_traceparent
from coordinator.telemetry.tracing import Tracing
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.messages.headers import Headers
from podium.testing import AgentHarness, HarnessOptions
from podium.turn.telemetry import NO_TRACER, SpanKind
from tests.otlp_receiver import OtlpReceiver, otlp_receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


class Telling(BaseAgent):
    """Tells another agent, and fails if it is asked to."""

    max_attempts = 1

    class State(DeltaState):
        seen: list[str] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.seen.append(str(ctx.traceparent))
        await ctx.tell("other/one", {"text": "hello"})
        if message["text"] == "fail":
            raise ValueError("no such thing")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with otlp_receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield found


@pytest.fixture
def closed_port() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


async def test_spans_arrive_with_kinds_parents_attributes_and_failures(receiver: OtlpReceiver) -> None:
    tracing = Tracing("host_1")
    tracer = tracing.tracer
    with tracer.span("outer", {"a": 1, "b": "two", "c": True}, kind=SpanKind.CONSUMER, parent=PARENT) as outer:
        outer.set("podium.turn", 7)
        with tracer.span("inner", {}) as inner:
            inner.fail("ValueError", "no")
        with pytest.raises(KeyError), tracer.span("raises", {}):
            raise KeyError("gone")
        assert outer.traceparent is not None
        assert outer.traceparent.split("-")[1] == TRACE
    with tracer.span("alone", {}):
        pass
    await tracing.flush()
    spans = {span.name: span for span in receiver.spans}
    assert set(spans) == {"outer", "inner", "raises", "alone"}
    assert (spans["outer"].trace_id, spans["outer"].parent_id, spans["outer"].kind) == (TRACE, SPAN, "CONSUMER")
    assert spans["outer"].attributes == {"a": 1, "b": "two", "c": True, "podium.turn": 7}
    assert outer.traceparent == f"00-{TRACE}-{spans['outer'].span_id}-01"
    for name in ("inner", "raises"):
        assert (spans[name].trace_id, spans[name].parent_id) == (TRACE, spans["outer"].span_id)
        assert spans[name].failed
        assert spans[name].start_ns <= spans[name].end_ns
    assert (spans["inner"].attributes["error.type"], spans["inner"].status) == ("ValueError", "no")
    assert spans["raises"].attributes["error.type"] == "KeyError"
    assert not spans["outer"].failed
    assert spans["alone"].parent_id == ""
    assert spans["alone"].trace_id != TRACE


async def test_the_variables_of_the_specification_are_obeyed(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    for number, service in enumerate(("", "agents")):
        monkeypatch.setenv("OTEL_SERVICE_NAME", service)
        tracing = Tracing(f"host_{number}")
        with tracing.tracer.span(f"span {number}", {}):
            pass
        await tracing.flush()
    first, second = (receiver.named(f"span {number}")[0].resource for number in range(2))
    assert (first["service.name"], first["service.instance.id"]) == ("podium", "host_0")
    assert (second["service.name"], second["deployment.environment.name"]) == ("agents", "test")
    assert all(headers["x-team"] == "blue" for headers in receiver.headers)

    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    tracing = Tracing("host_2")
    with tracing.tracer.span("not sampled", {}, parent=PARENT) as span:
        assert span.traceparent is not None
        assert span.traceparent.startswith(f"00-{TRACE}-")
        assert span.traceparent.endswith("-00"), "those who come after do not sample it either"
    await tracing.flush()
    assert not receiver.named("not sampled")


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, "http://a"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b"}, "http://b"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_EXPORTER": "none"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_EXPORTER": "otlp"}, "http://a"),
    ],
)
def test_what_switches_traces_on(variables: dict[str, str], found: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert traces_to() == found
    if found is None:
        assert Tracing("host_1").tracer is NO_TRACER


async def test_the_turn_of_a_message_is_a_part_of_its_senders_trace(receiver: OtlpReceiver) -> None:
    tracing = Tracing("host_1")
    async with AgentHarness(Telling, options=HarnessOptions(tracer=tracing.tracer)) as agent:
        exchange = await agent.send("hi", trace=PARENT)
        (told,) = agent.store.outbox()
        seen = agent.state["seen"]
        await agent.send("fail")
    await tracing.flush()
    first, second = receiver.named("process telling")
    assert (first.trace_id, first.parent_id) == (TRACE, SPAN)
    assert first.attributes["messaging.message.id"] == exchange.receipt.message_id
    assert not first.failed
    carried = f"00-{TRACE}-{first.span_id}-01"
    assert Headers.from_json(told.headers).trace == carried
    assert seen == [carried]
    assert {span.name for span in receiver.spans if span.parent_id == first.span_id} >= {"seal", "commit"}
    assert second.trace_id != TRACE, "a message without a trace begins one"
    assert (second.failed, second.attributes["error.type"], second.status) == (True, "ValueError", "no such thing")


class Asking(BaseAgent):
    """Asks another agent, which asks nobody."""

    class State(DeltaState):
        pass

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if "ask" in message:
            await ctx.ask(message["ask"], {})
        ctx.reply(str(ctx.traceparent))


async def test_a_question_is_a_part_of_the_trace_of_its_asker(receiver: OtlpReceiver) -> None:
    tracing = Tracing("host_1")
    async with (
        AgentHarness(Asking, "one", options=HarnessOptions(tracer=tracing.tracer)) as one,
        AgentHarness(
            Asking, "other", store=one.store, blobs=one.blobs, options=HarnessOptions(tracer=tracing.tracer)
        ) as other,
    ):
        asking = asyncio.create_task(one.send({"ask": "asking/other"}, trace=PARENT))
        while not await other.receive():
            await asyncio.sleep(0)
        assert (await asking).ok
    await tracing.flush()
    by_agent = {span.attributes["gen_ai.agent.id"]: span for span in receiver.named("process asking")}
    asker, asked = by_agent["asking/one"], by_agent["asking/other"]
    assert (asker.trace_id, asker.parent_id) == (TRACE, SPAN)
    (step,) = receiver.named("step ask asking")
    assert step.attributes["podium.step.key"] == "ask asking/other#1", "the key is in no name"
    assert (step.trace_id, step.parent_id) == (TRACE, asker.span_id)
    assert (asked.trace_id, asked.parent_id) == (TRACE, step.span_id)
    assert step.start_ns < asked.start_ns < asked.end_ns < step.end_ns


async def test_without_a_tracer_the_trace_of_the_sender_passes_through() -> None:
    async with AgentHarness(Telling) as agent:
        await agent.send("hi", trace=PARENT)
        await agent.send("hi")
        with_trace, without = agent.store.outbox()
        assert agent.state["seen"] == [PARENT, "None"]
    assert Headers.from_json(with_trace.headers).trace == PARENT
    assert Headers.from_json(without.headers).trace is None


async def test_a_collector_that_is_away_delays_no_turn_and_fails_none(
    closed_port: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", closed_port)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    tracing = Tracing("host_1")
    async with AgentHarness(Telling, options=HarnessOptions(tracer=tracing.tracer)) as agent:
        for _ in range(20):
            assert (await agent.send("hi")).ok
    await tracing.flush()


async def test_a_collector_that_hangs_delays_no_turn_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    with ExitStack() as stack:
        hanging = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{hanging.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        tracing = Tracing("host_1")
        async with AgentHarness(Telling, options=HarnessOptions(tracer=tracing.tracer)) as agent:
            assert (await agent.send("hi")).ok
            connection, _ = await asyncio.to_thread(hanging.accept)
            stack.enter_context(connection)
            for _ in range(20):
                assert (await agent.send("hi")).ok
            await tracing.flush()  # returns although nothing was answered


def test_nothing_of_opentelemetry_is_imported_unless_it_is_asked_for() -> None:
    code = (
        "import sys; from coordinator.telemetry.tracing import Tracing; import coordinator.host.agent_host; "
        "Tracing('x'); print([m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_extra_agents_work_and_the_log_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = None; "
        "import os; os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'] = 'http://collector:4318'; "
        "from coordinator.telemetry.tracing import Tracing; from podium.turn.telemetry import NO_TRACER; "
        "assert Tracing('x').tracer is NO_TRACER"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "pip install 'podium[otel]'" in done.stdout
    assert "http://collector:4318" in done.stdout


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (PARENT, PARENT),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"01-{TRACE}-{SPAN}-01-more", f"01-{TRACE}-{SPAN}-01"),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (PARENT.upper(), None),
        (PARENT + "\n", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_a_traceparent_that_is_none_is_ignored(given: object, read: str | None) -> None:
    assert read_traceparent(given) == read
