"""A state against plain Python values: whatever is done to its containers, patches and documents follow.

Each rule takes some container of the state, wherever it is, does to it what it does to a plain copy of it, and holds
both against each other. Draining holds the patch against the document before and after (`Follower`).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pydantic import BaseModel, ConfigDict

from chronicle.canonical import encode
from podium.agent.models.delta_state import DeltaState
from podium.state import InvalidValue, Patch, apply_patch, follow, from_json, to_json
from podium.state.tracked.dicts import TrackedDict
from podium.state.tracked.lists import TrackedList
from podium.state.tracked.node import Tracked
from podium.state.tracked.plain_values import plain
from podium.state.tracked.sets import TrackedSet
from tests.unit.podium.state.state_tools import Follower, assert_sound, containers


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str = ""
    n: int = 0
    tags: set[str] = set()
    kids: list[Item] = []
    notes: dict[str, Any] = {}


class Frozen(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)
    items: list[int] = []


class World(DeltaState):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    _version = 1

    count: int = 0
    text: str | None = None
    numbers: list[int] = []
    documents: list[dict[str, Any]] = []
    anything: Any = None
    items: list[Item] = []
    groups: dict[str, list[Item]] = {}
    by_number: dict[int, str] = {}
    by_day: dict[date, list[int]] = {}
    tags: set[int | str] = set()
    pair: tuple[Item, int] | None = None
    frozen: Frozen = Frozen()
    colours: list[Colour] = []
    when: datetime | None = None
    ids: set[UUID] = set()
    prices: dict[str, Decimal] = {}


texts = st.text(max_size=6) | st.sampled_from(["", "/", "~", "~1", "a/b~c", "0", "-", "é", "\U0001f600", "\x00"])
integers = st.integers(-5, 5) | st.integers() | st.just(2**200)
# Whole floats beyond 2**53 come back from undeclared places as integers with the digits they were written with.
floats = st.floats(-1e15, 1e15) | st.floats(-1, 1) | st.sampled_from([1e-300, -0.0, 1.5e300 / 7e290])
scalars = st.none() | st.booleans() | integers | floats | texts
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=8
)
json_dicts = st.dictionaries(texts, json_values, max_size=4)
items = st.recursive(
    st.builds(Item, name=texts, n=integers, tags=st.sets(texts, max_size=3), notes=json_dicts),
    lambda inner: st.builds(Item, n=integers, kids=st.lists(inner, max_size=3)),
    max_leaves=4,
)
moments = st.datetimes(timezones=st.just(UTC))
days = st.dates()
decimals = st.decimals(allow_nan=False, allow_infinity=False)
values_of: dict[str, st.SearchStrategy[Any]] = {
    "count": integers,
    "text": st.none() | texts,
    "numbers": st.lists(integers, max_size=6),
    "documents": st.lists(json_dicts, max_size=4),
    "anything": json_values,
    "items": st.lists(items, max_size=4),
    "groups": st.dictionaries(texts, st.lists(items, max_size=3), max_size=3),
    "by_number": st.dictionaries(integers, texts, max_size=3),
    "by_day": st.dictionaries(days, st.lists(integers, max_size=3), max_size=3),
    "tags": st.sets(integers | texts, max_size=5),
    "pair": st.none() | st.tuples(items, integers),
    "frozen": st.builds(Frozen, items=st.lists(integers, max_size=3)),
    "colours": st.lists(st.sampled_from(Colour), max_size=4),
    "when": st.none() | moments,
    "ids": st.sets(st.uuids(), max_size=3),
    "prices": st.dictionaries(texts, decimals, max_size=3),
}
extra_names = st.sampled_from(["extra", "more", "odd/name~"])


def element_strategy(owner: Tracked) -> st.SearchStrategy[Any]:
    """What may be put into a list, or under a key of a dict, found by where it is."""
    node = owner._podium
    parent, key = node.parent, node.key
    if isinstance(parent, World):
        name = str(key)
        strategies: dict[str, st.SearchStrategy[Any]] = {
            "numbers": integers,
            "documents": json_dicts,
            "items": items,
            "groups": st.lists(items, max_size=2),
            "by_number": texts,
            "by_day": st.lists(integers, max_size=2),
            "tags": integers | texts,
            "colours": st.sampled_from(Colour),
            "ids": st.uuids(),
            "prices": decimals,
        }
        return strategies.get(name, json_values)
    if isinstance(parent, Item):
        return {"tags": texts, "kids": items}.get(str(key), json_values)
    if isinstance(parent, Frozen):
        return integers
    if isinstance(parent, TrackedDict) and isinstance(parent._podium.parent, World):
        return {"groups": items, "by_day": integers}.get(str(parent._podium.key), json_values)
    return json_values


def key_strategy(owner: Tracked) -> st.SearchStrategy[Any]:
    if isinstance(owner._podium.parent, World):
        return {"by_number": integers, "by_day": days}.get(str(owner._podium.key), texts)
    return texts


def total(value: object) -> bytes:
    """A total order over anything."""
    return encode(str(plain(value)))


slices = st.builds(
    slice,
    st.none() | st.integers(-6, 6),
    st.none() | st.integers(-6, 6),
    st.none() | st.sampled_from([1, 1, 2, -1, -2, 3]),
)


def both(container: Any, mirror: Any, act: Callable[[Any], object]) -> None:
    """Do the same to the tracked container and to its plain copy, and hold outcomes and results against each other."""
    outcomes = []
    for target in (container, mirror):
        try:
            outcomes.append(("value", plain(act(target))))
        except InvalidValue:
            raise
        except (IndexError, KeyError, ValueError, TypeError) as error:
            outcomes.append(("error", type(error)))
    (kind, mine), (mirrors_kind, its) = outcomes
    assert kind == mirrors_kind
    if mine is not container:
        assert mine == its
    assert container == mirror
    assert plain(container) == mirror


class StateModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.follow(World())

    def follow(self, state: World) -> None:
        self.state = state
        self.follower = Follower(state)
        self.first = to_json(state)
        self.patches: list[Patch] = []

    @initialize(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        self.follow(World(**data.draw(st.fixed_dictionaries({}, optional=values_of))))

    def pick(self, data: st.DataObject, kind: type) -> Any:
        found = [owner for owner in containers(self.state) if type(owner) is kind]
        return data.draw(st.sampled_from(found)) if found else None

    def has(self, kind: type) -> bool:
        return any(type(owner) is kind for owner in containers(self.state))

    @rule(data=st.data(), name=st.sampled_from(sorted(values_of)))
    def assign(self, data: st.DataObject, name: str) -> None:
        value = data.draw(values_of[name])
        setattr(self.state, name, value)
        assert plain(getattr(self.state, name)) == value
        if isinstance(value, list):
            value.append(None)  # what was given stays the giver's
            assert len(getattr(self.state, name)) == len(value) - 1

    @rule(name=extra_names, value=json_values)
    def assign_extra(self, name: str, value: object) -> None:
        setattr(self.state, name, value)
        assert plain(getattr(self.state, name)) == value

    @rule(name=extra_names)
    def delete_extra(self, name: str) -> None:
        if hasattr(self.state, name):
            delattr(self.state, name)
            assert not hasattr(self.state, name)

    @rule()
    def rebuild(self) -> None:
        """The idioms that write a new container where an old one is."""
        self.state.numbers = [*self.state.numbers, 7]
        self.state.items = [item for item in self.state.items if item.n % 2 == 0]
        self.state.prices = {**self.state.prices, "new": Decimal(1)}
        self.state.items[:] = [item for item in self.state.items if item.n != 0]
        self.state.numbers += [1]
        self.state.tags |= {"t"}

    @rule(data=st.data())
    def change_item(self, data: st.DataObject) -> None:
        found = [owner for owner in containers(self.state) if isinstance(owner, Item)]
        if found:
            item: Any = data.draw(st.sampled_from(found))
            item.n = data.draw(integers)
            item.name += "x"
            item.tags.add("seen")
            item.kids.append(Item(name="kid"))
            item.kids[-1].notes["deep"] = [1]
            item.kids[-1].notes["deep"].append(2)

    @precondition(lambda self: self.has(TrackedList))
    @rule(
        data=st.data(),
        verb=st.sampled_from(
            [
                "append",
                "extend",
                "insert",
                "pop",
                "pop at",
                "remove",
                "clear",
                "reverse",
                "sort",
                "sort reverse",
                "set",
                "delete",
                "set slice",
                "delete slice",
                "+=",
                "*=",
                "swap",
                "rewrite",
                "again",
            ]
        ),
    )
    def change_list(self, data: st.DataObject, verb: str) -> None:
        container = self.pick(data, TrackedList)
        if len(container) > 60 and verb in ("*=", "again"):
            verb = "clear"
        element = element_strategy(container)
        mirror = plain(container)
        index = data.draw(st.integers(-4, 4))
        acts: dict[str, Callable[[], Callable[[Any], object]]] = {
            "append": lambda: self.call("append", data.draw(element)),
            "extend": lambda: self.call("extend", data.draw(st.lists(element, max_size=3))),
            "insert": lambda: self.call("insert", index, data.draw(element)),
            "pop": lambda: self.call("pop"),
            "pop at": lambda: self.call("pop", index),
            "remove": lambda: self.call("remove", data.draw(element)),
            "clear": lambda: self.call("clear"),
            "reverse": lambda: self.call("reverse"),
            "sort": lambda: lambda target: target.sort(key=total),
            "sort reverse": lambda: lambda target: target.sort(key=total, reverse=True),
            "set": lambda: self.call("__setitem__", index, data.draw(element)),
            "delete": lambda: self.call("__delitem__", index),
            "set slice": lambda: self.call("__setitem__", data.draw(slices), data.draw(st.lists(element, max_size=3))),
            "delete slice": lambda: self.call("__delitem__", data.draw(slices)),
            "+=": lambda: self.call("__iadd__", data.draw(st.lists(element, max_size=2))),
            "*=": lambda: self.call("__imul__", data.draw(st.integers(-1, 2))),
            "swap": lambda: (
                lambda target: target.__setitem__(
                    slice(0, 2), [target[1], target[0]] if len(target) > 1 else target[:2]
                )
            ),
            "rewrite": lambda: self.rewrite(data.draw(st.lists(st.integers(0, 8), max_size=6))),
            "again": lambda: lambda target: target.extend(target),
        }
        both(container, mirror, acts[verb]())

    @staticmethod
    def call(method: str, *given: object) -> Callable[[Any], object]:
        return lambda target: getattr(target, method)(*copy.deepcopy(given))

    @staticmethod
    def rewrite(order: list[int]) -> Callable[[Any], object]:
        """``items[:] = ...`` with items of its own, some left out, some twice, in another order."""

        def act(target: Any) -> None:
            target[:] = [target[place] for place in order if place < len(target)]

        return act

    @precondition(lambda self: self.has(TrackedDict))
    @rule(
        data=st.data(),
        verb=st.sampled_from(
            ["set", "delete", "pop", "pop default", "popitem", "clear", "update", "setdefault", "|=", "self"]
        ),
    )
    def change_dict(self, data: st.DataObject, verb: str) -> None:
        container = self.pick(data, TrackedDict)
        keys, values = key_strategy(container), element_strategy(container)
        mirror = plain(container)
        key = data.draw(st.sampled_from(sorted(container, key=str)) if container and data.draw(st.booleans()) else keys)
        more = st.dictionaries(keys, values, max_size=3)
        acts: dict[str, Callable[[], Callable[[Any], object]]] = {
            "set": lambda: self.call("__setitem__", key, data.draw(values)),
            "delete": lambda: self.call("__delitem__", key),
            "pop": lambda: self.call("pop", key),
            "pop default": lambda: self.call("pop", key, None),
            "popitem": lambda: self.call("popitem"),
            "clear": lambda: self.call("clear"),
            "update": lambda: self.call("update", data.draw(more)),
            "setdefault": lambda: self.call("setdefault", key, data.draw(values)),
            "|=": lambda: self.call("__ior__", data.draw(more)),
            "self": lambda: lambda target: target.update(target),
        }
        both(container, mirror, acts[verb]())

    @precondition(lambda self: self.has(TrackedSet))
    @rule(
        data=st.data(),
        verb=st.sampled_from(
            [
                "add",
                "discard",
                "remove",
                "clear",
                "update",
                "|=",
                "&=",
                "-=",
                "^=",
                "intersection_update",
                "difference_update",
                "symmetric_difference_update",
            ]
        ),
    )
    def change_set(self, data: st.DataObject, verb: str) -> None:
        container = self.pick(data, TrackedSet)
        element = element_strategy(container)
        own = sorted(container, key=str)
        from_own: bool = data.draw(st.booleans())
        one = data.draw(st.sampled_from(own) if own and from_own else element)
        more = set(data.draw(st.lists(element, max_size=3))) | set(own[: data.draw(st.integers(0, 3))])
        operators = {"|=": "__ior__", "&=": "__iand__", "-=": "__isub__", "^=": "__ixor__"}
        given = one if verb in ("add", "discard", "remove") else more
        mirror = plain(container)
        act = self.call(verb) if verb == "clear" else self.call(operators.get(verb, verb), given)
        both(container, mirror, act)

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        """Take something out and put it in elsewhere: it is a value, and what was taken out is nobody's."""
        if self.state.items:
            taken = self.state.items.pop(data.draw(st.integers(0, len(self.state.items) - 1)))
            taken.n += 1
            self.state.groups["moved"] = [taken, taken]
            taken.n += 1
            first, second = self.state.groups["moved"]
            assert first == second
            assert first is not second
            assert first.n == taken.n - 1

    @rule()
    def drain(self) -> None:
        self.patches.append(self.follower.drain())

    @rule()
    def reload(self) -> None:
        """What was committed loads, and goes on as the one it was written from."""
        self.drain()
        again = from_json(World, to_json(self.state), 1)
        assert again == self.state
        assert encode(to_json(again)) == encode(to_json(self.state))
        self.teardown()
        self.follow(again)

    @rule()
    def copies_are_plain(self) -> None:
        for owner in containers(self.state):
            if not isinstance(owner, DeltaState):
                assert not containers(copy.deepcopy(owner))
        assert copy.deepcopy(self.state) == self.state

    def teardown(self) -> None:
        """All patches, applied by us and by the library, lead from the first document to the last."""
        self.patches.append(self.follower.drain())
        last = encode(to_json(self.state))
        document: Any = copy.deepcopy(self.first)
        for patch in self.patches:
            document = apply_patch(document, patch)
        assert encode(document) == last
        assert encode(follow(self.first, self.patches)) == last
        assert_sound(self.state)


NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
# A run has some 36 steps. CI: more than 4,000 steps; nightly: more than 120,000.
TestStateModel = StateModel.TestCase
TestStateModel.settings = settings(max_examples=3_500 if NIGHTLY else 120, stateful_step_count=50, deadline=None)
if NIGHTLY:
    pytestmark = pytest.mark.timeout(7_200)
