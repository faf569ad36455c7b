"""Changes that bypass the tracking of a state."""

from __future__ import annotations

import heapq
from typing import Any

import pytest

from coordinator.verification import Verifier
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.state import to_json
from podium.testing import AgentHarness


@pytest.mark.parametrize("name", ["push", "push and pop", "shrunk", "dict", "set", "nested"])
async def test_a_container_that_was_changed_unseen_fails_the_turn_instead_of_the_record(name: str) -> None:
    """``heapq`` writes into a list itself; the patch of the turn would not fit the document before it."""

    def change(state: Any) -> None:
        if name == "push":
            heapq.heappush(state.items[2]["deep"], 0)
        elif name == "push and pop":
            list.append(state.items, 9)
            state.items.append(10)
            list.pop(state.items)
        elif name == "shrunk":
            list.clear(state.items)
        elif name == "dict":
            dict.__setitem__(state.table, "unseen", 1)
        elif name == "set":
            set.add(state.tags, "unseen")
        else:
            list.append(state.items[2]["deep"], 9)
        state.items.append({})
        state.table["new"] = 1
        state.tags.add("new")
        if len(state.items) > 2 and isinstance(state.items[2], dict):
            state.items[2]["deep"].append(9)

    class Careless(BaseAgent):
        class State(DeltaState):
            _entity_type = "careless"
            items: list[Any] = [1, 2, {"deep": [3]}]
            table: dict[str, Any] = {"a": [1]}
            tags: set[str] = {"x"}

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            change(ctx.state)

    async with AgentHarness(Careless) as agent:
        before = to_json(agent.activation.state)
        answer = await agent.send("go")
        assert answer.error is not None
        assert answer.error["type"] == "UnseenChange"
        assert to_json(agent.activation.state) == before == agent.state
        assert Verifier(agent.store, agent.blobs).check(agent.store.session(str(agent.address))).problem is None
