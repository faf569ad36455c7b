"""The JSON result of a message: set in the hook, recorded with the turn, read back from the journal."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import InvalidInput
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import read_agent
from podium.errors import PodiumError
from podium.history.compare import compare
from podium.history.erase import erase_messages
from podium.history.fold import fold_agent
from podium.history.retention import Retention
from podium.state import InvalidValue
from podium.state.plain_json import plain_json
from podium.testing import AgentHarness
from podium.turn.busy import BusyPolicy
from podium.turn.journal.frames import settled_frames

if TYPE_CHECKING:
    from chronicle.canonical import Json


class Answering(BaseAgent):
    """Sets each of the message's results in turn, and fails if the message says so."""

    max_attempts = 1
    kept: AgentContext[Any]

    class State(DeltaState):
        items: list[dict[str, int]] = [{"n": 1}]

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        self.kept = ctx
        for result in message.get("results", []):
            ctx.reply(result)
        if message.get("state"):
            ctx.reply(ctx.state.items)
            ctx.state.items[0]["n"] = 2
        if message.get("fail"):
            raise ValueError("as told")


async def answered(agent: AgentHarness) -> list[Json]:
    return [payload["data"] for _, payload in agent.events("message.answered")]


async def test_the_last_result_is_recorded_with_the_turn_and_sent_with_its_end() -> None:
    async with AgentHarness(Answering) as agent:
        answer = await agent.send({"results": ["first", {"sum": 6, "of": [1, 2, 3]}]})
        assert answer.data == {"sum": 6, "of": [1, 2, 3]}
        assert await answered(agent) == [{"sum": 6, "of": [1, 2, 3]}]
        ((event, _),) = agent.events("message.answered")
        ((end, _),) = agent.events("turn.committed")
        assert (event.turn, event.correlation_id, event.seq) == (1, answer.receipt.message_id, end.seq - 1)


@pytest.mark.parametrize("result", [None, False, 0, "", [], {}, 2**80, "ä\u2028", 0.5])
async def test_every_json_value_is_a_result(result: Json) -> None:
    async with AgentHarness(Answering) as agent:
        frames = (await agent.send({"results": [result]})).frames
        assert frames[-1]["data"] == result
        assert type(frames[-1]["data"]) is type(result)


async def test_without_a_result_frames_and_events_are_as_before() -> None:
    async with AgentHarness(Answering) as agent:
        answer = await agent.send({})
        assert "data" not in answer.frames[-1]
        assert answer.data is None
        assert [event.type for event, _ in agent.events()] == ["agent.created", "user_message", "turn.committed"]


async def test_a_failed_turn_has_no_result() -> None:
    async with AgentHarness(Answering) as agent:
        answer = await agent.send({"results": [1], "fail": True})
        assert not answer.ok
        assert answer.data is None
        assert await answered(agent) == []


async def test_a_result_is_a_copy() -> None:
    async with AgentHarness(Answering) as agent:
        assert (await agent.send({"state": True})).data == [{"n": 1}]
        assert agent.state["items"] == [{"n": 2}]


async def test_the_journal_gives_the_same_frame_as_the_stream() -> None:
    async with AgentHarness(Answering) as agent:
        large = "x" * 100_000  # out of line
        for result in ({"a": 1}, None, large):
            answer = await agent.send({"results": [result]})
            branch_id = agent.store.session(str(agent.address)).main_branch_id
            read = settled_frames(agent.store, agent.blobs, branch_id, answer.receipt.message_id)
            assert read[-1] == answer.frames[-1]


class Steerable(BaseAgent):
    """Answers with a result to each of its messages."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.reply("unset")
        self.started.set()
        await self.go.wait()
        ctx.reply({"to": message["text"]})

    async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.reply({"steered by": message["text"]})
        self.go.set()


async def test_a_result_in_on_steer_belongs_to_the_steering_message() -> None:
    async with AgentHarness(Steerable) as agent:
        instance = agent.activation._agent
        assert isinstance(instance, Steerable)
        first = asyncio.create_task(agent.send("one"))
        await instance.started.wait()
        second = await agent.send("two", when_busy=BusyPolicy.STEER)
        answers = [await first, second]
        assert [answer.data for answer in answers] == [{"to": "one"}, {"steered by": "two"}]
        branch_id = agent.store.session(str(agent.address)).main_branch_id
        for answer in answers:
            read = settled_frames(agent.store, agent.blobs, branch_id, answer.receipt.message_id)
            assert read[-1] == answer.frames[-1]


class Interrupted(Steerable):
    """Has no ``on_steer`` of its own, and is never told to go on."""

    agent_type = "interrupted"

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.reply(message["text"])
        self.started.set()
        if message["text"] == "one":
            await self.go.wait()


async def test_an_interrupted_message_has_no_result() -> None:
    async with AgentHarness(Interrupted) as agent:
        instance = agent.activation._agent
        assert isinstance(instance, Interrupted)
        first = asyncio.create_task(agent.send("one"))
        await instance.started.wait()
        second = await agent.send("two", when_busy=BusyPolicy.INTERRUPT)
        assert (await first).data is None
        assert second.data == "two"
        assert await answered(agent) == ["two"]


class Starting(BaseAgent):
    """Replies where no message is handled."""

    max_attempts = 1

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        ctx.reply("ready")

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None: ...


async def test_a_hook_without_a_message_has_nothing_to_reply_to() -> None:
    async with AgentHarness(Starting) as agent:
        answer = await agent.send("hi")
        assert answer.error is not None
        assert "this hook handles no message" in str(answer.error["message"])


async def test_a_result_after_the_turn_is_refused() -> None:
    async with AgentHarness(Answering) as agent:
        await agent.send({})
        instance = agent.activation._agent
        assert isinstance(instance, Answering)
        with pytest.raises(PodiumError, match="turn 1 is over"):
            instance.kept.reply("late")


async def test_results_outlive_fold_and_can_be_erased_and_compared() -> None:
    store = MemoryJournalStore()
    async with AgentHarness(Answering, store=store) as agent:
        for number in range(3):
            await agent.send({"results": [{"n": number}]})
        await agent.sleep()
        address = Address.parse(str(agent.address))
        found = compare(store, agent.blobs, (address, 1), (address, 3))
        assert [event.type for event in found.added].count("message.answered") == 2
        (last, _) = agent.events("message.answered")[-1]
        erase_messages(store, address, [last.event_id])
        branch_id = store.session(str(address)).main_branch_id
        assert last.correlation_id is not None
        assert "data" not in settled_frames(store, agent.blobs, branch_id, last.correlation_id)[-1]  # type: ignore[arg-type]
        (end, _) = agent.events("turn.committed")[-1]
        with pytest.raises(InvalidInput, match="only messages, results, artifacts and calls of models can be erased"):
            erase_messages(store, address, [end.event_id])
        fold_agent(store, agent.blobs, address, Retention(turns=1), IdSource(), agent.clock.now_ms())
        assert read_agent(store, agent.blobs, address).turn == 3


class _Loop(list[Any]):
    def __init__(self) -> None:
        super().__init__([self])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "(the whole value): JSON cannot hold nan"),
        ({"a": [1, {"b/c": float("inf")}]}, "/a/1/b~1c: JSON cannot hold inf"),
        ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, "/when: a datetime is not JSON"),
        ([b"x"], "/0: a bytes is not JSON"),
        ({"a": {1: 2}}, "/a: the key 1 is a int, and keys of JSON objects are text"),
        ({"\ud800": 1}, "text with a lone surrogate"),
        (["\udfff"], "/0: text with a lone surrogate"),
        ([10**5000], "/0: an integer of more than 4,300 digits"),
        ({"set": {1}}, "/set: a set is not JSON"),
        (_Loop(), "nested deeper than 128 levels"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_path(value: object, text: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        plain_json(value)
    assert text in str(refused.value)


def test_tuples_become_lists_and_subclasses_plain_values() -> None:
    class Text(str):
        __slots__ = ()

    found = plain_json((Text("a"), {"k": (1, -0.0)}))
    assert found == ["a", {"k": [1, 0.0]}]
    assert isinstance(found, list)
    assert type(found[0]) is str
