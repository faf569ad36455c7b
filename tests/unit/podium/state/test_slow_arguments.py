"""Arguments of changes that are computed while they are read, by code that may wait for another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from podium.agent.models.delta_state import DeltaState

DEADLINE_S = 60


class State(DeltaState):
    """Every kind of container."""

    count: int = 0
    items: list[Any] = []
    table: dict[str, Any] = {}
    tags: set[str] = set()


class Slow(AbstractSet[str]):
    """A set whose items come from a user's code."""

    def __init__(self, items: Iterator[str]) -> None:
        self._items = items

    def __contains__(self, item: object) -> bool:
        return item == "x"

    def __iter__(self) -> Iterator[str]:
        return self._items

    def __len__(self) -> int:
        return 1


TAKING: dict[str, Callable[[Any, Iterator[str]], object]] = {
    "extend": lambda state, given: state.items.extend(given),
    "+=": lambda state, given: state.items.__iadd__(given),
    "slice": lambda state, given: state.items.__setitem__(slice(0, 1), given),
    "sort": lambda state, given: state.items.sort(key=lambda _: next(given, "")),
    "update": lambda state, given: state.table.update((name, 1) for name in given),
    "|=": lambda state, given: state.table.__ior__((name, 1) for name in given),
    "update set": lambda state, given: state.tags.update(given),
    "difference": lambda state, given: state.tags.difference_update(given),
    "intersection": lambda state, given: state.tags.intersection_update(given),
    "symmetric": lambda state, given: state.tags.symmetric_difference_update(given),
    "set |=": lambda state, given: state.tags.__ior__(Slow(given)),
    "set &=": lambda state, given: state.tags.__iand__(Slow(given)),
    "set -=": lambda state, given: state.tags.__isub__(Slow(given)),
    "set ^=": lambda state, given: state.tags.__ixor__(Slow(given)),
}


@pytest.mark.parametrize("name", TAKING)
def test_what_is_given_may_wait_for_another_thread_that_changes_the_state(name: str) -> None:
    state = State(items=["b", "a"], tags={"x", "y"})
    thread = threading.Thread(target=lambda: setattr(state, "count", 7))
    ended = []

    def given() -> Iterator[str]:
        thread.start()
        thread.join(DEADLINE_S)
        ended.append(not thread.is_alive())
        yield "x"

    TAKING[name](state, given())
    thread.join(DEADLINE_S)
    assert ended == [True]
    assert state.count == 7
