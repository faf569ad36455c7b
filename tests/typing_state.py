"""Typing examples for state: mypy and pyright read this file, and nothing runs it.

Lines that must be errors are marked; an unused mark is an error itself.
"""

from __future__ import annotations

from typing import assert_type

from pydantic import BaseModel

from chronicle.canonical import JsonObject
from podium.agent.models.delta_state import DeltaState
from podium.state import Patch, apply_patch, drain, follow, from_json, is_dirty, migration, to_json


class Item(BaseModel):
    n: int = 0


class State(DeltaState):
    _version = 2
    _entity_type = "example"

    count: int = 0
    history: list[str] = []
    items: dict[str, list[Item]] = {}
    tags: set[int] = set()

    @migration(from_version=1)
    def step(doc: JsonObject) -> JsonObject:  # pyright: ignore[reportGeneralTypeIssues]  # noqa: N805  it takes the document only
        return doc


class Annotated(DeltaState):
    _version: int = 2
    _entity_type: str = "annotated"


def fields_have_their_declared_types(state: State) -> None:
    assert_type(state.count, int)
    assert_type(state.history, list[str])
    assert_type(state.items["a"][0], Item)
    assert_type(state.tags, set[int])
    state.count += 1
    state.history += ["a"]
    state.tags |= {1}
    state.count = "x"  # type: ignore[assignment]
    state.history.append(1)  # type: ignore[arg-type]
    state.items["a"][0].nothing = 1  # type: ignore[attr-defined]


def header_is_plain(state: State) -> None:
    assert_type(State._version, int)  # pyright: ignore[reportPrivateUsage]
    assert_type(state._entity_type, str)  # pyright: ignore[reportPrivateUsage]


def functions_keep_the_class(state: State, document: JsonObject) -> None:
    assert_type(from_json(State, document, 1), State)
    assert_type(drain(state), Patch)
    assert_type(to_json(state), JsonObject)
    assert_type(is_dirty(state), bool)
    assert_type(follow(document, [drain(state)]), JsonObject)
    apply_patch(document, drain(state))
    assert_type(State.step({}), JsonObject)
    from_json(Item, document, 1)  # type: ignore[type-var]
    drain(Item())  # type: ignore[arg-type]
