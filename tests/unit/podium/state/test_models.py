"""Models in a state, the state itself among them: headers, tracking, copies, extra fields."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from pydantic import (
    ConfigDict,
)

from podium.agent.models.delta_state import DeltaState
from podium.state import (
    InvalidValue,
    StateError,
    UnstorableState,
    UnsupportedType,
    drain,
    from_json,
    is_dirty,
    to_json,
)
from tests.unit.podium.state.state_classes import (
    Part,
    State,
)
from tests.unit.podium.state.state_tools import Follower, containers


def test_header_is_plain_on_class_and_instance() -> None:
    class Annotated_(DeltaState):  # noqa: N801
        _version: int = 2
        _entity_type: str = "annotated"
        x: int = 0

    class ByClassVar(DeltaState):
        _version: ClassVar[int] = 4  # type: ignore[misc]
        _entity_type: ClassVar[str] = "by_class_var"  # type: ignore[misc]

    class Inherits(State):
        more: int = 0

    class Raises(State):
        _version = 4

    assert (State._version, State._entity_type) == (3, "thing")
    assert (State()._version, State()._entity_type) == (3, "thing")
    assert (Annotated_._version, Annotated_._entity_type, Annotated_()._version) == (2, "annotated", 2)
    assert (ByClassVar._version, ByClassVar()._entity_type) == (4, "by_class_var")
    assert (Inherits._version, Inherits._entity_type) == (3, "thing")
    assert (Raises._version, Raises()._version, Raises._entity_type) == (4, 4, "thing")
    assert (DeltaState._version, DeltaState._entity_type) == (1, "")
    assert set(to_json(State())) == set(State.model_fields)
    assert not {"_version", "_entity_type"} & set(State.__private_attributes__)


def test_header_belongs_to_the_class() -> None:
    with pytest.raises(StateError, match="_version belongs to the class"):
        State()._version = 9
    with pytest.raises(UnsupportedType, match="_version is 'one'"):
        type("Odd", (DeltaState,), {"_version": "one", "__module__": __name__})
    with pytest.raises(UnsupportedType, match="_version is 0"):
        type("Odd", (DeltaState,), {"_version": 0, "__module__": __name__})
    with pytest.raises(UnsupportedType, match="_entity_type is 5"):
        type("Odd", (DeltaState,), {"_entity_type": 5, "__module__": __name__})


def test_defaults_are_never_shared() -> None:
    one, other = State(), State()
    one.part.tags.append("x")
    one.parts.append(Part())
    one.child.values.append(1)
    one.nested["a"] = []
    assert to_json(other) == to_json(State())
    assert one.part is not other.part


def test_changes_at_any_depth() -> None:
    state = State(nested={"a/b": [{"c~": [Part(kids=[Part()])]}]}, maybe=Part())
    follower = Follower(state)
    state.nested["a/b"][0]["c~"][0].kids[0].tags.append("x")
    assert state.maybe is not None
    state.maybe.grow()
    state.child.values += [1]
    paths = {str(step["path"]) for step in follower.drain()}
    assert paths == {"/child/values/0", "/nested/a~1b/0/c~0/0/kids/0/tags/0", "/maybe/n", "/maybe/tags/0"}


def test_attribute_there_and_back_gives_nothing() -> None:
    state = State(count=1, part=Part(n=1))
    state.count = 2
    state.part.n += 1
    assert is_dirty(state)
    state.count = 1
    state.part.n -= 1
    assert drain(state) == []
    state.count = state.count
    state.part = state.part
    state.parts += []
    assert not is_dirty(state)


def test_values_are_values() -> None:
    shared = {"list": [1]}
    state = State(anything=[shared, shared])
    follower = Follower(state)
    shared["list"].append(2)
    first, _ = state.anything
    first["list"].append(3)
    assert to_json(state)["anything"] == [{"list": [1, 3]}, {"list": [1]}]
    part = Part(tags=["a"])
    state.part = part
    state.maybe = part
    state.parts = [state.part, part]
    part.tags.append("not in the state")
    state.part.tags.append("b")
    assert [state.part.tags, state.maybe.tags, state.parts[0].tags, state.parts[1].tags] == [
        ["a", "b"],
        ["a"],
        ["a"],
        ["a"],
    ]
    state.parts[0], state.parts[1] = state.parts[1], state.parts[0]
    state.parts[0].n = 5
    follower.drain()


def test_what_was_taken_out_is_nobodys() -> None:
    state = State(parts=[Part(), Part()], anything={"a": {"b": [1]}}, maybe=Part())
    taken = [state.parts.pop(), state.anything.pop("a"), state.maybe]
    state.maybe = None
    drain(state)
    taken[0].grow()
    taken[1]["b"].append(2)
    taken[2].grow()
    assert not is_dirty(state)
    assert drain(state) == []
    state.anything["a"] = taken[1]
    taken[1]["b"].append(3)
    assert state.anything == {"a": {"b": [1, 2]}}


def test_containers_are_real_ones() -> None:
    state = State(nested={"a": []}, parts=[Part()])
    assert isinstance(state.nested, dict)
    assert isinstance(state.nested["a"], list)
    assert isinstance(state.parts[0], Part)
    assert state.parts[0].__class__ is Part
    assert state.parts[0] == Part()
    assert Part() == state.parts[0]
    assert state.parts[0] != Part(n=1)
    assert repr(state.parts) == "[Part(n=0, tags=[], kids=[])]"
    assert state.parts == [Part()]
    assert state.parts[0].twice == 0
    match state.parts[0]:
        case Part(n=0, tags=[]):
            pass
        case _:
            pytest.fail("a tracked model matches like its class")


def test_copies_and_dumps_are_plain() -> None:
    state = State(parts=[Part(tags=["a"])], nested={"a": [{"b": [Part()]}]}, anything={"x": [1]})
    ways: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]
    for make in ways:
        for value, kind in ((state.parts, list), (state.nested, dict), (state.parts[0], Part), (state.anything, dict)):
            copied = make(value)
            assert type(copied) is kind
            assert copied == value
            assert containers(copied) == []
        again = make(state)
        assert type(again) is State
        assert again == state
        assert not is_dirty(again)
        again.parts[0].tags.append("b")
        assert drain(again) == [{"op": "add", "path": "/parts/0/tags/1", "value": "b"}]
    assert drain(state) == []
    dumped = state.model_dump()
    assert type(dumped["parts"]) is list
    assert type(dumped["parts"][0]) is dict
    assert type(dumped["nested"]["a"][0]["b"]) is list
    assert type(dumped["anything"]["x"]) is list
    assert State.model_validate_json(state.model_dump_json()) == state
    assert type(state.parts[0].model_copy(update={"n": 4})) is Part


def test_model_copy_and_construct() -> None:
    state = State(count=1)
    other = state.model_copy(update={"count": 2, "parts": [Part()]})
    assert (state.count, other.count) == (1, 2)
    assert State.model_construct(parts=[Part()]).parts[0].n == 0
    with pytest.raises(UnstorableState, match="/count: "):
        State.model_construct(count=object())  # type: ignore[arg-type]


def test_a_part_is_no_state() -> None:
    state = State()
    with pytest.raises(StateError, match="a part of a state"):
        drain(state.child)
    with pytest.raises(StateError, match="not a state"):
        drain(Part())  # type: ignore[arg-type]


def test_fields_cannot_be_deleted_and_unknown_ones_not_set() -> None:
    state = State()
    with pytest.raises(InvalidValue, match="^/count: a declared field cannot be deleted"):
        del state.count
    with pytest.raises(ValueError, match="no field"):
        state.nothing = 1  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no field"):
        state.part.nothing = 1  # type: ignore[attr-defined]


def test_extra_fields() -> None:
    class Loose(DeltaState):
        model_config = ConfigDict(extra="allow")
        x: int = 0

    class Typed(DeltaState):
        model_config = ConfigDict(extra="allow")
        __pydantic_extra__: dict[str, list[int]]

    loose: Any = Loose(y=[1])
    follower = Follower(loose)
    loose.y.append(2)
    loose.z = {"a": []}
    loose.z["a"].append(1)
    follower.drain()
    loose.z["a"].append(2)
    assert follower.drain() == [{"op": "add", "path": "/z/a/1", "value": 2}]
    del loose.z
    assert follower.drain() == [{"op": "remove", "path": "/z"}]
    assert from_json(Loose, to_json(loose), 1) == loose
    with pytest.raises(InvalidValue, match="^/w/0: JSON cannot hold nan"):
        loose.w = [float("nan")]
    typed: Any = Typed(a=["1"])
    follower = Follower(typed)
    typed.a.append(2)
    typed.b = ["3"]
    follower.drain()
    assert to_json(typed) == {"a": [1, 2], "b": [3]}
    with pytest.raises(InvalidValue, match="^/a/2: "):
        typed.a.append("x")


def test_what_is_built_is_not_built_again() -> None:
    state = State(count=3, part=Part(n=1), parts=[Part(n=2)])
    follower = Follower(state)
    with pytest.raises(StateError, match="this State was built already"):
        state.__init__(count=7)  # type: ignore[misc]
    with pytest.raises(StateError, match="this Part was built already"):
        state.parts[0].__init__(n=7)  # type: ignore[misc]
    with pytest.raises(StateError, match="this Child was built already"):
        state.child.__init__(values=[1])  # type: ignore[misc]
    assert follower.drain() == []
    assert (state.count, state.part.n, state.parts[0].n) == (3, 1, 2)
    state.parts.append(type(state.parts[0])(n=4))
    state.parts[1].kids.append(Part())
    follower.drain()
    assert State.model_validate(state) is state
    state.count = 4
    assert State.model_validate(state) is state
    assert len(follower.drain()) == 1
