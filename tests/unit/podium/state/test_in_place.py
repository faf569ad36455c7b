"""Patches applied to a live state: it keeps its containers, and what does not fit is refused."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, RootModel, model_validator

from podium.agent.models.delta_state import DeltaState
from podium.state import InvalidState, PatchError, change, drain, drain_unfinished, take, to_json


class User(BaseModel):
    kind: Literal["user"] = "user"
    text: str = ""


class Tool(BaseModel):
    kind: Literal["tool"] = "tool"
    text: str = ""
    code: int = 0


class Names(RootModel[list[str]]):
    pass


class Notes(DeltaState):
    items: list[dict[str, int]] = []
    said: list[Annotated[User | Tool, Field(discriminator="kind")]] = []
    names: Names = Names([])
    tags: set[str] = set()
    low: int = 0
    high: int = 0

    @model_validator(mode="after")
    def ordered(self) -> Notes:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


def test_containers_that_code_holds_stay_those_of_the_state() -> None:
    state = Notes(items=[{"a": 1}], said=[User(text="hi")], names=Names(["x"]), tags={"t"})
    items, first, said, names, tags = state.items, state.items[0], state.said[0], state.names.root, state.tags
    change(
        state,
        [
            {"op": "replace", "path": "/items/0/a", "value": 2},
            {"op": "replace", "path": "/items", "value": [{"a": 3}, {"b": 4}]},
            {"op": "replace", "path": "/said/0/text", "value": "ho"},
            {"op": "add", "path": "/names/1", "value": "y"},
            {"op": "replace", "path": "/tags", "value": ["s"]},
        ],
    )
    assert (items, first, said.text, names, tags) == ([{"a": 3}, {"b": 4}], {"a": 3}, "ho", ["x", "y"], {"s"})
    assert state.items is items
    assert state.items[0] is first
    assert state.said[0] is said
    assert state.names.root is names
    assert state.tags is tags
    first["a"] = 9  # still tracked
    assert to_json(state)["items"] == [{"a": 9}, {"b": 4}]


def test_the_changes_are_drained_like_those_of_code() -> None:
    state = Notes()
    drain(state)
    change(state, [{"op": "replace", "path": "/high", "value": 3}])
    assert drain(state) == [{"op": "replace", "path": "/high", "value": 3}]


def test_a_member_of_a_union_may_become_another_one() -> None:
    state = Notes(said=[User(text="hi")])
    change(
        state,
        [
            {"op": "replace", "path": "/said/0/kind", "value": "tool"},
            {"op": "add", "path": "/said/0/code", "value": 7},
        ],
    )
    assert state.said[0] == Tool(text="hi", code=7)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/items/0"},
        {"op": "add", "path": "/items/5", "value": {}},
        {"op": "replace", "path": "/nothing", "value": 1},
        {"op": "replace", "path": "/low", "value": "text"},
        {"op": "replace", "path": "/items/0/a/b", "value": 1},
    ],
)
def test_what_does_not_fit_is_refused(operation: dict[str, object]) -> None:
    state = Notes()
    with pytest.raises(PatchError, match=str(operation["path"])):
        change(state, [operation])  # type: ignore[list-item]
    assert to_json(state) == to_json(Notes())


def test_validators_of_several_values_wait_for_the_end_of_the_turn() -> None:
    state = Notes()
    drain(state)
    state.low = 5
    patch, holds = drain_unfinished(state)
    assert (patch, holds) == ([{"op": "replace", "path": "/low", "value": 5}], False)
    with pytest.raises(InvalidState, match="low is above high"):
        take(state, whole=False, recheck=True)
    state.high = 6
    assert take(state, whole=False, recheck=True)[0] == [{"op": "replace", "path": "/high", "value": 6}]
