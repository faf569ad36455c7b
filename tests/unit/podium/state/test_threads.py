"""State that is changed by other threads than the turn's, or after the turn: refused at once, or committed."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.verification import Verifier
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import read_agent
from podium.errors import PodiumError
from podium.state import OutsideTurn, to_json
from podium.testing import AgentHarness

DEADLINE_S = 60


class Part(DeltaState):
    """A state on its own, in no agent."""

    items: list[int] = []


class State(DeltaState):
    """Every kind of container."""

    _entity_type = "threads"
    count: int = 0
    items: list[Any] = []
    table: dict[str, Any] = {}
    tags: set[str] = set()
    seen: list[str] = []


class Base(BaseAgent):
    """Keeps what a test wants to use after the turn."""

    class State(State):
        """As above."""


def refusal(change: Callable[[], object]) -> OutsideTurn | None:
    """Make a change, and return how it was refused."""
    try:
        change()
    except OutsideTurn as error:
        return error
    return None


def in_thread(change: Callable[[], object]) -> OutsideTurn | None:
    """As `refusal`, in a thread of its own."""
    found: list[OutsideTurn | None] = []
    thread = threading.Thread(target=lambda: found.append(refusal(change)))
    thread.start()
    thread.join(DEADLINE_S)
    (answer,) = found
    return answer


CHANGES: dict[str, Callable[[Any], object]] = {
    "assign": lambda state: setattr(state, "count", 7),
    "append": lambda state: state.items.append(7),
    "extend": lambda state: state.items.extend([7, 8]),
    "+=": lambda state: state.items.__iadd__([7]),
    "*=": lambda state: state.items.__imul__(2),
    "insert": lambda state: state.items.insert(0, 7),
    "pop": lambda state: state.items.pop(),
    "remove": lambda state: state.items.remove(1),
    "clear list": lambda state: state.items.clear(),
    "reverse": lambda state: state.items.reverse(),
    "sort": lambda state: state.items.sort(key=str, reverse=True),
    "item": lambda state: state.items.__setitem__(0, 7),
    "slice": lambda state: state.items.__setitem__(slice(0, 2), [7]),
    "steps": lambda state: state.items.__setitem__(slice(None, None, 3), [7]),
    "del item": lambda state: state.items.__delitem__(0),
    "del slice": lambda state: state.items.__delitem__(slice(0, 2)),
    "nested item": lambda state: state.items[2].__setitem__("x", 7),
    "nested list": lambda state: state.items[2]["deep"].append(7),
    "key": lambda state: state.table.__setitem__("b", 7),
    "del key": lambda state: state.table.__delitem__("a"),
    "pop key": lambda state: state.table.pop("a"),
    "popitem": lambda state: state.table.popitem(),
    "clear dict": lambda state: state.table.clear(),
    "setdefault": lambda state: state.table.setdefault("b", []),
    "update": lambda state: state.table.update(b=7),
    "|=": lambda state: state.table.__ior__({"b": 7}),
    "add": lambda state: state.tags.add("y"),
    "discard": lambda state: state.tags.discard("x"),
    "remove from set": lambda state: state.tags.remove("x"),
    "pop from set": lambda state: state.tags.pop(),
    "clear set": lambda state: state.tags.clear(),
    "update set": lambda state: state.tags.update({"y"}),
    "difference": lambda state: state.tags.difference_update({"x"}),
    "intersection": lambda state: state.tags.intersection_update({"y"}),
    "symmetric": lambda state: state.tags.symmetric_difference_update({"x", "y"}),
    "set |=": lambda state: state.tags.__ior__({"y"}),
    "set &=": lambda state: state.tags.__iand__({"y"}),
    "set -=": lambda state: state.tags.__isub__({"x"}),
    "set ^=": lambda state: state.tags.__ixor__({"x"}),
}
FULL = {"items": [1, 2, {"deep": [3]}], "table": {"a": [1]}, "tags": {"x"}}


class Full(Base):
    """Fills its state, then does what a test asks for."""

    kept: Any = None
    doing: Callable[[Any], object] = staticmethod(lambda state: None)
    answer: object = None

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if ctx.turn == 1:
            ctx.state.items, ctx.state.table, ctx.state.tags = FULL["items"], FULL["table"], FULL["tags"]
        Full.kept = ctx.state
        answer = Full.doing(ctx.state)
        Full.answer = await answer if asyncio.iscoroutine(answer) else answer


def check_record(agent: AgentHarness) -> None:
    """Check that the record is whole, and gives the state that is live."""
    check = Verifier(agent.store, agent.blobs).check(agent.store.session(str(agent.address)))
    assert check.problem is None
    assert read_agent(agent.store, agent.blobs, agent.address).state == encoded(agent)


def encoded(agent: AgentHarness) -> dict[str, Any]:
    return dict(to_json(agent.activation.state))


async def handled(agent: AgentHarness, doing: Callable[[Any], object]) -> None:
    """Have the agent do something in a turn that goes well."""
    Full.doing = staticmethod(doing)
    answer = await agent.send("go")
    assert answer.ok, answer.error


def test_every_kind_of_change_is_looked_at() -> None:
    """Each method of a container that changes it is in the table."""
    from podium.state.tracked.dicts import TrackedDict
    from podium.state.tracked.lists import TrackedList
    from podium.state.tracked.sets import TrackedSet

    read_only = {"copy", "count", "index", "get", "items", "keys", "values", "fromkeys"}
    read_only |= {"difference", "intersection", "union", "symmetric_difference", "isdisjoint", "issubset", "issuperset"}
    for kind in (TrackedList, TrackedDict, TrackedSet):
        for name in {name for name in dir(kind) if not name.startswith("_")} - read_only:
            assert name in kind.__dict__, f"{kind.__name__}.{name} is not tracked"
            assert getattr(kind, name).__name__ == name
    assert len(CHANGES) >= 38


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_after_the_turn_is_refused(name: str) -> None:
    async with AgentHarness(Full) as agent:
        await handled(agent, lambda _: None)
        before = encoded(agent)
        error = refusal(lambda: CHANGES[name](Full.kept))
        assert error is not None
        assert "no hook" in str(error)
        assert encoded(agent) == before
        await handled(agent, lambda _: None)
        check_record(agent)


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_by_another_thread_is_refused_while_the_turn_runs(name: str) -> None:
    async with AgentHarness(Full) as agent:
        await handled(agent, lambda _: None)
        before = encoded(agent)
        await handled(agent, lambda state: in_thread(lambda: CHANGES[name](state)))
        assert isinstance(Full.answer, OutsideTurn)
        assert "asyncio.to_thread" in str(Full.answer)
        assert encoded(agent) == before
        check_record(agent)


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_through_to_thread_is_committed(name: str) -> None:
    async with AgentHarness(Full) as agent:
        await handled(agent, lambda _: None)
        before = encoded(agent)
        await handled(agent, lambda state: asyncio.to_thread(CHANGES[name], state))
        assert encoded(agent) != before
        check_record(agent)
        after = encoded(agent)
        await agent.kill()
        assert encoded(agent) == after


async def test_a_plain_executor_is_refused_and_the_error_says_what_to_do() -> None:
    async def change(state: Any) -> object:
        return await asyncio.get_running_loop().run_in_executor(None, refusal, lambda: state.items.append(7))

    async with AgentHarness(Full) as agent:
        await handled(agent, change)
        assert isinstance(Full.answer, OutsideTurn)
        assert str(Full.answer).startswith("/items: ")
        assert "turn 1 of threads/test" in str(Full.answer)
        check_record(agent)


async def test_a_thread_that_outlives_its_turn_does_not_damage_the_record() -> None:
    """As it was found: a thread appends all the time, and turn after turn is reported as done."""
    stop = threading.Event()
    refused: list[OutsideTurn] = []

    class Outlived(Base):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            ctx.state.count += 1
            ctx.state.items.append(ctx.state.count)
            if ctx.turn == 1:
                await asyncio.to_thread(ctx.state.items.append, "mine")
                started = threading.Event()
                # The context goes along, as asyncio.to_thread would do it, so only time tells this thread apart.
                inside = contextvars.copy_context()
                threading.Thread(target=inside.run, args=(append, ctx.state, started), daemon=True).start()
                await asyncio.to_thread(started.wait, DEADLINE_S)

    def append(state: Any, started: threading.Event) -> None:
        number = 0
        while not stop.is_set() and len(refused) < 10_000:
            number += 1
            try:
                state.items.append({"number": number})
                state.table[str(number % 7)] = number
            except OutsideTurn as error:
                refused.append(error)
                stop.wait(0.0002)
            started.set()

    try:
        async with AgentHarness(Outlived) as agent:
            for _ in range(60):
                assert (await agent.send("go")).ok
            assert refused
            assert "turn 1 of threads/test is over" in str(refused[0])
            check_record(agent)
            live = encoded(agent)
            await agent.kill()
            assert encoded(agent) == live
    finally:
        stop.set()


async def test_threads_of_a_turn_may_change_the_state_at_once() -> None:
    async def change(state: Any) -> None:
        def work(name: str) -> None:
            for number in range(400):
                state.items.append({"by": name, "number": number})
                state.table[f"{name}-{number}"] = [number]
                state.tags.add(f"{name}-{number}")
                state.count += 0
                if number % 3 == 2:
                    state.items.pop(0)

        async def beside() -> None:
            for number in range(400):
                state.items.append(number)
                state.items[-1] = -number
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(asyncio.to_thread(work, name), name=name)
            group.create_task(beside(), name="beside")

    async with AgentHarness(Full) as agent:
        await handled(agent, change)
        assert len(encoded(agent)["items"]) == 3 + 3 * (400 - 133) + 400
        check_record(agent)


async def test_tasks_of_the_turn_may_change_the_state_and_those_that_outlive_it_may_not() -> None:
    go, done = asyncio.Event(), asyncio.Event()
    late: list[OutsideTurn | None] = []
    tasks = []

    async def linger(state: Any) -> None:
        await go.wait()
        late.append(refusal(lambda: state.items.append("late")))
        done.set()

    async def change(state: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(state.items.append, 1), name="one")
            group.create_task(asyncio.sleep(0), name="two")
        tasks.append(asyncio.create_task(linger(state), name="lingers"))

    async def let_it(state: Any) -> None:
        go.set()
        await done.wait()
        state.items.append("mine")

    async with AgentHarness(Full) as agent:
        await handled(agent, change)
        await handled(agent, let_it)  # its own turn is over, whatever other turn runs now
        (error,) = late
        assert error is not None
        assert "turn 1 of threads/test is over" in str(error)
        assert encoded(agent)["items"][-1] == "mine"
        check_record(agent)
        await asyncio.gather(*tasks)


async def test_what_a_thread_hands_to_the_event_loop_is_a_change_of_the_turn() -> None:
    async def change(state: Any) -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def put() -> None:
            state.items.append("handed over")
            done.set()

        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(put,))
        thread.start()
        await done.wait()
        thread.join(DEADLINE_S)

    async with AgentHarness(Full) as agent:
        await handled(agent, change)
        assert encoded(agent)["items"][-1] == "handed over"
        check_record(agent)


async def test_references_to_what_is_in_the_state_are_looked_at_as_the_state_is() -> None:
    kept: list[Any] = []

    class Keeping(Base):
        async def on_init(self, ctx: AgentContext[Any]) -> None:
            ctx.state.items = [{"deep": [1]}]
            kept.extend((ctx.state.items, ctx.state.items[0], ctx.state.items[0]["deep"]))

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            if message["text"] == "raise":
                kept[2].append("raised")
                raise ValueError("as told")
            kept[2].append(2)
            if message["text"] == "take out":
                taken = ctx.state.items.pop()
                assert taken is kept[1]

    async with AgentHarness(Keeping) as agent:
        assert (await agent.send("go")).ok
        assert agent.state["items"] == [{"deep": [1, 2]}]
        assert refusal(lambda: kept[0].append(3)) is not None
        assert refusal(lambda: kept[1].update(x=3)) is not None
        assert refusal(lambda: kept[2].append(3)) is not None
        assert in_thread(lambda: kept[2].append(3)) is not None
        assert (await agent.send("take out")).ok
        kept[1]["mine"] = True  # it is nobody's now
        kept[2].append(4)
        assert in_thread(lambda: kept[2].append(5)) is None
        assert agent.state["items"] == []
        check_record(agent)


async def test_what_a_failed_try_kept_of_the_state_is_of_no_use_to_the_next() -> None:
    """The state is read again after a failed try: a change of the old one would be lost without a word."""
    kept: list[Any] = []

    class Failing(Base):
        max_attempts = 1

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            kept.append(ctx.state.items)
            if message["text"] == "raise":
                raise ValueError("as told")
            kept[0].append("lost")

    async with AgentHarness(Failing) as agent:
        assert not (await agent.send("raise")).ok
        answer = await agent.send("go")
        assert answer.error is not None
        assert answer.error["type"] == "OutsideTurn"
        assert "was rolled back" in str(answer.error["message"])
        check_record(agent)


async def test_the_other_hooks_change_the_state_while_they_run() -> None:
    kept: list[Any] = []

    class Hooks(Base):
        async def on_init(self, ctx: AgentContext[Any]) -> None:
            kept.append(ctx.state)
            await asyncio.to_thread(ctx.state.seen.append, "init")
            assert in_thread(lambda: ctx.state.seen.append("thread")) is not None

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            ctx.state.seen.append("message")

        async def on_idle_timeout(self, ctx: AgentContext[Any]) -> bool:
            ctx.state.seen.append("idle")
            return True

        async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
            await asyncio.to_thread(ctx.state.seen.append, "shutdown")

    async with AgentHarness(Hooks) as agent:
        assert (await agent.send("go")).ok
        assert refusal(lambda: kept[0].seen.append("between")) is not None
        assert not await agent.advance(Hooks.idle_timeout_s)
        assert agent.state["seen"] == ["init", "message", "idle", "shutdown"]


async def test_a_context_is_closed_to_threads_with_its_turn() -> None:
    kept: list[AgentContext[Any]] = []

    class Telling(Base):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            kept.append(ctx)

    async with AgentHarness(Telling) as agent:
        await agent.send("go")
        with pytest.raises(PodiumError, match="turn 1 is over"):
            await kept[0].tell("other/one", {})


def test_a_state_of_no_agent_may_be_changed_by_anyone() -> None:
    part = Part()
    part.items.append(1)
    assert in_thread(lambda: part.items.append(2)) is None
    assert part.items == [1, 2]


async def test_a_state_that_a_turn_builds_for_itself_may_be_changed_by_anyone() -> None:
    async def change(state: Any) -> list[int]:
        part = Part()
        part.items.append(1)
        await asyncio.get_running_loop().run_in_executor(None, part.items.append, 2)
        return part.items

    async with AgentHarness(Full) as agent:
        await handled(agent, change)
        assert Full.answer == [1, 2]
