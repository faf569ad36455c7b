"""Every mutating method of dicts and sets against dict and set themselves; and what their patches are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from podium.agent.models.delta_state import DeltaState
from podium.state import InvalidValue, drain, from_json, to_json
from podium.state.tracked.plain_values import plain
from tests.unit.podium.state.state_tools import Follower


class Item(BaseModel):
    n: int


class Colour(Enum):
    RED = "red"


class State(DeltaState):
    counts: dict[str, int] = {}
    documents: dict[str, dict[str, Any]] = {}
    items: dict[str, Item] = {}
    by_number: dict[int, list[int]] = {}
    by_day: dict[date, int] = {}
    by_id: dict[UUID, int] = {}
    by_colour: dict[Colour, int] = {}
    by_flag: dict[bool | str, int] = {}
    loose: dict = {}  # type: ignore[type-arg]  # as users write it
    numbers: set[int] = set()
    words: set[str] = set()
    mixed: set[int | str] = set()
    pairs: set[tuple[int, str]] = set()
    groups: set[frozenset[int]] = set()
    bare: set = set()  # type: ignore[type-arg]


Act = Callable[[Any, Callable[[int], Any]], object]


def ior(values: Any, make: Callable[[int], Any]) -> None:
    values |= {"a": make(7), "new": make(8)}


def ior_pairs(values: Any, make: Callable[[int], Any]) -> None:
    values |= [("new", make(8))]


def delete(values: Any, make: Callable[[int], Any]) -> None:
    del values["a"]


def set_item(key: str) -> Act:
    return lambda values, make: values.__setitem__(key, make(9))


DICT_ACTS: dict[str, Act] = {
    "set new": set_item("new"),
    "set old": set_item("a"),
    "set awkward": lambda values, make: [
        values.__setitem__(key, make(1)) for key in ("/", "~", "~1", "", "é", "0", "-")
    ],
    "delete": delete,
    "delete what is not there": lambda values, make: values.__delitem__("zz"),
    "pop": lambda values, make: values.pop("a"),
    "pop what is not there": lambda values, make: values.pop("zz"),
    "pop with default": lambda values, make: values.pop("zz", None),
    "popitem": lambda values, make: values.popitem(),
    "clear": lambda values, make: values.clear(),
    "update": lambda values, make: values.update({"a": make(5), "new": make(6)}),
    "update with pairs": lambda values, make: values.update([("new", make(6))]),
    "update with names": lambda values, make: values.update(new=make(6), b=make(7)),
    "update with nothing": lambda values, make: values.update(),
    "update with itself": lambda values, make: values.update(values),
    "setdefault new": lambda values, make: values.setdefault("new", make(4)),
    "setdefault old": lambda values, make: values.setdefault("a", make(4)),
    "|=": ior,
    "|= pairs": ior_pairs,
    "delete and set": lambda values, make: (values.pop("a"), values.__setitem__("a", make(3))),
    "set and delete": lambda values, make: (values.__setitem__("new", make(3)), values.pop("new")),
}
KINDS: dict[str, Callable[[int], Any]] = {
    "counts": lambda number: number,
    "documents": lambda number: {"n": number, "list": [number]},
    "items": lambda number: Item(n=number),
    "loose": lambda number: [number],
}


def outcome(act: Act, values: Any, make: Callable[[int], Any]) -> object:
    try:
        result = act(values, make)
    except (KeyError, TypeError) as error:
        return type(error), str(error)
    return tuple(plain(part) for part in result) if isinstance(result, tuple) else plain(result)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DICT_ACTS)
def test_dict_method(name: str, kind: str) -> None:
    make = KINDS[kind]
    for start in ({}, {"a": make(1)}, {key: make(number) for number, key in enumerate("abc")}):
        state = State(**{kind: start})
        follower = Follower(state)
        values, mirror = getattr(state, kind), copy.deepcopy(start)
        assert outcome(DICT_ACTS[name], values, make) == outcome(DICT_ACTS[name], mirror, make)
        assert values == mirror
        assert list(values) == list(mirror)
        follower.drain()


@pytest.mark.parametrize("first", DICT_ACTS)
def test_two_dict_methods_in_one_drain_and_a_change_inside(first: str) -> None:
    make = KINDS["documents"]
    for second, act in DICT_ACTS.items():
        state = State(documents={key: make(number) for number, key in enumerate("abc")})
        follower = Follower(state)
        for name, step in ((first, DICT_ACTS[first]), (second, act)):
            outcome(step, state.documents, make)
            for document in state.documents.values():
                document["list"].append(name)
        follower.drain()
        for document in state.documents.values():
            document["again"] = 1
        follower.drain()


def test_dict_patches_are_short() -> None:
    state = State(counts={"a": 1, "b": 2})
    state.counts["a"] = 5
    state.counts["a"] = 1
    state.counts["new"] = 3
    del state.counts["new"]
    state.counts["b"] = 9
    state.counts["c/~"] = 1
    state.counts["c/~"] += 1
    assert drain(state) == [
        {"op": "replace", "path": "/counts/b", "value": 9},
        {"op": "add", "path": "/counts/c~1~0", "value": 2},
    ]
    state.counts = {**state.counts, "d": 1}
    assert drain(state) == [{"op": "add", "path": "/counts/d", "value": 1}]


def test_declared_keys() -> None:
    state = State()
    follower = Follower(state)
    state.by_number[10**30] = [1]
    state.by_number[2] = []
    state.by_number[2].append(5)
    state.by_day[date(2024, 2, 29)] = 1
    state.by_id[UUID(int=5)] = 2
    state.by_colour[Colour.RED] = 3
    state.by_flag["yes"] = 4
    follower.drain()
    state.by_number[2].append(6)
    state.by_number["7"] = []  # type: ignore[index]  # coerced, as pydantic does
    assert 7 in state.by_number
    follower.drain()
    again = from_json(State, to_json(state), 1)
    assert again == state
    assert list(again.by_colour) == [Colour.RED]


@pytest.mark.parametrize(
    ("act", "path"),
    [
        (lambda state: state.loose.__setitem__(1, 1), "/loose/1"),
        (lambda state: state.loose.update({"a": {2: 1}}), "/loose/a/2"),
        (lambda state: state.loose.setdefault(None, 1), "/loose/None"),
        (lambda state: state.counts.__setitem__(1, 1), "/counts/1"),
        (lambda state: state.by_number.__setitem__("x", []), "/by_number/x"),
        (lambda state: state.by_flag.__setitem__(True, 1), "/by_flag/True"),  # reads back as the text "true"
        (lambda state: state.loose.__setitem__("\ud800", 1), "/loose/'\\ud800'"),
        (lambda state: state.numbers.add("x"), "/numbers"),
        (lambda state: state.bare.add((1, 2)), "/bare"),
        (lambda state: state.bare.update([1, float("nan")]), "/bare"),
    ],
    ids=range(10),
)
def test_refused_keys_and_items(act: Callable[[State], object], path: str) -> None:
    state = State()
    before = to_json(state)
    with pytest.raises(InvalidValue) as caught:
        act(state)
    assert caught.value.path == path
    assert to_json(state) == before
    assert drain(state) == []


def set_ior(values: Any, other: set[Any]) -> None:
    values |= other


def set_iand(values: Any, other: set[Any]) -> None:
    values &= other


def set_isub(values: Any, other: set[Any]) -> None:
    values -= other


def set_ixor(values: Any, other: set[Any]) -> None:
    values ^= other


SET_ACTS: dict[str, Callable[[Any, Any], object]] = {
    "add": lambda values, other: [values.add(item) for item in sorted(other, key=str)],
    "discard": lambda values, other: [values.discard(item) for item in sorted(other, key=str)],
    "remove": lambda values, other: [values.remove(item) for item in sorted(other & values, key=str)],
    "remove what is not there": lambda values, other: values.remove("not there"),
    "clear": lambda values, other: values.clear(),
    "update": lambda values, other: values.update(other, other),
    "difference_update": lambda values, other: values.difference_update(other),
    "intersection_update": lambda values, other: values.intersection_update(other),
    "symmetric_difference_update": lambda values, other: values.symmetric_difference_update(other),
    "|=": set_ior,
    "&=": set_iand,
    "-=": set_isub,
    "^=": set_ixor,
    "with itself: ^=": lambda values, other: set_ixor(values, values),
    "with itself: -=": lambda values, other: set_isub(values, values),
    "add and discard": lambda values, other: [
        (values.add(item), values.discard(item)) for item in sorted(other - values, key=str)
    ],
}
SET_VALUES: dict[str, tuple[set[Any], set[Any]]] = {
    "numbers": ({1, 2, 10, 300}, {2, 10, 7, -5}),
    "words": ({"a", "b", "é", "/"}, {"b", "zz", '"'}),
    "mixed": ({1, "1", 2, "x"}, {"1", 2, 3, "y"}),
    "pairs": ({(1, "a"), (2, "b")}, {(2, "b"), (10, "c")}),
    "groups": ({frozenset({1, 2}), frozenset()}, {frozenset({2, 1}), frozenset({10, 9})}),
    "bare": ({1, "x", None, 2.5}, {None, "y", 2.5, False}),
}


@pytest.mark.parametrize("kind", SET_VALUES)
@pytest.mark.parametrize("name", SET_ACTS)
def test_set_method(name: str, kind: str) -> None:
    for start in (SET_VALUES[kind][0], set()):
        other = SET_VALUES[kind][1]
        state = State(**{kind: start})
        follower = Follower(state)
        values, mirror = getattr(state, kind), set(start)
        results = []
        for target in (values, mirror):
            try:
                results.append(plain(SET_ACTS[name](target, set(other))))
            except KeyError as error:
                results.append(str(error))
        assert results[0] == results[1]
        assert values == mirror
        follower.drain()
        values.add(min(other, key=str))
        follower.drain()
        assert from_json(State, to_json(state), 1) == state


def test_set_pop() -> None:
    state = State(numbers={1, 2, 3})
    follower = Follower(state)
    taken = state.numbers.pop()
    assert state.numbers == {1, 2, 3} - {taken}
    follower.drain()
    state.numbers.clear()
    with pytest.raises(KeyError):
        state.numbers.pop()
    follower.drain()


def test_set_is_an_array_sorted_by_canonical_json_and_patched_in_place() -> None:
    state = State(numbers={9, 10, 1})
    assert to_json(state)["numbers"] == [1, 10, 9]
    state.numbers.add(8)
    state.numbers.discard(10)
    assert drain(state) == [
        {"op": "remove", "path": "/numbers/1"},
        {"op": "add", "path": "/numbers/1", "value": 8},
    ]
    state.numbers.add(8)
    state.numbers.discard(77)
    assert drain(state) == []


def test_items_that_are_equal_to_python_and_not_to_json() -> None:
    state = State(bare={1})
    follower = Follower(state)
    state.bare.add(True)
    assert follower.drain() == []
    state.bare.discard(True)
    state.bare.add(True)
    follower.drain()
    assert to_json(state)["bare"] == [True]


class Word(str, Enum):  # noqa: UP042  as users wrote it before StrEnum
    YES = "yes"


def test_keys_and_items_that_are_equal_and_written_apart() -> None:
    class Odd(DeltaState):
        by_price: dict[Decimal, int] = {}
        by_moment: dict[datetime, int] = {}
        prices: set[Decimal] = set()
        numbers: dict[int, int] = {}
        words: dict[str, int] = {}

    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    elsewhere = noon.astimezone(timezone(timedelta(hours=2)))
    state = Odd(by_price={Decimal(1): 1}, by_moment={noon: 1}, prices={Decimal(1)}, numbers={1: 1}, words={"yes": 1})
    follower = Follower(state)
    state.by_price[Decimal("1.0")] = 2
    state.by_moment[elsewhere] = 2
    state.numbers[True] = 2
    state.words[Word.YES] = 2
    state.prices.add(Decimal("1.00"))
    follower.drain()
    del state.by_price[Decimal("1.0")]
    assert state.by_moment.pop(elsewhere) == 2
    assert state.numbers.pop(True) == 2
    assert state.words.pop(Word.YES) == 2
    state.prices.discard(Decimal("1.0"))
    follower.drain()
    assert to_json(state) == {"by_price": {}, "by_moment": {}, "prices": [], "numbers": {}, "words": {}}


def test_operators_need_sets() -> None:
    state = State(numbers={1})
    for act in (set_ior, set_iand, set_isub, set_ixor):
        with pytest.raises(TypeError):
            act(state.numbers, [1])  # type: ignore[arg-type]


def test_results_of_operators_are_plain() -> None:
    state = State(numbers={1}, counts={"a": 1})
    for result in (state.numbers | {2}, state.numbers & {1}, state.numbers - {1}, state.numbers ^ {1}):
        assert type(result) is set
    assert type(state.numbers.copy()) is set
    assert type(state.counts | {"b": 2}) is dict
    assert type(state.counts.copy()) is dict
    assert repr(state.numbers) == "{1}"


def test_update_takes_any_name() -> None:
    state = State()
    follower = Follower(state)
    state.documents.update(self={}, others={}, more={})
    assert set(state.documents) >= {"self", "others", "more"}
    follower.drain()


def failing() -> Iterator[Any]:
    yield 4
    raise LookupError("no more")


@pytest.mark.parametrize(
    "method", ["update", "difference_update", "intersection_update", "symmetric_difference_update"]
)
def test_an_iterator_that_fails_midway_changes_nothing(method: str) -> None:
    state = State(mixed={1, 4, "a"})
    follower = Follower(state)
    with pytest.raises(LookupError):
        getattr(state.mixed, method)(failing())
    assert state.mixed == {1, 4, "a"}
    assert follower.drain() == []


def test_dicts_and_sets_that_are_built_again_are_noted() -> None:
    state = State(counts={"a": 1, "b": 2}, numbers={1, 2})
    follower = Follower(state)
    counts, numbers = {"a": 1, "b": 2}, {1, 2}
    for each in (state.counts, counts):
        each.__init__({"b": 3}, c=4)  # type: ignore[misc]
    for items in (state.numbers, numbers):
        items.__init__([2, 3])  # type: ignore[misc]
    assert (state.counts, state.numbers) == (counts, numbers) == ({"a": 1, "b": 3, "c": 4}, {2, 3})
    assert len(follower.drain()) == 4
