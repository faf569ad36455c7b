"""What an agent's author uses first: the class, its state, its hooks and its replies."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from podium.agent import AgentContext, BaseAgent, migration  # S3.1
from podium.agent.models.delta_state import DeltaState  # S3.2
from podium.testing import AgentHarness


# S3.3, S3.4, S3.5
class MyAgent(BaseAgent):
    idle_timeout_s = 10

    class State(DeltaState):
        _version = 1
        _entity_type = "my_agent"
        count: int = 0
        history: list[str] = []
        settings: dict[str, Any] = {}

    async def on_init(self, ctx: AgentContext[State]) -> None:
        hooks.append(("init", ctx.state.count, len(list(Path(ctx.workspace).iterdir()))))

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        ctx.state.history.append(message.get("text", ""))
        (Path(os.environ["AGENT_WORKSPACE"]) / "output.txt").write_text(message["text"])
        msg = await ctx.send_message("")
        await msg.stream_token("You said ")
        await msg.stream_token(message["text"], final=True)

    async def on_idle_timeout(self, ctx: AgentContext[State]) -> bool:
        hooks.append(("idle", ctx.state.count, 1))
        return ctx.state.count > 1

    async def on_shutdown(self, ctx: AgentContext[State]) -> None:
        hooks.append(("shutdown", ctx.state.count, 1))


hooks: list[tuple[str, int, int]] = []
"""Which hook ran, at which count, and how many files it found."""


@pytest.fixture(autouse=True)
def no_hooks() -> None:
    hooks.clear()


# S3.3, S3.7, S3.8, S3.9, S3.10, S3.11
async def test_an_agent_answers_and_its_state_is_kept_without_a_call() -> None:
    async with AgentHarness(MyAgent) as agent:
        assert agent.state == {"count": 0, "history": [], "settings": {}}
        answer = await agent.send({"text": "hello"})
        assert (answer.ok, answer.text) == (True, "You said hello")
        await agent.kill()
        assert agent.state == {"count": 1, "history": ["hello"], "settings": {}}
        assert (await agent.send({"text": "again"})).text == "You said again"
        assert agent.state["history"] == ["hello", "again"]


# S3.12
async def test_all_that_an_agent_says_comes_as_frames_before_the_end_of_its_turn() -> None:
    async with AgentHarness(MyAgent) as agent:
        types = [frame["type"] for frame in (await agent.send({"text": "hello"})).frames]
        assert types.index("message_start") < types.index("message_update") < types.index("message_end")
        assert types[-1] == "turn_end"


# S3.12
async def test_what_an_agent_says_is_there_while_it_goes_on() -> None:
    goes_on = asyncio.Event()

    class Slow(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            reply = await ctx.send_message("")
            await reply.stream_token("said early")
            await goes_on.wait()
            await reply.stream_token(", and late", final=True)

    async with AgentHarness(Slow) as agent:
        message_id = agent.admit({"text": "hello"}).message_id
        with agent.activation.streams.subscribe(message_id) as subscription:
            handling = asyncio.create_task(agent.receive())
            frames: list[Any] = []
            async with asyncio.timeout(30):
                async for batch in subscription.batches():
                    frames += batch
                    if "said early" in str(batch):
                        goes_on.set()
            await handling
    assert frames[-1]["type"] == "turn_end"
    assert "late" in str(frames)


# S3.7
async def test_on_message_is_required() -> None:
    with pytest.raises(NotImplementedError):
        await BaseAgent.on_message(MyAgent(), None, {})  # type: ignore[arg-type]


# S3.6
def test_defaults_that_can_change_are_never_shared() -> None:
    first, second = MyAgent.State(), MyAgent.State()
    first.history.append("mine")
    first.settings["mine"] = True
    assert (first.history, first.settings) == (["mine"], {"mine": True})
    assert first.model_dump() == {"count": 0, "history": ["mine"], "settings": {"mine": True}}
    assert (second.history, second.settings, MyAgent.State().history) == ([], {}, [])


# S3.4, S3.5
def test_version_and_entity_type_are_plain_attributes_of_the_class() -> None:
    assert (MyAgent.State._version, MyAgent.State._entity_type) == (1, "my_agent")
    assert set(MyAgent.State().model_dump()) == {"count", "history", "settings"}


# S3.13, S3.15, S3.25
async def test_hooks_run_as_an_activation_begins_idles_and_ends() -> None:
    async with AgentHarness(MyAgent) as agent:
        await agent.send({"text": "one"})
        assert await agent.advance(20)  # refused: it stays awake
        await agent.send({"text": "two"})
        assert not await agent.advance(20)
        await agent.send({"text": "three"})
        assert agent.state["count"] == 3
    assert hooks == [
        ("init", 0, 0),
        ("idle", 1, 1),
        ("idle", 2, 1),
        ("shutdown", 2, 1),
        ("init", 2, 1),  # of the next activation, which finds state and files
        ("shutdown", 3, 1),
    ]


class Closing(MyAgent):
    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1

    async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
        ctx.state.history.append(f"closed after {ctx.state.count}")
        (ctx.workspace / "closed.txt").write_text(str(ctx.state.count))


# S3.14
async def test_what_on_shutdown_leaves_at_an_orderly_end_is_kept_and_a_killed_agent_has_none() -> None:
    async with AgentHarness(Closing) as agent:
        await agent.send({})
        await agent.kill()
        assert agent.state["history"] == []
        assert list(agent.workspace.iterdir()) == [], "it did not end in order"
        await agent.send({})
        await agent.sleep()
        await agent.send({})
        assert agent.state == {"count": 3, "history": ["closed after 2"], "settings": {}}
        assert (agent.workspace / "closed.txt").read_text() == "2"


class Beating(BaseAgent):
    """Has a task of its own, which runs between messages as well."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if message["text"] == "begin":
            self.loop = asyncio.get_running_loop()
            self.heard = asyncio.Event()
            self.listening = asyncio.create_task(self.heard.wait())
            return
        assert asyncio.get_running_loop() is self.loop
        assert not self.listening.done(), "a task outlives its turn"
        asyncio.get_running_loop().call_soon(self.heard.set)
        await self.listening


# S3.24
async def test_the_hooks_of_an_agent_run_in_one_event_loop_and_let_its_tasks_run() -> None:
    async with AgentHarness(Beating) as agent:
        assert (await agent.send({"text": "begin"})).ok
        assert (await agent.send({"text": "go on"})).ok


class ConversationState(DeltaState):
    """A state that stands alone, of a later version than the class it comes from."""

    _version = 2
    _entity_type = "conversation"
    title: str = ""
    messages: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}


class Conversation(BaseAgent):
    State = ConversationState

    async def on_message(self, ctx: AgentContext[ConversationState], message: dict[str, Any]) -> None:
        match message["text"]:
            case "attribute":
                ctx.state.title = "greetings"
            case "list":
                ctx.state.messages = [{"role": "user", "parts": [{"text": "hi"}]}]
            case "append":
                ctx.state.messages.append({"role": "agent", "parts": []})
            case "remove":
                del ctx.state.messages[0]
            case "deep":
                ctx.state.settings["a"] = {"b": [{"c": None}, 1.5, True]}
            case "deeper":
                ctx.state.settings["a"]["b"][0]["c"] = "changed"


# S3.18
async def test_mixed_values_come_back_as_they_were_of_their_types() -> None:
    values = [0, 1, True, False, None, 1.5, -1e300, "", "1", "ä\U0001f600", [], {}, [[None, {"": [True]}]], {"1": 1}]
    mixed = {"settings": {"all": values}, "messages": [{"role": "user", "parts": values}, {}]}
    async with AgentHarness(Mixed) as agent:
        assert (await agent.send(mixed)).ok
        assert (await agent.send({"messages": [{"role": None}, *mixed["messages"]]})).ok
        wanted = {"messages": [{"role": None}, *mixed["messages"]], "settings": mixed["settings"]}
        for _ in range(2):
            # By their JSON: True == 1 and 1 == 1.0 in Python.
            assert json.dumps({name: agent.state[name] for name in wanted}, sort_keys=True) == json.dumps(
                wanted, sort_keys=True
            )
            await agent.kill()


class Mixed(BaseAgent):
    State = ConversationState

    async def on_message(self, ctx: AgentContext[ConversationState], message: dict[str, Any]) -> None:
        for name, value in message.items():
            setattr(ctx.state, name, value)


class FirstConversation(BaseAgent):
    """The agent before its state was of version 2."""

    class State(DeltaState):
        _version = 1
        _entity_type = "conversation"
        heading: str = ""

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.heading = message["text"]


class MigratedConversation(BaseAgent):
    class State(DeltaState):
        _version = 2
        _entity_type = "conversation"
        title: str = ""

        @migration(from_version=1)
        def _rename(document: dict[str, Any]) -> dict[str, Any]:  # noqa: N805
            return {"title": document["heading"].upper()}

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.title += message["text"]


# S3.17
async def test_a_state_of_an_earlier_version_is_migrated() -> None:
    async with AgentHarness(FirstConversation) as first:
        await first.send({"text": "greetings"})
        await first.sleep()
        async with AgentHarness(MigratedConversation, store=first.store, blobs=first.blobs) as agent:
            assert (await agent.send({"text": "!"})).ok
            assert agent.state == {"title": "GREETINGS!"}


# S3.16, S3.19, S3.20, S3.21
async def test_each_change_is_an_operation_of_json_patch() -> None:
    async with AgentHarness(Conversation) as agent:
        document = agent.state
        operations: dict[str, list[tuple[Any, Any]]] = {}
        for text in ("attribute", "list", "append", "deep", "deeper", "remove"):
            patch = (await agent.send({"text": text})).patch
            document = jsonpatch.apply_patch(document, json.loads(json.dumps(patch)))
            operations[text] = [(operation["op"], operation["path"]) for operation in patch]
            assert document == agent.state
        assert operations == {
            "attribute": [("replace", "/title")],
            "list": [("add", "/messages/0")],
            "append": [("add", "/messages/1")],
            "deep": [("add", "/settings/a")],
            "deeper": [("replace", "/settings/a/b/0/c")],
            "remove": [("remove", "/messages/0")],
        }
        assert agent.state == {
            "title": "greetings",
            "messages": [{"role": "agent", "parts": []}],
            "settings": {"a": {"b": [{"c": "changed"}, 1.5, True]}},
        }
