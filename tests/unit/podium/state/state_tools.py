"""What tests of state have in common: drain, and hold the patch against everything it must agree with."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch

from chronicle.canonical import Json, JsonObject, encode
from podium.agent.models.delta_state import DeltaState
from podium.state import Patch, apply_patch, change, drain, from_json, is_dirty, to_json
from podium.state.tracked.lists import TrackedList, index_of
from podium.state.tracked.node import Tracked

__all__ = ["Follower", "assert_sound", "containers"]


def copied(document: JsonObject) -> Any:
    """A deep copy by way of the only form that counts."""
    return json.loads(json.dumps(document))


class Follower:
    """Holds the documents that the patches of a state lead to, by the jsonpatch library, by our own
    applier, and in place by another live state.

    Args:
        state: clean.
    """

    def __init__(self, state: DeltaState) -> None:
        self.state = state
        self.by_library: Any = to_json(state)
        self.by_us: Json = to_json(state)
        self.in_place = from_json(type(state), to_json(state), type(state)._version)

    def drain(self) -> Patch:
        """Drain the state, and hold patch and state against each other."""
        untouched = encode(self.by_us)
        patch = drain(self.state)
        after = encode(to_json(self.state))
        self.by_library = jsonpatch.apply_patch(self.by_library, copied({"patch": list(patch)})["patch"])
        self.by_us = apply_patch(self.by_us, patch)
        assert encode(self.by_library) == after, patch
        assert encode(self.by_us) == after, patch
        assert patch or untouched == after
        change(self.in_place, patch)
        assert encode(to_json(self.in_place)) == after, patch
        assert_sound(self.in_place)
        assert not is_dirty(self.state)
        assert drain(self.state) == []
        assert_sound(self.state)
        return patch


def containers(value: object) -> list[Tracked]:
    """All tracked containers of a state, outermost first."""
    found: list[Tracked] = []
    todo = [value]
    while todo:
        here = todo.pop()
        if isinstance(here, Tracked):
            found.append(here)
            todo.extend(children(here))
    return found


def children(owner: object) -> list[object]:
    if isinstance(owner, dict):
        return list(owner.values())
    if isinstance(owner, list | tuple):
        return list(owner)
    if isinstance(owner, set):
        return []
    parts: Any = owner
    return [*(parts.__dict__[name] for name in parts._podium.shape.fields), *(parts.__pydantic_extra__ or {}).values()]


def assert_sound(state: DeltaState) -> None:
    """Each container is in one place only, and knows it."""
    seen: set[int] = set()
    for owner in containers(state):
        assert id(owner) not in seen
        seen.add(id(owner))
        for child in children(owner):
            if isinstance(child, Tracked):
                assert child._podium.parent is owner
                if isinstance(owner, TrackedList):
                    assert owner[index_of(owner, child)] is child
            else:
                assert not isinstance(child, list | dict | set)
