"""State: what it costs to note and drain a change, against the size of the state and against comparing two states."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

import jsonpatch

from chronicle.canonical import JsonObject
from podium.agent.models.delta_state import DeltaState
from podium.state import Patch, apply_patch, drain, to_json

if TYPE_CHECKING:
    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

ROUNDS = 41
APPENDS = 25
"""In one measurement."""
MESSAGE: JsonObject = {"role": "user", "text": "what is the answer?", "n": 1}


class State(DeltaState):
    count: int = 0
    history: list[dict[str, Any]] = []


def state_of(length: int) -> State:
    return State(history=[{**MESSAGE, "n": number} for number in range(length)])


def seconds(act: Callable[[], object], times: int) -> float:
    """Of one call, from one measurement of so many."""
    start = time.perf_counter()
    for _ in range(times):
        act()
    return (time.perf_counter() - start) / times


def appending(state: State) -> Callable[[], object]:
    def act() -> None:
        state.history.append(dict(MESSAGE))
        drain(state)

    return act


def changing_last(state: State) -> Callable[[], object]:
    def act() -> None:
        state.history[-1]["n"] += 1
        drain(state)

    return act


def sliding(state: State) -> Callable[[], object]:
    """A history with a limit: one in at the end, one out at the front, and the last one changed."""

    def act() -> None:
        state.history.append(dict(MESSAGE))
        state.history.pop(0)
        state.history[-1]["n"] += 1
        drain(state)

    return act


def row(name: str, value: float, target: str, floor: str) -> Row:
    return {"name": name, "value": value, "unit": "x", "target": target, "floor": floor}


def run() -> list[Row]:
    """Measure in turns, so that what else the machine does hits both sides alike."""
    large = state_of(100_000)
    gc.collect()
    gc.freeze()  # a full collection walks all 100,000 dicts of the process; it is not what is measured here
    kinds = {"append": appending, "change the last item": changing_last, "append, pop(0), change": sliding}
    rows: list[Row] = []
    appended: list[float] = []
    for name, kind in kinds.items():
        ours: list[float] = []
        floors: list[float] = []
        for _ in range(ROUNDS):
            floors.append(seconds(kind(state_of(10)), APPENDS))
            ours.append(seconds(kind(large), APPENDS))
        if name == "append":
            appended = ours
        rows.append(
            row(
                f"state: {name}, drain included, list of 100,000 dicts",
                median(ours) / median(floors),
                "<= 1.5" if name == "append" else "",
                f"the same on a list of 10, {median(floors) * 1e6:.0f} µs",
            )
        )
    rows.append(_against_comparing(large, median(appended)))
    rows.append(_against_copying(large))
    gc.unfreeze()
    return rows


def _against_comparing(state: State, ours: float) -> Row:
    before = to_json(state)
    state.history.append(dict(MESSAGE))
    drain(state)
    after = to_json(state)
    theirs = median(seconds(lambda: jsonpatch.make_patch(before, after), 1) for _ in range(5))
    return row(
        "state: jsonpatch.make_patch of two states of 100,000, against append and drain",
        theirs / ours,
        ">= 1000",
        f"append and drain, {ours * 1e6:.0f} µs; make_patch {theirs * 1e3:.0f} ms",
    )


def _against_copying(state: State) -> Row:
    document = to_json(state)
    patch: Patch = [{"op": "add", "path": "/history/-", "value": dict(MESSAGE)}]
    ours = median(seconds(lambda: apply_patch(document, patch), APPENDS) for _ in range(ROUNDS))
    theirs = median(seconds(lambda: jsonpatch.apply_patch(document, patch), 1) for _ in range(5))
    return row(
        "state: jsonpatch.apply_patch to a document of 100,000, against apply_patch in place",
        theirs / ours,
        "",
        f"in place, {ours * 1e6:.1f} µs; the library copies in {theirs * 1e3:.0f} ms",
    )
