"""Stores of runs keep the contract, which finds the faults of those that do not; and what is in a record is checked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from chronicle.errors import InvalidInput, UnsupportedFormat
from podium.agent import AgentContext, BaseAgent, DeltaState
from podium.models import LLMMessage
from podium.runs import AgentRun, MemoryRunStore, StateRunStore
from podium.state import drain, from_json, to_json
from podium.testing import AgentHarness, RunStoreContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from chronicle.canonical import JsonObject
    from podium.runs import RunStore

    Opener = Callable[[], AbstractAsyncContextManager[RunStore]]


class Kept(DeltaState):
    """A state with runs."""

    runs: dict[str, Any] = {}


def opener_of(store: RunStore) -> Opener:
    """Return what opens one store in memory again and again."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[RunStore]:
        yield store

    return opened


class TestMemoryRunStore(RunStoreContract):
    """S4.6, S4.7, S4.10"""

    @pytest.fixture
    def open_store(self) -> Opener:
        return opener_of(MemoryRunStore())


class TestStateRunStore(RunStoreContract):
    """S4.6, S4.7, S4.10"""

    @pytest.fixture
    def open_store(self) -> Opener:
        document = to_json(Kept())

        @asynccontextmanager
        async def opened() -> AsyncIterator[RunStore]:
            nonlocal document
            state = from_json(Kept, document, 1)
            yield StateRunStore(state.runs)
            document = to_json(state)

        return opened


# -- that the contract finds faults ------------------------------------------------------------------------------------


class Sharing(MemoryRunStore):
    """Keeps what it is given, as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, AgentRun] = {}

    async def save(self, run: AgentRun) -> None:
        self.kept[run.id] = run

    async def load(self, run_id: str) -> AgentRun | None:
        return self.kept.get(run_id)


class Restamping(MemoryRunStore):
    """Has a run begin again with each save."""

    async def save(self, run: AgentRun) -> None:
        await super().save(replace(run, created_ms=run.updated_ms))


class Folding(MemoryRunStore):
    """Takes ids that differ in their case for one."""

    async def save(self, run: AgentRun) -> None:
        await super().save(replace(run, id=run.id.lower()))

    async def load(self, run_id: str) -> AgentRun | None:
        found = await super().load(run_id.lower())
        return replace(found, id=run_id) if found is not None else None


class Tearing(MemoryRunStore):
    """Deletes a run before it stores the next version of it."""

    async def save(self, run: AgentRun) -> None:
        await super().delete(run.id)
        await asyncio.sleep(0)
        await super().save(run)


class Merging(MemoryRunStore):
    """Keeps what a version of a run has no more."""

    async def save(self, run: AgentRun) -> None:
        if run.pending is None and (before := await super().load(run.id)) is not None:
            run = replace(run, pending=before.pending)
        await super().save(run)


class Forgetting(MemoryRunStore):
    """Keeps no results of tools."""

    async def save(self, run: AgentRun) -> None:
        await super().save(replace(run, messages=[each for each in run.messages if each.role != "tool"]))


class Refusing(MemoryRunStore):
    """Takes a run that is not there for an error."""

    async def delete(self, run_id: str) -> None:
        del self._runs[run_id]


@pytest.mark.parametrize(
    ("store", "test"),
    [
        (Sharing, "runs_cross_the_border_as_deep_copies"),
        (Restamping, "a_second_pause_keeps_when_the_run_began"),
        (Folding, "similar_ids_are_those_of_several_runs"),
        (Tearing, "a_save_that_is_aborted_leaves_one_run_whole"),
        (Merging, "a_run_may_become_smaller"),
        (Forgetting, "siblings_of_a_batch_that_ended_are_not_run_again"),
        (Refusing, "a_run_that_is_not_there_loads_as_none"),
    ],
)
def test_the_contract_finds_a_store_that_breaks_it(store: type[MemoryRunStore], test: str) -> None:
    # S4.10
    with pytest.raises((AssertionError, KeyError)):
        getattr(TestMemoryRunStore(), f"test_{test}")(opener_of(store()))


# -- records -----------------------------------------------------------------------------------------------------------


RUN = AgentRun("msg_1", "code.fast", 1, 2, messages=(LLMMessage("user", "hello"),))


def test_the_record_has_a_version_and_the_names_of_the_wire() -> None:
    # S4.8, S4.26
    assert RUN.to_json() == {
        "schemaVersion": 1,
        "id": "msg_1",
        "model": "code.fast",
        "tools": [],
        "messages": [{"role": "user", "content": "hello"}],
        "createdAt": 1,
        "updatedAt": 2,
    }


def test_a_record_of_a_later_version_is_told_apart_from_one_that_is_wrong() -> None:
    # S4.26
    later: JsonObject = {**RUN.to_json(), "schemaVersion": 2, "more": 1}
    with pytest.raises(UnsupportedFormat, match="version 2"):
        AgentRun.from_json(later)
    wrong: list[Any] = [
        None,
        {},
        {**RUN.to_json(), "schemaVersion": "1"},
        {**RUN.to_json(), "createdAt": "now"},
        {**RUN.to_json(), "tools": ["look"]},
        {**RUN.to_json(), "messages": [{"role": "nobody"}]},
        {**RUN.to_json(), "systemPrompt": 3},
        {**RUN.to_json(), "pending": {"toolCallId": "c", "toolName": "t"}},
        {**RUN.to_json(), "pending": {"toolCallId": "c", "toolName": "t", "input": {}, "more": 1}},
        {**RUN.to_json(), "id": ""},
        {**RUN.to_json(), "comment": ""},
    ]
    for document in wrong:
        with pytest.raises(InvalidInput):
            AgentRun.from_json(document)


async def test_a_value_that_is_no_json_is_refused_and_nothing_is_stored() -> None:
    state, no_json = Kept(), cast("Any", object())
    for store in (MemoryRunStore(), StateRunStore(state.runs)):
        await store.save(RUN)
        with pytest.raises(InvalidInput, match="tools/0"):
            await store.save(replace(RUN, model="other", tools=[{"name": no_json}]))
        assert await store.load("msg_1") == RUN


async def test_a_conversation_that_went_on_costs_its_new_messages() -> None:
    state = Kept()
    store = StateRunStore(state.runs)
    await store.save(RUN)
    drain(state)
    await store.save(replace(RUN, updated_ms=3, messages=(*RUN.messages, LLMMessage("assistant", "hi"))))
    patch: Any = drain(state)
    assert sorted(operation["path"] for operation in patch) == ["/runs/msg_1/messages/1", "/runs/msg_1/updatedAt"]


# -- in an agent -------------------------------------------------------------------------------------------------------


class Looping(BaseAgent):
    """A loop whose turns end where somebody has to decide."""

    max_attempts = 1

    class State(DeltaState):
        """The runs that wait, and what was decided."""

        runs: dict[str, Any] = {}
        done: list[Any] = []

    async def on_message(self, ctx: AgentContext[State], message: JsonObject) -> None:
        runs = StateRunStore(ctx.state.runs)
        if "run" not in message:
            await runs.save(replace(RUN, id=ctx.message_id or ""))
        else:
            run_id = str(message["run"])
            assert await runs.load(run_id) is not None
            await runs.delete(run_id)
            ctx.state.done.append(run_id)
        if message.get("fails"):
            raise ValueError


def runs_of(agent: AgentHarness) -> dict[str, Any]:
    """The runs in the committed state."""
    found: Any = agent.state["runs"]
    return dict(found)


async def test_runs_are_as_durable_as_the_turns_that_save_and_delete_them() -> None:
    # S4.1, S4.3
    async with AgentHarness(Looping) as agent:
        assert not (await agent.send({"fails": True})).ok
        first, second = [(await agent.send({})).receipt.message_id for _ in range(2)]
        await agent.kill()
        assert set(runs_of(agent)) == {first, second}
        assert not (await agent.send({"run": first, "fails": True})).ok
        assert (await agent.send({"run": first})).ok
        assert agent.state["done"] == [first]
        assert await StateRunStore(runs_of(agent)).load(first) is None
        assert await StateRunStore(runs_of(agent)).load(second) == replace(RUN, id=second)
