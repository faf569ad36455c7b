"""Every mutating method of a list, on values and on containers, against list itself; and what its patch is."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from chronicle.canonical import encode
from podium.agent.models.delta_state import DeltaState
from podium.state import InvalidValue, drain, to_json
from podium.state.tracked.lists import index_of
from podium.state.tracked.piece_table import PieceTable
from podium.state.tracked.plain_values import plain
from tests.unit.podium.state.state_tools import Follower


class Item(BaseModel):
    n: int
    tags: list[str] = []


class State(DeltaState):
    numbers: list[int] = []
    documents: list[dict[str, Any]] = []
    items: list[Item] = []


Act = Callable[[list[Any], Callable[[int], Any]], object]


def item_assign(values: list[Any], make: Callable[[int], Any]) -> None:
    values[1] = make(9)


def item_assign_last(values: list[Any], make: Callable[[int], Any]) -> None:
    values[-1] = make(9)


def slice_assign(start: int | None, stop: int | None, step: int | None, count: int) -> Act:
    def act(values: list[Any], make: Callable[[int], Any]) -> None:
        values[start:stop:step] = [make(10 + number) for number in range(count)]

    return act


def slice_delete(start: int | None, stop: int | None, step: int | None = None) -> Act:
    def act(values: list[Any], make: Callable[[int], Any]) -> None:
        del values[start:stop:step]

    return act


def delete_one(values: list[Any], make: Callable[[int], Any]) -> None:
    del values[2]


def iadd(values: list[Any], make: Callable[[int], Any]) -> None:
    values += [make(8), make(9)]


def imul(count: int) -> Act:
    def act(values: list[Any], make: Callable[[int], Any]) -> None:
        values *= count

    return act


def keep_even(values: list[Any], make: Callable[[int], Any]) -> None:
    values[:] = values[::2]


def turn_round(values: list[Any], make: Callable[[int], Any]) -> None:
    values[:] = values[::-1]


def twice_itself(values: list[Any], make: Callable[[int], Any]) -> None:
    values[:] = values + values


def rotate(values: list[Any], make: Callable[[int], Any]) -> None:
    values.append(values.pop(0))


def sort_key(value: Any) -> Any:
    return encode(plain(value) if not isinstance(value, BaseModel) else value.model_dump())


ACTS: dict[str, Act] = {
    "append": lambda values, make: values.append(make(7)),
    "extend": lambda values, make: values.extend(make(number) for number in (7, 8)),
    "extend with nothing": lambda values, make: values.extend([]),
    "extend with itself": lambda values, make: values.extend(values),
    "insert first": lambda values, make: values.insert(0, make(7)),
    "insert middle": lambda values, make: values.insert(2, make(7)),
    "insert negative": lambda values, make: values.insert(-1, make(7)),
    "insert far": lambda values, make: values.insert(99, make(7)),
    "insert far before": lambda values, make: values.insert(-99, make(7)),
    "pop": lambda values, make: values.pop(),
    "pop first": lambda values, make: values.pop(0),
    "pop negative": lambda values, make: values.pop(-2),
    "pop out of range": lambda values, make: values.pop(99),
    "remove": lambda values, make: values.remove(make(1)),
    "remove what is not there": lambda values, make: values.remove(make(99)),
    "clear": lambda values, make: values.clear(),
    "reverse": lambda values, make: values.reverse(),
    "sort": lambda values, make: values.sort(key=sort_key),
    "sort backwards": lambda values, make: values.sort(key=sort_key, reverse=True),
    "sort by nothing": lambda values, make: values.sort(key=lambda value: 0, reverse=True),
    "assign item": item_assign,
    "assign last item": item_assign_last,
    "assign item out of range": lambda values, make: values.__setitem__(99, make(1)),
    "assign slice shorter": slice_assign(1, 4, None, 1),
    "assign slice longer": slice_assign(1, 2, None, 3),
    "assign slice empty": slice_assign(2, 2, None, 2),
    "assign slice backwards bounds": slice_assign(4, 1, None, 2),
    "assign all": slice_assign(None, None, None, 2),
    "assign nothing": slice_assign(1, 3, None, 0),
    "assign extended": slice_assign(None, None, 2, 3),
    "assign extended backwards": slice_assign(None, None, -2, 3),
    "assign extended, wrong size": slice_assign(None, None, 2, 1),
    "delete item": delete_one,
    "delete item out of range": lambda values, make: values.__delitem__(99),
    "delete slice": slice_delete(1, 3),
    "delete tail": slice_delete(2, None),
    "delete all": slice_delete(None, None),
    "delete nothing": slice_delete(3, 1),
    "delete extended": slice_delete(None, None, 2),
    "delete extended backwards": slice_delete(None, None, -2),
    "delete backwards": slice_delete(3, 0, -1),
    "+=": iadd,
    "*= 3": imul(3),
    "*= 1": imul(1),
    "*= 0": imul(0),
    "*= -1": imul(-1),
    "filter in place": keep_even,
    "reverse in place": turn_round,
    "double in place": twice_itself,
    "rotate": rotate,
}

KINDS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda number: number,
    "documents": lambda number: {"n": number, "list": [number]},
    "items": lambda number: Item(n=number, tags=["t"]),
}
LENGTHS = [0, 1, 5]


def outcome(act: Act, values: list[Any], make: Callable[[int], Any]) -> object:
    try:
        return plain(act(values, make))
    except (IndexError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ACTS)
def test_method(name: str, kind: str, length: int) -> None:
    make = KINDS[kind]
    start = [make((number * 3) % 5) for number in range(length)]
    state = State(**{kind: start})
    follower = Follower(state)
    values, mirror = getattr(state, kind), copy.deepcopy(start)
    assert outcome(ACTS[name], values, make) == outcome(ACTS[name], mirror, make)
    assert values == mirror
    assert plain(values) == mirror
    follower.drain()


@pytest.mark.parametrize("first", ACTS)
def test_two_methods_in_one_drain_and_a_change_inside(first: str) -> None:
    for second, act in ACTS.items():
        state = State(documents=[{"n": number, "list": [number]} for number in range(5)])
        follower = Follower(state)
        for name, step in ((first, ACTS[first]), (second, act)):
            if "out of range" not in name and "not there" not in name and "wrong size" not in name:
                try:
                    step(state.documents, KINDS["documents"])
                except (IndexError, ValueError):
                    continue
            for document in state.documents[1::2]:
                document["list"].append(name)
        follower.drain()
        for number, document in enumerate(state.documents):
            document["again"] = number
        follower.drain()


def test_patch_of_an_append_names_only_what_is_new() -> None:
    state = State(documents=[{"n": number} for number in range(100)])
    state.documents.append({"n": 100})
    state.documents[-1]["more"] = [1]
    assert drain(state) == [{"op": "add", "path": "/documents/100", "value": {"n": 100, "more": [1]}}]


@pytest.mark.parametrize(
    ("act", "patch"),
    [
        (lambda values: values.insert(0, 9), [("add", "/numbers/0", 9)]),
        (lambda values: values.pop(0), [("remove", "/numbers/0", None)]),
        (lambda values: (values.append(9), values.pop()), []),
        (lambda values: (values.append(9), values.sort()), [("add", "/numbers/10", 9)]),
        (lambda values: (values.append(-1), values.sort()), [("add", "/numbers/0", -1)]),
        (lambda values: values.__setitem__(3, 3), []),
        (
            lambda values: values.__setitem__(slice(None), [v for v in values if v != 4]),
            [("remove", "/numbers/4", None)],
        ),
        (lambda values: (values.__setitem__(3, 8), values.__setitem__(3, 9)), [("replace", "/numbers/3", 9)]),
        (lambda values: (values.pop(3), values.insert(3, 9)), [("replace", "/numbers/3", 9)]),
        (lambda values: values.sort(), []),
        (lambda values: values.append(values.pop(0)), [("remove", "/numbers/0", None), ("add", "/numbers/9", 0)]),
        (lambda values: values.clear(), [("replace", "/numbers", [])]),
    ],
)
def test_patch_is_short(act: Callable[[list[int]], object], patch: list[tuple[str, str, object]]) -> None:
    state = State(numbers=list(range(10)))
    act(state.numbers)
    assert [(step["op"], step["path"], step.get("value")) for step in drain(state)] == patch


def test_whole_assignment_of_a_changed_copy_gives_a_short_patch() -> None:
    state = State(documents=[{"n": number} for number in range(10)])
    state.documents = [*state.documents, {"n": 10}]
    assert drain(state) == [{"op": "add", "path": "/documents/10", "value": {"n": 10}}]
    state.documents = [document for document in state.documents if document["n"] != 3]
    assert drain(state) == [{"op": "remove", "path": "/documents/3"}]


def test_filter_in_place_keeps_the_containers_it_keeps() -> None:
    state = State(items=[Item(n=number) for number in range(6)])
    kept = state.items[4]
    state.items[:] = [item for item in state.items if item.n != 2]
    assert state.items[3] is kept
    assert drain(state) == [{"op": "remove", "path": "/items/2"}]
    kept.n = 44
    assert drain(state) == [{"op": "replace", "path": "/items/3/n", "value": 44}]


def test_children_know_their_place_through_many_moves() -> None:
    """More moves than are kept, of a list too short and one long enough for them."""
    chance = random.Random(1)
    for length in (3, 600):
        state = State(items=[Item(n=number) for number in range(length)])
        follower = Follower(state)
        for step in range(300):
            where = chance.randrange(len(state.items) + 1)
            if chance.random() < 0.5 or len(state.items) < 2:
                state.items.insert(where, Item(n=step))
            else:
                state.items.pop(where % len(state.items))
            item = chance.choice(state.items)
            item.n += 1000
            assert state.items[index_of(state.items, item)] is item  # type: ignore[arg-type]
            if chance.random() < 0.1:
                follower.drain()
        follower.drain()


def test_refused_values_change_nothing() -> None:
    state = State(numbers=[1, 2, 3], documents=[{"a": 1}])
    acts: list[Callable[[], object]] = [
        lambda: state.numbers.append("x"),  # type: ignore[arg-type]
        lambda: state.numbers.extend([4, 5, "x"]),  # type: ignore[list-item]
        lambda: state.numbers.insert(0, None),  # type: ignore[arg-type]
        lambda: state.numbers.__setitem__(0, "x"),  # type: ignore[call-overload]
        lambda: state.numbers.__setitem__(slice(0, 2), [4, "x"]),  # type: ignore[list-item]
        lambda: state.numbers.__setitem__(slice(0, 3, 2), [4, "x"]),  # type: ignore[list-item]
        lambda: state.numbers.__iadd__([4, "x"]),  # type: ignore[list-item]
        lambda: state.documents.append({"b": float("nan")}),
        lambda: state.documents.append([1]),  # type: ignore[arg-type]
        lambda: state.documents[0].update(c=1, d=b""),
    ]
    paths = []
    for act in acts:
        with pytest.raises(InvalidValue) as caught:
            act()
        paths.append(caught.value.path)
        assert str(caught.value).startswith(caught.value.path + ": ")
    assert paths == [
        "/numbers/3",
        "/numbers/5",
        "/numbers/0",
        "/numbers/0",
        "/numbers/1",
        "/numbers/2",
        "/numbers/4",
        "/documents/1/b",
        "/documents/1",
        "/documents/0/d",
    ]
    assert drain(state) == []
    assert to_json(state) == {"numbers": [1, 2, 3], "documents": [{"a": 1}], "items": []}


def test_a_key_that_raises_while_sorting_changes_nothing() -> None:
    state = State(numbers=[3, 1, 2])
    with pytest.raises(ZeroDivisionError):
        state.numbers.sort(key=lambda value: 1 // (value - 1))
    assert state.numbers == [3, 1, 2]
    assert drain(state) == []


def test_values_are_coerced_as_pydantic_does() -> None:
    state = State()
    state.numbers.append("7")  # type: ignore[arg-type]
    state.items.append({"n": "8"})  # type: ignore[arg-type]
    assert state.numbers == [7]
    assert state.items[0].n == 8


def test_operators_and_slices_give_plain_lists_of_the_same_items() -> None:
    state = State(documents=[{"n": 1}])
    for result in (state.documents.__add__([]), state.documents[:], state.documents * 1, state.documents.copy()):
        assert type(result) is list
        assert result[0] is state.documents[0]
    state.documents[:][0]["n"] = 2
    assert drain(state) == [{"op": "replace", "path": "/documents/0/n", "value": 2}]


def test_pieces_agree_with_lists_of_sources() -> None:
    """The edit script against the obvious one: carry the base index of each item along."""
    chance = random.Random(2)
    for _ in range(300):
        length = chance.randrange(12)
        pieces, sources = PieceTable(length), list(range(length))
        for _ in range(chance.randrange(12)):
            if chance.random() < 0.15:
                order = list(range(len(sources)))
                chance.shuffle(order)
                del order[chance.randrange(len(order) + 1) :]
                before = [sources[old] for old in order]
                pieces.rearrange(order)
                sources = pieces.sources()
                assert all(now in (old, -1) for now, old in zip(sources, before, strict=True))
                rising = [source for source in sources if source >= 0]
                assert rising == sorted(rising)
                continue
            start = chance.randrange(len(sources) + 1)
            removed = chance.randrange(len(sources) - start + 1)
            inserted = chance.randrange(3)
            pieces.splice(start, removed, inserted)
            sources[start : start + removed] = [-1] * inserted
        assert pieces.sources() == sources
        assert len(pieces) == len(sources)
        assert pieces.kept() == sum(source >= 0 for source in sources)
        assert [pieces.is_new(at) for at in range(len(sources))] == [source < 0 for source in sources]
        rebuilt = list(range(length))
        for change in pieces.changes():
            rebuilt[change.start : change.start + change.removed] = [-1] * change.inserted
        assert rebuilt == sources


def test_very_many_changes_stay_exact() -> None:
    state = State(numbers=list(range(20_000)))
    follower = Follower(state)
    for at in range(0, 20_000, 2):
        state.numbers[at] = -at
    patch = follower.drain()
    assert len(patch) < 20_000
    chance = random.Random(3)
    for _ in range(5_000):
        state.numbers.pop(chance.randrange(len(state.numbers)))
    follower.drain()


def test_a_key_that_changes_the_list_while_sorting_is_refused() -> None:
    state = State(numbers=[3, 1, 2])
    follower = Follower(state)

    def key(value: int) -> int:
        state.numbers.append(9)
        return value

    with pytest.raises(ValueError, match="list modified during sort"):
        state.numbers.sort(key=key)
    assert state.numbers == [3, 1, 2, 9, 9, 9]
    follower.drain()


@pytest.mark.parametrize(
    "act",
    [
        lambda items: items.insert("0", 1),
        lambda items: items.pop(1.0),
        lambda items: items.__setitem__("0", 1),
        lambda items: items.__delitem__(None),
        lambda items: items.__imul__("2"),
    ],
    ids=range(5),
)
def test_places_that_are_no_whole_numbers_raise_what_list_raises(act: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError):
        act([1, 2, 3])
    state = State(numbers=[1, 2, 3])
    with pytest.raises(TypeError):
        act(state.numbers)


def failing() -> Iterator[int]:
    yield 4
    raise LookupError("no more")


@pytest.mark.parametrize(
    "act",
    [
        lambda items: items.extend(failing()),
        lambda items: items.__iadd__(failing()),
        lambda items: items.__setitem__(slice(0, 1), failing()),
        lambda items: items.__setitem__(slice(None, None, 2), failing()),
    ],
    ids=range(4),
)
def test_an_iterator_that_fails_midway_changes_nothing(act: Callable[[Any], object]) -> None:
    state = State(numbers=[1, 2, 3])
    follower = Follower(state)
    with pytest.raises(LookupError):
        act(state.numbers)
    assert state.numbers == [1, 2, 3]
    assert follower.drain() == []


def test_a_list_that_is_built_again_is_noted() -> None:
    state, plain_list = State(numbers=[3, 1, 2]), [3, 1, 2]
    follower = Follower(state)
    for values in ([3, 4], [], [5]):
        state.numbers.__init__(values)  # type: ignore[misc]
        plain_list.__init__(values)  # type: ignore[misc]
        assert state.numbers == plain_list
        assert follower.drain()
    state.numbers.__init__()  # type: ignore[misc]
    assert state.numbers == []
    follower.drain()
