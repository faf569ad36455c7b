"""Calls of tools in turns: steps, what clients and transcripts are told, and replays (S1.41, S4.16)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from podium.agent import BaseAgent, DeltaState
from podium.events import TOOL_RESULT
from podium.testing import AgentHarness
from podium.tools import ToolCall, ToolResult, ToolRouter, tool
from podium.turn.journal.frames import settled_frames


class Noting(DeltaState):
    notes: list[str] = []


def _agent(router: ToolRouter, *calls: ToolCall, fails: int = 0) -> type[BaseAgent]:
    """Return an agent that calls tools, whose first attempts fail behind the calls."""
    left = [fails]

    class Acting(BaseAgent):
        State = Noting
        results: list[list[ToolResult]] = []

        async def on_message(self, ctx: Any, message: Any) -> None:
            self.results.append(await ctx.tools(router).dispatch_all(calls))
            if left[0]:
                left[0] -= 1
                raise OSError("the attempt ends here")

    Acting.results = []
    return Acting


def _tool_frames(frames: Any) -> list[dict[str, Any]]:
    kept = [frame for frame in frames if frame["type"].startswith("tool_execution_")]
    return [{key: value for key, value in frame.items() if key != "message_id"} for frame in kept]


async def test_s4_16_a_call_is_told_in_the_stream_and_in_the_transcript() -> None:
    router = ToolRouter()

    @tool(router=router, mode="read")
    async def look(place: str) -> dict[str, str]:
        return {"found": place}

    call = ToolCall("call_1", "look", {"place": "here"})
    async with AgentHarness(_agent(router, call)) as agent:
        answer = await agent.send("go")
        named = {"tool_call_id": "call_1", "tool_name": "look"}
        told = [
            {"type": "tool_execution_start", **named, "args": {"place": "here"}},
            {"type": "tool_execution_end", **named, "result": {"found": "here"}, "is_error": False},
        ]
        assert _tool_frames(answer.frames) == told
        ((event, payload),) = agent.events(TOOL_RESULT)
        assert isinstance(payload.pop("duration_ms"), int)
        assert payload == {
            "call_id": "call_1",
            "name": "look",
            "arguments": {"place": "here"},
            "success": True,
            "output": '{"found":"here"}',
            "value": {"found": "here"},
        }
        read = settled_frames(agent.store, agent.blobs, event.branch_id, answer.receipt.message_id)
        assert _tool_frames(read) == told, "a late reader gets the same"


async def test_s4_16_updates_of_a_call_are_told_as_it_yields_them() -> None:
    router, told = ToolRouter(), list[Any]()

    @tool(router=router)
    async def count(ctx: Any, to: int) -> AsyncGenerator[list[int], None]:
        for number in range(1, to + 1):
            yield list(range(number))
            told.append(_tool_frames(agent.activation.streams.so_far(ctx.message_id))[-1])

    async with AgentHarness(_agent(router, ToolCall("c", "count", {"to": 3}))) as agent:
        frames = _tool_frames((await agent.send("go")).frames)
        update = {"type": "tool_execution_update", "tool_call_id": "c", "tool_name": "count"}
        assert told == [{**update, "partial_result": list(range(number))} for number in (1, 2, 3)]
        assert frames[-1]["result"] == [0, 1, 2]


async def test_a_call_is_a_step_that_a_further_attempt_does_not_make_again() -> None:
    router, calls = ToolRouter(), list[str]()

    @tool(router=router)
    async def note(ctx: Any, text: str) -> str:
        calls.append(ctx.idempotency_key("note"))
        ctx.state.notes.append(text)
        (ctx.workspace / "note.txt").write_text(text)
        return text

    @tool(router=router)
    async def fails() -> None:
        calls.append("fails")
        raise ValueError("no")

    asked = ToolCall("c1", "note", {"text": "a"}), ToolCall("c2", "fails"), ToolCall("c3", "note", {"text": "b"})
    acting = _agent(router, *asked, fails=1)
    async with AgentHarness(acting) as agent:
        answer = await agent.send("go")
        assert answer.ok
        assert agent.state["notes"] == ["a", "b"]
        assert (agent.workspace / "note.txt").read_text() == "b"
        first, second = acting.results  # type: ignore[attr-defined]
        assert first == second
        keys = [f"{agent.address.name}:{answer.receipt.message_id}:tool note#{number}:note" for number in (1, 2)]
        assert calls == [keys[0], "fails", keys[1]]
        assert [payload["call_id"] for _, payload in agent.events(TOOL_RESULT)] == ["c1", "c2", "c3"]
        (committed,) = agent.events("turn.committed")
        steps: Any = committed[1]["steps"]
        assert [step["key"] for step in steps["steps"]] == ["tool note#1", "tool fails#1", "tool note#2"]


async def test_a_call_that_ended_before_a_kill_is_not_made_again() -> None:
    router, calls, reached = ToolRouter(), list[str](), asyncio.Event()

    @tool(router=router)
    async def pay() -> str:
        calls.append("pay")
        return "paid"

    @tool(router=router)
    async def hangs() -> str:
        calls.append("hangs")
        if len(calls) == 2:
            reached.set()
            await asyncio.Event().wait()
        return "done"

    async with (
        AgentHarness(_agent(router, ToolCall("c1", "pay"), ToolCall("c2", "hangs"))) as agent,
        asyncio.TaskGroup() as group,
    ):
        sending = group.create_task(agent.send("go"))
        await reached.wait()
        sending.cancel()
        await agent.kill()
        await agent.receive()
        assert calls == ["pay", "hangs", "hangs"]
        assert [payload["output"] for _, payload in agent.events(TOOL_RESULT)] == ["paid", "done"]


async def test_a_tool_that_begins_steps_is_code_of_the_hook() -> None:
    router, asked, keys = ToolRouter(), list[str](), list[str]()

    async def answer(question: str) -> str:
        asked.append(question)
        return f"{question}!"

    @tool(router=router, steps=True)
    async def research(ctx: Any, topic: str) -> str:
        keys.append(ctx.idempotency_key("x"))
        first: str = await ctx.step("ask", answer, topic)
        return str(await ctx.step("ask", answer, first))

    calls = ToolCall("c1", "research", {"topic": "tea"}), ToolCall("c2", "research", {"topic": "milk"})
    acting = _agent(router, *calls, fails=1)
    async with AgentHarness(acting) as agent:
        assert (await agent.send("go")).ok
        assert asked == ["tea", "tea!", "milk", "milk!"]
        assert [[each.message for each in results] for results in acting.results] == [["tea!!", "milk!!"]] * 2  # type: ignore[attr-defined]
        assert len(set(keys)) == 2, "each call has its own, the same in each attempt"


async def test_reads_overlap_and_cannot_change_the_state() -> None:
    router, both = ToolRouter(), asyncio.Barrier(2)

    @tool(router=router, mode="read")
    async def look(ctx: Any, name: str) -> int:
        await both.wait()
        return len(ctx.state.notes)

    @tool(router=router, mode="read")
    async def writes(ctx: Any) -> None:
        ctx.state.notes.append("no")

    @tool(router=router, mode="read")
    def writes_in_a_thread(ctx: Any) -> None:
        ctx.state.notes.append("no")

    calls = [ToolCall("a", "look", {"name": "a"}), ToolCall("b", "look", {"name": "b"})]
    refused = [ToolCall("c", "writes"), ToolCall("d", "writes_in_a_thread")]
    acting = _agent(router, *calls, *refused, fails=1)
    async with AgentHarness(acting) as agent:
        assert (await agent.send("go")).ok
        assert agent.state["notes"] == []
        one, two, three, four = acting.results[0]  # type: ignore[attr-defined]
        assert one.success
        assert two.success
        for each in (three, four):
            assert "has the mode read, and changes the state" in (each.error or "")


async def test_a_large_result_is_an_artifact_with_the_same_id_in_each_attempt() -> None:
    router = ToolRouter()

    @tool(router=router, mode="read")
    async def load() -> str:
        return "é" * 50_000

    acting = _agent(router, ToolCall("c", "load"), fails=1)
    async with AgentHarness(acting) as agent:
        assert (await agent.send("go")).ok
        (one,), (two,) = acting.results  # type: ignore[attr-defined]
        assert one == two
        (artifact,) = agent.artifacts()
        assert agent.artifact(artifact.artifact_id).decode() == "é" * 50_000
        kept = {"artifact_id": artifact.artifact_id, "name": "load.txt", "media_type": "text/plain", "size": 100_000}
        assert one.data["value"] == kept
        assert artifact.artifact_id in one.message
        assert len(one.message) < 5_000


async def test_a_refused_call_is_told_too_and_is_no_step() -> None:
    router = ToolRouter()

    @tool(router=router, mode="destructive")
    async def erase() -> None: ...

    async with AgentHarness(_agent(router, ToolCall("c1", "erase"), ToolCall("c2", "nothing"))) as agent:
        answer = await agent.send("go")
        assert [frame["is_error"] for frame in _tool_frames(answer.frames)[1::2]] == [True, True]
        assert [payload["success"] for _, payload in agent.events(TOOL_RESULT)] == [False, False]
        assert "steps" not in agent.events("turn.committed")[0][1]


async def test_a_late_subscriber_gets_the_latest_update_of_a_running_call() -> None:
    from podium.turn.stream import Backlog
    from podium.turn.tool_frames import end_frame, start_frame, update_frame

    backlog = Backlog()
    backlog.add(start_frame("a", "look", {}))
    backlog.add(start_frame("b", "look", {}))
    for number in range(1000):
        backlog.add(update_frame("a", "look", number))
        backlog.add(update_frame("b", "look", -number))
    assert [frame.get("partial_result") for frame in backlog.frames()] == [None, None, 999, -999]
    backlog.add(end_frame({"call_id": "a", "name": "look", "output": "x", "success": True}))
    assert [frame.get("partial_result") for frame in backlog.frames()] == [None, None, -999, None]


async def test_a_call_is_recorded_as_it_was_when_it_ended() -> None:
    router = ToolRouter()

    @tool(router=router)
    async def look() -> dict[str, list[int]]:
        return {"found": [1]}

    class Changing(BaseAgent):
        async def on_message(self, ctx: Any, message: Any) -> None:
            call = ToolCall("c", "look", {})
            result: Any = await ctx.tools(router).dispatch(call)
            result.data["value"]["found"].append(2)
            call.arguments["later"] = True

    async with AgentHarness(Changing) as agent:
        start, end = _tool_frames((await agent.send("go")).frames)
        assert (start["args"], end["result"]) == ({}, {"found": [1]})
        ((_, payload),) = agent.events(TOOL_RESULT)
        assert (payload["arguments"], payload["value"]) == ({}, {"found": [1]})


async def test_text_with_half_of_a_surrogate_pair_loses_no_call() -> None:
    router, done = ToolRouter(), list[str]()

    @tool(router=router)
    async def fails() -> None:
        done.append("it took effect")
        raise ValueError("no \ud800")

    calls = ToolCall("a", "fails"), ToolCall("b", "\ud800"), ToolCall("c", "fails", {"\ud800": ["\ud800"]})
    async with AgentHarness(_agent(router, *calls)) as agent:
        answer = await agent.send("go")
        assert answer.ok
        assert done == ["it took effect"]
        first, second, third = (payload for _, payload in agent.events(TOOL_RESULT))
        assert first["output"] == "Error: ValueError: no \\ud800"
        assert second["name"] == "\\ud800"
        assert third["arguments"] == {"\\ud800": ["\\ud800"]}
        assert "\ud800" not in str(answer.frames)
