"""The atomic turn, through the real activation on memory stores and a plain directory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import StaleEpoch
from chronicle.journal.records import MessageStatus
from podium.agent import AgentContext, BaseAgent
from podium.agent.context import Reply
from podium.agent.models.delta_state import DeltaState
from podium.errors import Evicted, PodiumError
from podium.testing import AgentHarness
from podium.turn.activation import Step
from podium.turn.journal.frames import retry_frames


class Counter(BaseAgent):
    """Counts, writes a file, and does what the message says."""

    class State(DeltaState):
        _version = 1
        _entity_type = "counter"
        count: int = 0
        history: list[str] = []

    leaked: Reply | None = None

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        text = message["text"]
        ctx.state.count += 1
        ctx.state.history.append(text)
        (ctx.workspace / "out.txt").write_text(f"{ctx.state.count}: {text}\n")
        reply = await ctx.send_message("You ")
        await reply.stream_token("said ")
        await reply.stream_token(text, final=text != "open end")
        if text == "raise":
            raise ValueError("as told")
        if text == "exit":
            raise SystemExit(3)
        if text == "hang":
            await asyncio.Event().wait()
        if text == "nan":
            ctx.state.history = [float("nan")]
        if text == "leak":
            type(self).leaked = await ctx.send_message("")


async def test_a_turn_commits_state_files_and_transcript_together() -> None:
    async with AgentHarness(Counter) as agent:
        answer = await agent.send("hi")
        assert answer.ok
        assert answer.text == "You said hi"
        assert answer.patch == [
            {"op": "replace", "path": "/count", "value": 1},
            {"op": "add", "path": "/history/0", "value": "hi"},
        ]
        assert agent.state == {"count": 1, "history": ["hi"]}
        assert [event.type for event, _ in agent.events()] == [
            "agent.created",
            "user_message",
            "assistant_message",
            "turn.committed",
        ]
        ((event, committed),) = agent.events("turn.committed")
        assert event.turn == 1
        assert committed["consumed"] == [answer.receipt.message_id]
        assert committed["tree_id"] is not None
        assert agent.store.message(answer.receipt.message_id).status is MessageStatus.CONSUMED


async def test_frames_come_in_order_and_deltas_make_the_text() -> None:
    async with AgentHarness(Counter) as agent:
        answer = await agent.send("hi")
        assert [frame["type"] for frame in answer.frames] == [
            "turn_start",
            "message_start",
            "message_update",
            "message_end",
            "turn_end",
        ]
        assert {frame["message_id"] for frame in answer.frames} == {answer.receipt.message_id}


async def test_an_unfinished_reply_is_finished_with_its_turn() -> None:
    async with AgentHarness(Counter) as agent:
        assert (await agent.send("open end")).text == "You said open end"


@pytest.mark.parametrize(
    ("text", "error_type", "attempts"),
    [("raise", "ValueError", 3), ("exit", "SystemExit", 3), ("nan", "InvalidValue", 1)],
)
async def test_a_failing_message_is_tried_three_times_unless_the_error_is_permanent_and_parked(
    text: str, error_type: str, attempts: int
) -> None:
    async with AgentHarness(Counter) as agent:
        await agent.send("before")
        answer = await agent.send(text)
        assert not answer.ok
        assert answer.error is not None
        assert answer.frames[-1]["parked"] is True
        assert [frame["type"] for frame in answer.frames].count("turn_retry") == attempts - 1
        assert agent.state == {"count": 1, "history": ["before"]}
        assert (agent.workspace / "out.txt").read_text() == "1: before\n"
        assert agent.store.message(answer.receipt.message_id).status is MessageStatus.PARKED
        failures = [payload for _, payload in agent.events("turn.failed")]
        assert [failure["attempt"] for failure in failures] == list(range(1, attempts + 1))
        assert [failure["parked"] for failure in failures] == [False] * (attempts - 1) + [True]
        after = await agent.send("after")
        assert after.ok
        assert agent.state == {"count": 2, "history": ["before", "after"]}


async def test_the_tree_of_a_failed_try_is_kept_and_named() -> None:
    from chronicle.workspace.content import content
    from chronicle.workspace.trees import tree

    async with AgentHarness(Counter) as agent:
        await agent.send("raise")
        _, failure = agent.events("turn.failed")[0]
        entry = tree.entry_at(agent.blobs, failure["tree_id"], b"out.txt")  # type: ignore[arg-type]
        assert entry is not None
        assert entry.content is not None
        assert content.read(agent.blobs, entry.content) == b"1: raise\n"
        assert not (agent.workspace / "out.txt").exists()


async def test_a_turn_that_takes_too_long_is_rolled_back() -> None:
    class Slow(Counter):
        turn_timeout_s = 0.01
        max_attempts = 1

    async with AgentHarness(Slow) as agent:
        answer = await agent.send("hang")
        assert answer.error is not None
        assert answer.error["type"] == "TurnTimeout"
        assert agent.state == {"count": 0, "history": []}


async def test_a_running_message_can_be_taken_back() -> None:
    async with AgentHarness(Counter) as agent:
        receipt = agent.admit("hang")
        handling = asyncio.ensure_future(agent.activation.handle_next())
        while not (agent.workspace / "out.txt").exists():
            await asyncio.sleep(0)
        await agent.activation.cancel(receipt.message_id)
        await handling
        assert agent.store.message(receipt.message_id).status is MessageStatus.CANCELLED
        assert not (agent.workspace / "out.txt").exists()
        assert [event.type for event, _ in agent.events()][-1] == "turn.cancelled"
        assert (await agent.send("hi")).ok


async def test_an_interrupted_turn_is_no_attempt_of_its_message() -> None:
    async with AgentHarness(Counter) as agent:
        receipt = agent.admit("hang")
        handling = asyncio.ensure_future(agent.activation.handle_next())
        while not (agent.workspace / "out.txt").exists():
            await asyncio.sleep(0)
        agent.activation.interrupt()
        assert await handling is Step.RETRY
        assert agent.activation.retry_delay_s == 0
        message = agent.store.message(receipt.message_id)
        assert (message.status, message.attempts) == (MessageStatus.PENDING, 0)
        assert not (agent.workspace / "out.txt").exists()
        _, failure = agent.events("turn.failed")[-1]
        assert failure["message_id"] is None
        await agent.activation.cancel(receipt.message_id)
        assert (await agent.send("hi")).ok


async def test_a_waiting_message_that_was_taken_back_is_never_handled() -> None:
    async with AgentHarness(Counter) as agent:
        first, second = agent.admit("first"), agent.admit("second")
        await agent.activation.cancel(second.message_id)
        await agent.send("third")
        assert agent.state["history"] == ["first", "third"]
        assert agent.store.message(first.message_id).status is MessageStatus.CONSUMED
        assert agent.store.message(second.message_id).status is MessageStatus.CANCELLED


async def test_messages_are_handled_in_order_across_sleep() -> None:
    async with AgentHarness(Counter) as agent:
        for text in ("one", "two", "three"):
            agent.admit(text)
        await agent.sleep()
        assert not agent.awake
        await agent.send("four")
        assert agent.state["history"] == ["one", "two", "three", "four"]


async def test_a_repeat_of_an_idempotency_key_is_answered_from_the_journal() -> None:
    async with AgentHarness(Counter) as agent:
        first = await agent.send("hi", idempotency_key="k")
        again = await agent.send("hi", idempotency_key="k")
        assert again.receipt.message_id == first.receipt.message_id
        assert again.ok
        assert again.text == first.text
        assert again.patch == first.patch
        assert agent.state["count"] == 1


async def test_a_kill_counts_one_attempt_and_keeps_the_tree() -> None:
    async with AgentHarness(Counter) as agent:
        await agent.send("before")
        receipt = agent.admit("hang")
        handling = asyncio.ensure_future(agent.activation.handle_next())
        while (agent.workspace / "out.txt").read_text() != "2: hang\n":
            await asyncio.sleep(0)
        handling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handling
        await agent.kill()
        assert (agent.workspace / "out.txt").read_text() == "1: before\n"
        assert agent.state["count"] == 1
        assert agent.store.message(receipt.message_id).attempts == 1
        _, failure = agent.events("turn.failed")[-1]
        assert failure["error"] == {
            "type": "HostLost",
            "message": "its process ended before the turn was committed",
        }
        assert failure["tree_id"] is not None


async def test_the_failed_tries_of_a_message_come_from_the_journal() -> None:
    async with AgentHarness(Counter) as agent:
        await agent.send("before")
        receipt = agent.admit("hang")

        def retries() -> list[tuple[int, str]]:
            message = agent.store.message(receipt.message_id)
            head = agent.store.head(agent.store.session(str(agent.address)).main_branch_id)
            frames = retry_frames(agent.store, agent.blobs, head, message)
            assert all(frame["message_id"] == receipt.message_id for frame in frames)
            return [(frame["attempt"], frame["error"]["message"]) for frame in frames]

        assert retries() == []
        await agent.kill("exit status 3")
        await agent.kill()
        ended = "its process ended before the turn was committed"
        told = [(1, f"{ended}: exit status 3"), (2, ended)]
        assert retries() == told
        await agent.kill("killed by SIGKILL (signal 9)")
        assert agent.store.message(receipt.message_id).status is MessageStatus.PARKED
        assert retries() == told, "no try follows the last one"
        agent.store.retry_message(agent.store.session(str(agent.address)).session_id, receipt.message_id)
        assert retries() == [], "it was put back with no failed try counted"
        await agent.kill("exit status 4")
        assert retries() == [(1, f"{ended}: exit status 4")]


async def test_an_older_epoch_writes_nothing() -> None:
    async with AgentHarness(Counter) as agent:
        old = agent.activation
        await agent.send("before")
        await agent.kill()
        receipt = agent.admit("hi")
        with pytest.raises(Evicted) as caught:
            await old.handle_next()
        assert isinstance(caught.value.__cause__, StaleEpoch)
        assert agent.store.message(receipt.message_id).status is MessageStatus.PENDING
        assert agent.state["count"] == 1


async def test_a_context_does_not_outlive_its_turn() -> None:
    async with AgentHarness(Counter) as agent:
        await agent.send("leak")
        assert Counter.leaked is not None
        with pytest.raises(PodiumError, match=r"finished|over"):
            await Counter.leaked.stream_token("late")


class Hooked(BaseAgent):
    """Every hook leaves a trace in state and files."""

    class State(DeltaState):
        trace: list[str] = []

    stay = False

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        ctx.state.trace.append("init")
        Path(os.environ["AGENT_WORKSPACE"]).joinpath("init.txt").write_text("here")

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.trace.append(message["text"])

    async def on_idle_timeout(self, ctx: AgentContext[Any]) -> bool:
        ctx.state.trace.append("idle")
        return not self.stay

    async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
        ctx.state.trace.append("shutdown")


async def test_hooks_run_once_each_and_are_turns_of_their_own() -> None:
    async with AgentHarness(Hooked) as agent:
        await agent.send("hi")
        assert await agent.advance(Hooked.idle_timeout_s) is False
        assert agent.state["trace"] == ["init", "hi", "idle", "shutdown"]
        causes = [payload["cause"] for _, payload in agent.events("turn.committed")]
        assert causes == ["init", "message", "idle", "shutdown"]
        await agent.send("again")
        assert agent.state["trace"] == ["init", "hi", "idle", "shutdown", "init", "again"]


async def test_an_agent_may_refuse_to_sleep() -> None:
    class Stays(Hooked):
        stay = True

    async with AgentHarness(Stays) as agent:
        await agent.send("hi")
        assert await agent.advance(Stays.idle_timeout_s) is True


async def test_files_changed_between_turns_are_committed_by_the_end() -> None:
    async with AgentHarness(Counter) as agent:
        await agent.send("hi")
        (agent.workspace / "between.txt").write_text("from a background process")
        await agent.sleep()
        await agent.send("again")
        assert (agent.workspace / "between.txt").read_text() == "from a background process"


async def test_a_raising_init_fails_the_waiting_message() -> None:
    class Broken(Counter):
        async def on_init(self, ctx: AgentContext[Any]) -> None:
            raise RuntimeError("no database")

    async with AgentHarness(Broken) as agent:
        answer = await agent.send("hi")
        assert answer.error == {"type": "RuntimeError", "message": "no database"}
        assert answer.frames[-1]["parked"] is True


@pytest.mark.usefixtures("caplog")
async def test_a_raising_shutdown_keeps_nothing_and_ends_all_the_same() -> None:
    class Messy(Counter):
        async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
            ctx.state.count = 99
            raise RuntimeError("in a hurry")

    async with AgentHarness(Messy) as agent:
        await agent.send("hi")
        await agent.sleep()
        assert agent.state["count"] == 1
        assert [event.type for event, _ in agent.events()][-1] == "turn.failed"


async def test_history_and_old_versions_through_the_context() -> None:
    seen: list[Any] = []

    class Historian(Counter):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            if message["text"] == "history":
                versions = await ctx.history("out.txt")
                seen.extend(version.iteration for version in versions)
                with await ctx.at("out.txt", 1) as old:
                    seen.append(old.read())
            else:
                await super().on_message(ctx, message)

    async with AgentHarness(Historian) as agent:
        await agent.send("one")
        await agent.send("two")
        await agent.send("history")
        assert seen == [1, 2, b"1: one\n"]


async def test_opening_reads_a_bounded_tail() -> None:
    from podium.agent_record import read_agent
    from podium.turn.journal.snapshot_policy import MAX_TURNS

    async with AgentHarness(Counter) as agent:
        for number in range(MAX_TURNS + 10):
            await agent.send(str(number))
        record = read_agent(agent.store, agent.blobs, agent.address)
        assert record.replayed_turns <= 11
        assert record.state == agent.activation.state.model_dump()
        assert read_agent(agent.store, agent.blobs, agent.address, turn=5).state["count"] == 5


async def test_opening_an_agent_with_a_small_state_reads_few_turns_once_it_has_a_snapshot() -> None:
    from podium.agent_record import read_agent
    from podium.turn.journal.snapshot_policy import FEW_TURNS, MAX_TURNS

    class Small(BaseAgent):
        class State(DeltaState):
            count: int = 0

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            ctx.state.count += 1

    async with AgentHarness(Small) as agent:
        for number in range(MAX_TURNS):
            await agent.send(str(number))
        for number in range(3 * FEW_TURNS - 1):
            await agent.send(str(number))
            assert read_agent(agent.store, agent.blobs, agent.address).replayed_turns < FEW_TURNS
