"""The calls of models in the record: what each model was sent, and what it answered, after all that becomes of it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import BlobMissing
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from podium.address import Address
from podium.agent import AgentContext, BaseAgent, Retention
from podium.agent.agent_types import agent_type_of
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import find_session
from podium.history.archive import Archive, export_agent
from podium.history.archive_import import import_agent
from podium.history.branching import fork_agent, rewind_agent
from podium.history.delete import delete_agent
from podium.history.erase import erase_messages
from podium.history.fold import fold_agent
from podium.history.model_calls import RecordedCall, calls_of_turn
from podium.history.reachability import reachable_blobs
from podium.models import (
    Finished,
    LLMMessage,
    ModelError,
    ProviderBlock,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDone,
    Usage,
    message_from_json,
    message_to_json,
)
from podium.testing import AgentHarness
from podium.turn.busy import BusyPolicy
from tests.unit.podium.history.notes_agent import problems

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from pathlib import Path

    from chronicle.ids import BlobId
    from chronicle.journal.port import JournalStore
    from podium.models import LLMStreamChunk
    from podium.turn.ports import ModelCall

TOOLS: list[dict[str, Any]] = [{"name": "add", "description": "Adds. " * 40, "parameters": {"type": "object"}}]
INSTRUCTIONS = "You are a careful assistant. " * 20


def padded(text: str, characters: int) -> str:
    return (text * characters)[:characters]


class Model:
    """Answers with given chunks; by default with a text that is another for each request, as long as it is told."""

    def __init__(self, *chunks: LLMStreamChunk | ModelError, characters: int = 400) -> None:
        self.chunks = chunks
        self.characters = characters
        self.asked = 0

    async def stream(
        self, messages: Sequence[LLMMessage], *, tools: Iterable[Any] | None = None, temperature: float | None = None
    ) -> AsyncIterator[LLMStreamChunk]:
        self.asked += 1
        text = padded(f"answer {self.asked} ", self.characters)
        for chunk in self.chunks or (TextDelta(text), Usage(10, 20, 5), Finished("stop", "m-1", f"resp_{self.asked}")):
            if isinstance(chunk, ModelError):
                raise chunk
            yield chunk


class Talks(BaseAgent):
    """Keeps a conversation in its state, and asks a model as often as it is told."""

    class State(DeltaState):
        _entity_type = "talks"
        said: list[dict[str, Any]] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        said = [message_from_json(each) for each in ctx.state.said]
        before = len(said)
        said.append(LLMMessage("user", message["text"]))
        for number in range(message.get("calls", 1)):
            answered = await ctx.llm("fast").answer([LLMMessage("system", INSTRUCTIONS), *said], tools=TOOLS)
            said.append(answered.message)
            if number + 1 < message.get("calls", 1):
                said.append(LLMMessage("user", padded(f"{message['text']} {number} ", 500)))
        await ctx.send_message(said[-1].text)
        if message.get("keeps", True):
            ctx.state.said += [message_to_json(each) for each in said[before:]]


class Sends(BaseAgent):
    """Asks a model what it is told, message by message."""

    class State(DeltaState):
        _entity_type = "talks"

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        for prompt in message["prompts"]:
            await ctx.llm("fast").answer([message_from_json(each) for each in prompt], tools=message.get("tools"))


def recorded(agent: AgentHarness, turn: int | None = None, address: Address | None = None) -> list[RecordedCall]:
    return calls_of_turn(agent.store, agent.blobs, address or agent.address, turn)


def assert_same(found: RecordedCall, call: ModelCall) -> None:
    """Assert that the record has what the model was sent."""
    assert None not in found.messages
    assert [message_from_json(message) for message in found.messages] == [*call.messages]
    assert found.tools == (None if call.tools is None else [*call.tools])
    assert (found.payload["profile"], found.payload.get("temperature")) == (call.profile, call.temperature)


# S2.86
async def test_the_record_has_what_a_model_was_sent_and_what_it_answered() -> None:
    thinking = ProviderBlock("anthropic", {"type": "thinking", "thinking": "hm", "signature": "c2ln"})
    call = ToolCall("call_1", "add", {"a": 1, "b": 2})
    model = Model(
        ReasoningDelta("hm"),
        thinking,
        TextDelta("I add."),
        ToolCallDone(call),
        Usage(100, 20, 80, 10, "tools_changed", 7),
        Finished("tool_calls", "m-1", "resp_1", "0.25"),
    )

    class Once(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            asked = [LLMMessage("system", "Be brief.", cache="short"), LLMMessage("user", message["text"])]
            await ctx.llm("fast", max_output_tokens=99).answer(asked, tools=TOOLS, temperature=0.25)

    async with AgentHarness(Once, models={"fast": model}) as agent:
        assert (await agent.send("What is one and two?")).ok
        (found,) = recorded(agent)
        assert_same(found, agent.models.calls[0])
        assert found.event.turn == 1
        payload = found.payload
        assert (payload["status"], payload["max_output_tokens"]) == ("done", 99)
        answer = payload["answer"]
        message = message_from_json(answer["message"])
        assert message.blocks[0] == thinking
        assert message.text == "I add."
        assert [(each.id, each.arguments) for each in message.tool_calls] == [("call_1", {"a": 1, "b": 2})]
        assert answer["reasoning"] == "hm"
        assert (answer["usage"]["cached_tokens"], answer["usage"]["cache_miss_reason"]) == (80, "tools_changed")
        assert answer["finished"] == {
            "reason": "tool_calls",
            "model": "m-1",
            "response_id": "resp_1",
            "cost": "0.25",
        }
        assert [event.type for event, _ in agent.events()][1:] == ["user_message", "model.called", "turn.committed"]


# S2.21
async def test_each_message_call_and_reply_is_an_event_of_the_turn(store: JournalStore) -> None:
    async with AgentHarness(Talks, store=store, models={"fast": Model()}) as agent:
        assert (await agent.send({"text": "Hello, who are you?", "calls": 2})).ok
        types = [event.type for event, _ in agent.events()]
        assert types[1:] == ["user_message", "model.called", "model.called", "assistant_message", "turn.committed"]
        for found, call in zip(recorded(agent, 1), agent.models.calls, strict=True):
            assert_same(found, call)
        assert not problems(agent.store, agent.blobs)


async def test_a_text_that_another_event_has_is_not_repeated() -> None:
    async with AgentHarness(Talks, models={"fast": Model()}) as agent:
        text = "What is the answer to all of it?"
        assert (await agent.send(text)).ok
        ((event, found),) = agent.events("model.called")
        payload: Any = found
        assert text.encode() not in (event.payload or b"")
        assert b"answer 1" not in (event.payload or b"")
        assert payload["prompt"][1]["content"]["at"] == ["message", "text"]
        (call,) = recorded(agent)
        assert message_from_json(call.payload["answer"]["message"]).text.startswith("answer 1")


async def test_a_long_conversation_is_stored_once() -> None:
    async with AgentHarness(Talks, models={"fast": Model()}) as agent:
        for turn in range(8):
            assert (await agent.send({"text": padded(f"{turn} ", 500), "calls": 20})).ok
            await agent.sleep()  # the next activation goes on where this one has ended
        new = 160 * (500 + 400)
        calls = sum(len(event.payload or b"") for event, _ in agent.events("model.called"))
        assert calls <= 1.5 * new, f"{calls / new:.2f} times the new bytes"
        assert len(agent.models.calls[-1].messages) == 320
        assert_same(recorded(agent)[-1], agent.models.calls[-1])


PIECES = [
    LLMMessage("system", INSTRUCTIONS),
    LLMMessage("user", "yes", cache="short"),
    LLMMessage("user", "yes"),
    LLMMessage("user", "a longer text that is sent again and again"),
    LLMMessage("assistant", "", (ToolCall("c1", "add", {"a": 1}),)),
    LLMMessage("tool", "3", tool_call_id="c1"),
    LLMMessage("tool", "(left out)", tool_call_id="c1"),
    LLMMessage("assistant", (ProviderBlock("p", {"type": "thinking", "n": 1.5}),)),
]
PROMPTS = st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12), min_size=1, max_size=3)
THEN = st.sampled_from(["go on", "sleep", "kill", "fold", "rewind"])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(PROMPTS, THEN), min_size=1, max_size=8))
def test_what_is_read_is_what_was_sent_whatever_was_sent_before(
    turns: list[tuple[list[list[LLMMessage]], str]],
) -> None:
    async def run() -> None:
        store, model = MemoryJournalStore(), Model(characters=20)
        agent = AgentHarness(Sends, "0", store=store, models={"fast": model})
        async with agent:
            checked: list[tuple[int, list[ModelCall]]] = []
            for number, (prompts, then) in enumerate(turns):
                before = len(agent.models.calls)
                body = {"prompts": [[message_to_json(each) for each in prompt] for prompt in prompts]}
                assert (await agent.send(body)).ok
                checked.append((agent.activation.turn, agent.models.calls[before:]))
                for turn, calls in checked:
                    for found, call in zip(recorded(agent, turn), calls, strict=True):
                        assert_same(found, call)
                now_ms = agent.clock.now_ms()
                if then in {"sleep", "fold", "rewind"}:
                    await agent.sleep()
                if then == "kill":
                    await agent.kill()
                if then == "fold":
                    fold_agent(store, agent.blobs, agent.address, None, IdSource(), now_ms)
                    checked.clear()
                if then == "rewind":
                    rewind_agent(
                        store,
                        agent.blobs,
                        agent.address,
                        checked[0][0] if checked else number,
                        None,
                        IdSource(),
                        now_ms,
                    )
                assert not problems(store, agent.blobs)

    asyncio.run(run())


def everything_collected(store: JournalStore, url: str) -> None:
    """Collect what is not reached, at once, and rewrite the packs that have some of it."""
    blobs = PackBlobStore(url)
    collect(url, lambda: reachable_blobs(store, blobs, []), GcRules(alone=True, keep_from=1.0))
    blobs.close()


class Large(BaseAgent):
    """Asks a model large questions, by their numbers."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await ctx.llm("fast").answer([question(number) for number in message["numbers"]])


def question(number: int) -> LLMMessage:
    return LLMMessage("user", padded(f"{number} ", 100_000))


async def test_a_collection_keeps_large_prompts_until_their_events_are_gone(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    url = f"file://{tmp_path / 'blobs'}"
    store, address = MemoryJournalStore(), Address(agent_type_of(Large), "a")

    async def asked(*numbers: int) -> None:
        blobs = PackBlobStore(url)
        async with AgentHarness(Large, "a", store=store, blobs=blobs, models={"fast": Model()}) as agent:
            assert (await agent.send({"numbers": numbers})).ok
        blobs.close()

    def read(turn: int | None = None) -> list[list[LLMMessage]]:
        blobs = PackBlobStore(url)
        found = calls_of_turn(store, blobs, address, turn)
        blobs.close()
        return [[message_from_json(message) for message in call.messages] for call in found]

    await asked(0)
    await asked(0, 1)
    everything_collected(store, url)
    assert read(1) == [[question(0)]]
    assert read(2) == [[question(0), question(1)]]

    blobs = PackBlobStore(url)
    fold_agent(store, blobs, address, None, IdSource(), 1_700_000_000_000)
    blobs.close()
    everything_collected(store, url)
    await asked(0, 2)  # it names nothing that was dropped
    everything_collected(store, url)
    assert read() == [[question(0), question(2)]]

    (called,) = store.events(find_session(store, address).main_branch_id, types=("model.called",))
    assert called.payload_ref is not None
    erase_messages(store, address, [called.event_id])
    everything_collected(store, url)
    assert read() == []
    blobs = PackBlobStore(url)
    assert blobs.missing([called.payload_ref]) == {called.payload_ref}
    assert not problems(store, blobs)
    blobs.close()


async def test_what_is_erased_is_missing_in_the_calls_that_had_it() -> None:
    async with AgentHarness(Talks, models={"fast": Model()}) as agent:
        for text in ("my secret is a long one", "and the weather, how is it today?"):
            assert (await agent.send(text)).ok
        assert [call.messages[1] is None for call in recorded(agent, 2)] == [False]
        secret, *_ = [event for event, _ in agent.events("user_message")]
        erase_messages(agent.store, agent.address, [secret.event_id])
        for turn in (1, 2):
            (call,) = recorded(agent, turn)
            assert [message is None for message in call.messages][:2] == [False, True]
        assert not any(b"secret" in (event.payload or b"") for event, _ in agent.events("model.called"))
        assert not problems(agent.store, agent.blobs)


async def test_a_fork_reads_what_it_inherits_and_keeps_its_own_when_it_is_detached(store: JournalStore) -> None:
    model, fork = Model(), Address("talks", "b")
    async with AgentHarness(Talks, "a", store=store, models={"fast": model}) as agent:
        assert (await agent.send("The first message of the parent")).ok
        await agent.sleep()
        now_ms = agent.clock.now_ms()
        fork_agent(store, agent.address, 1, fork, IdSource(), now_ms)
        async with AgentHarness(Talks, "b", store=store, blobs=agent.blobs, models={"fast": model}) as child:
            assert (await child.send("The second message, of the fork")).ok
            assert_same(recorded(child, 1)[0], agent.models.calls[0])
            assert_same(recorded(child, 2)[0], child.models.calls[0])
            assert len(recorded(child, 2)[0].messages) == 4
        delete_agent(store, agent.blobs, agent.address, IdSource(), now_ms, detach=True)
        assert recorded(child) == []  # detached: its history begins anew
        async with AgentHarness(Talks, "b", store=store, blobs=agent.blobs, models={"fast": model}) as child:
            assert (await child.send("The third message, of the fork")).ok
            assert_same(recorded(child)[0], child.models.calls[0])
        assert not problems(store, agent.blobs)


async def test_an_archive_has_the_calls(tmp_path: Path) -> None:
    async with AgentHarness(Talks, models={"fast": Model()}) as agent:
        assert (await agent.send({"text": padded("long ", 70_000), "calls": 2})).ok
        await agent.sleep()
        export_agent(agent.store, agent.blobs, agent.address, tmp_path / "a.podium")
        store, blobs = MemoryJournalStore(), MemoryBlobStore()
        with Archive(tmp_path / "a.podium") as archive:
            import_agent(store, blobs, archive, agent.address, IdSource(), agent.clock.now_ms())
        for found, call in zip(calls_of_turn(store, blobs, agent.address, 1), agent.models.calls, strict=True):
            assert_same(found, call)


async def test_a_call_of_an_attempt_that_failed_is_recorded_once_by_the_next() -> None:
    class Fails(BaseAgent):
        attempts = 0

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            Fails.attempts += 1
            said = [LLMMessage("user", message["text"])]
            said.append((await ctx.llm("fast").answer(said)).message)
            if Fails.attempts == 1:
                raise ConnectionError("after the first call")
            await ctx.llm("fast").answer([*said, LLMMessage("user", "and then")])

    async with AgentHarness(Fails, models={"fast": Model()}) as agent:
        assert (await agent.send("What was it that I asked?")).ok
        assert Fails.attempts == 2
        assert len(agent.models.calls) == 2
        for found, call in zip(recorded(agent, 1), agent.models.calls, strict=True):
            assert_same(found, call)


async def test_calls_are_whole_behind_each_mark_of_a_retention(store: JournalStore) -> None:
    class Forgets(Talks):
        retention = Retention(turns=4)

    async with AgentHarness(Forgets, store=store, models={"fast": Model(characters=20)}) as agent:
        for number in range(12):
            assert (await agent.send(f"message number {number} of twelve")).ok
            await agent.sleep()
        assert {event.type for event, _ in agent.events()} >= {"agent.snapshot", "model.called"}
        first = min(event.turn for event, _ in agent.events("model.called"))
        assert first > 1
        for turn in range(first, 13):
            assert_same(recorded(agent, turn)[0], agent.models.calls[turn - 1])


async def test_a_call_that_failed_or_was_left_is_in_the_record() -> None:
    class Tries(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            with pytest.raises(ModelError):
                await ctx.llm("broken").answer([LLMMessage("user", "first")])
            async with aclosing(ctx.llm("fast").stream([LLMMessage("user", "second")])) as chunks:
                await anext(chunks)

    broken = Model(TextDelta("I"), ModelError("cut", "unavailable", provider="p"))
    async with AgentHarness(Tries, models={"broken": broken, "fast": Model()}) as agent:
        assert (await agent.send("go")).ok
        failed, left = recorded(agent)
        assert (failed.payload["status"], failed.payload["error"]["kind"]) == ("failed", "unavailable")
        assert failed.payload["answer"]["message"]["content"] == "I"
        assert (left.payload["status"], left.payload["answer"]["finished"]) == ("left", None)
        assert [message_from_json(message) for message in left.messages if message] == [LLMMessage("user", "second")]


@pytest.mark.parametrize("policy", [BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK])
async def test_the_calls_of_a_cancelled_turn_are_in_the_record(policy: BusyPolicy) -> None:
    class Waits(BaseAgent):
        asked: ClassVar[asyncio.Event]

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            if message["text"].startswith("wait"):
                await ctx.llm("fast").answer([LLMMessage("user", message["text"])])
                self.asked.set()
                await asyncio.Event().wait()

    Waits.asked = asyncio.Event()
    async with AgentHarness(Waits, models={"fast": Model()}) as agent, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(agent.send("wait for the secret"), name="first")
        async with asyncio.timeout(60):
            await Waits.asked.wait()
        assert (await agent.send("now", when_busy=policy)).ok
        assert not (await first).ok
        (found,) = recorded(agent)
        assert [message_from_json(message) for message in found.messages if message] == [
            LLMMessage("user", "wait for the secret")
        ]
        assert found.event.turn == 0
        for message, _ in agent.events("user_message"):
            erase_messages(agent.store, agent.address, [message.event_id])
        erased = policy is not BusyPolicy.ROLLBACK  # then the record has no message, so its text is in the call
        assert [message is None for message in recorded(agent)[0].messages] == [erased]


async def test_a_call_of_a_message_that_steered_a_cancelled_turn_is_in_the_record() -> None:
    class Steered(BaseAgent):
        waits: ClassVar[asyncio.Event]
        steered: ClassVar[asyncio.Event]
        called: ClassVar[asyncio.Event]

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            if message["text"] == "wait":
                self.waits.set()
                await self.steered.wait()
            await ctx.llm("fast").answer([LLMMessage("system", INSTRUCTIONS), LLMMessage("user", message["text"])])
            if message["text"] == "wait":
                self.called.set()
                await asyncio.Event().wait()

        async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await ctx.llm("fast").answer([LLMMessage("system", INSTRUCTIONS), LLMMessage("user", "steered")])
            self.steered.set()

    Steered.waits, Steered.steered, Steered.called = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with AgentHarness(Steered, models={"fast": Model()}) as agent, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(agent.send("wait"), name="first")
        async with asyncio.timeout(60):
            await Steered.waits.wait()
            second = tasks.create_task(agent.send("aside", when_busy=BusyPolicy.STEER), name="second")
            await Steered.called.wait()
            assert (await agent.send("now", when_busy=BusyPolicy.INTERRUPT)).ok
        assert not (await first).ok
        assert (await second).ok
        for found, call in zip(recorded(agent, 0), agent.models.calls[:2], strict=True):
            assert_same(found, call)
        assert_same(recorded(agent)[-1], agent.models.calls[-1])


class Loses(MemoryBlobStore):
    """Has lost a blob."""

    lost: BlobId | None = None

    def get(self, blob_id: BlobId) -> bytes:
        if blob_id == self.lost:
            raise BlobMissing(f"blob {blob_id} is not in the store")
        return super().get(blob_id)


async def test_a_damaged_call_does_not_stop_the_next_ones(caplog: pytest.LogCaptureFixture) -> None:
    blobs = Loses()
    async with AgentHarness(Large, blobs=blobs, models={"fast": Model()}) as agent:
        assert (await agent.send({"numbers": [0]})).ok
        ((called, _),) = agent.events("model.called")
        blobs.lost = called.payload_ref
        assert blobs.lost is not None
        for numbers in ([0, 1], [0, 1, 2]):
            await agent.sleep()  # and the next activation reads the calls again
            assert (await agent.send({"numbers": numbers})).ok
            (found,) = recorded(agent)
            assert_same(found, agent.models.calls[-1])
    assert "recorded_calls_damaged" in caplog.text


async def test_what_an_agent_changes_after_a_call_is_not_changed_in_the_record() -> None:
    class Changes(BaseAgent):
        attempts = 0

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            Changes.attempts += 1
            async with aclosing(ctx.llm("tools").stream([LLMMessage("user", "read it")])) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, ToolCallDone):
                        assert chunk.call.arguments.pop("path") == "a.txt"  # in each attempt
            if Changes.attempts == 1:
                raise ConnectionError("after the call")
            calls: list[ToolCall] = []
            said = LLMMessage("assistant", "I look.", calls)
            await ctx.llm("fast").answer([said])
            calls.append(ToolCall("call_2", "read", {}))
            await ctx.llm("fast").answer([said])

    tools = Model(ToolCallDone(ToolCall("call_1", "read", {"path": "a.txt"})), Finished("tool_calls", "m"))
    async with AgentHarness(Changes, models={"tools": tools, "fast": Model()}) as agent:
        assert (await agent.send("go")).ok
        assert (Changes.attempts, tools.asked) == (2, 1)
        first, _, grown = recorded(agent)
        answer: Any = first.payload["answer"]["message"]
        assert answer["tool_calls"][0]["arguments"] == {"path": "a.txt"}
        assert grown.messages[0] is not None
        assert len(message_from_json(grown.messages[0]).tool_calls) == 1


async def test_an_error_that_is_no_unicode_is_recorded_escaped() -> None:
    class Tries(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            with pytest.raises(ModelError):
                await ctx.llm("broken").answer([LLMMessage("user", "first")])

    async with AgentHarness(Tries, models={"broken": Model(ModelError("no file \udcff", "bad_request"))}) as agent:
        assert (await agent.send("go")).ok
        (failed,) = recorded(agent)
        assert failed.payload["error"] == {"message": "no file \\udcff", "kind": "bad_request"}


async def test_without_a_turn_erased_calls_are_passed_over() -> None:
    async with AgentHarness(Sends, models={"fast": Model()}) as agent:
        for text in ("the first question", "the second question"):
            assert (await agent.send({"prompts": [[{"role": "user", "content": text}]]})).ok
        erase_messages(agent.store, agent.address, [agent.events("model.called")[-1][0].event_id])
        (found,) = recorded(agent)
        assert found.event.turn == 1


async def test_a_collection_keeps_a_large_call_without_reading_it() -> None:
    blobs = Loses()
    async with AgentHarness(Large, blobs=blobs, models={"fast": Model()}) as agent:
        assert (await agent.send({"numbers": [0]})).ok
        ((called, _),) = agent.events("model.called")
        blobs.lost = called.payload_ref
        assert blobs.lost in reachable_blobs(agent.store, blobs, [])
