"""What is seldom declared or done to a state, and has to hold all the same."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict, defaultdict
from typing import Annotated, Any, cast

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    model_serializer,
    with_config,
)
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from podium.agent.models.delta_state import DeltaState
from podium.state import (
    InvalidState,
    InvalidValue,
    StateLoadError,
    UnstorableState,
    UnsupportedType,
    drain,
    from_json,
    to_json,
)
from tests.unit.podium.state.state_tools import Follower


class Item(BaseModel):
    n: int = 0


def in_order(values: list[int]) -> list[int]:
    if len(values) > 3:
        raise ValueError("too many")
    return sorted(values)


Ordered = Annotated[list[int], AfterValidator(in_order)]


def test_augmented_assignment_of_items() -> None:
    class Nested(DeltaState):
        rows: list[list[int]] = [[1]]
        by_name: dict[str, list[int]] = {"a": [1]}
        sets: dict[str, set[int]] = {"a": {1}}

    state = Nested()
    follower = Follower(state)
    row, named = state.rows[0], state.by_name["a"]
    state.rows[0] += [2]
    state.by_name["a"] += [2]
    state.by_name.update(a=named)
    state.sets["a"] |= {2}
    assert state.rows[0] is row
    assert state.by_name["a"] is named
    assert {step["path"] for step in follower.drain()} == {"/rows/0/1", "/by_name/a/1", "/sets/a/1"}


def test_validators_around_items_run_at_commit() -> None:
    class Checking(DeltaState):
        rows: list[Ordered] = []
        by_name: dict[str, Ordered] = {}
        maybe: Ordered | None = None

    state = Checking(rows=[[2, 1]], by_name={"a": []}, maybe=[3])
    follower = Follower(state)
    assert state.rows == [[1, 2]]
    state.rows[0].append(0)
    state.by_name["a"] += [5, 4]
    assert state.maybe is not None
    state.maybe.append(1)
    follower.drain()
    assert to_json(state) == {"rows": [[0, 1, 2]], "by_name": {"a": [4, 5]}, "maybe": [1, 3]}
    state.rows.append([1])
    state.rows[1] += [2, 3, 4]
    with pytest.raises(InvalidState, match="^/rows/1: .*too many"):
        drain(state)
    state.rows.pop()
    state.by_name["b"] = [1]
    state.by_name["b"] += [1, 2, 3]
    with pytest.raises(InvalidState, match="^/by_name/b: .*too many"):
        drain(state)


def test_unions_of_containers() -> None:
    class Mixed(DeltaState):
        one: list[Item] | Item | str | None = None
        other: set[int] | dict[str, int] | int = 0
        numbers: list[int] | list[str] | set[int] = []
        anything: list[int] | Any = None

    state = Mixed()
    follower = Follower(state)
    for value in ([Item(n=1)], Item(n=2), "x", None):
        state.one = value
        follower.drain()
        assert from_json(Mixed, to_json(state), 1) == state
    state.one = Item()
    state.one.n = 5
    for other in ({1, 2}, {"a": 1}, 7):
        state.other = other
        follower.drain()
        assert from_json(Mixed, to_json(state), 1) == state
    state.numbers = ["a"]
    state.numbers.append("b")
    follower.drain()
    state.numbers.append(1)  # type: ignore[arg-type]
    with pytest.raises(InvalidState, match="^/numbers: it would not load again"):
        drain(state)
    state.numbers.pop()
    with pytest.raises(InvalidValue, match="^/numbers: .*would come back as"):
        state.numbers = {1}
    state.anything = [1]
    state.anything.append(2)
    state.anything = {"x": [1]}
    state.anything["x"].append(2)
    follower.drain()
    with pytest.raises(InvalidValue, match="^/other: "):
        state.other = "x"  # type: ignore[assignment]


def test_limits_of_dicts_and_sets() -> None:
    class Limited(DeltaState):
        counts: Annotated[dict[str, int], Field(max_length=1)] = {}
        tags: Annotated[set[str], Field(min_length=1)] = {"a"}

    state = Limited()
    state.counts["a"] = 1
    state.tags.discard("a")
    state.tags.add("b")
    drain(state)
    state.counts["b"] = 1
    with pytest.raises(InvalidState, match="^/counts: .*at most 1"):
        drain(state)
    del state.counts["b"]
    state.tags.clear()
    with pytest.raises(InvalidState, match="^/tags: .*at least 1"):
        drain(state)


@with_config(ConfigDict(extra="allow"))
class OpenDict(TypedDict):
    title: str


def test_typed_dict_that_takes_more() -> None:
    class Holder(DeltaState):
        movie: OpenDict = {"title": "x"}

    state = Holder()
    movie = cast("dict[str, Any]", state.movie)
    movie["more"] = [1]
    movie["more"].append(2)
    follower_document = to_json(state)
    assert follower_document == {"movie": {"title": "x", "more": [1, 2]}}
    assert from_json(Holder, follower_document, 1) == state


def test_classes_that_write_themselves_are_refused() -> None:
    class ByItself(BaseModel):
        x: int = 0

        @model_serializer
        def short(self) -> int:
            return self.x

    class ByHand:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
            return core_schema.no_info_plain_validator_function(lambda value: value)

    class Holder(DeltaState):
        value: ByItself | None = None

    class Other(DeltaState):
        value: ByHand | None = None

    class State(DeltaState):
        @model_serializer
        def short(self) -> str:
            return "x"

    with pytest.raises(InvalidValue, match="^/value: changes inside a value of type ByItself"):
        Holder().value = ByItself()
    with pytest.raises(InvalidValue, match="^/value: JSON cannot hold it"):
        Other().value = ByHand()
    with pytest.raises(UnsupportedType, match="State has a serializer of its own"):
        State()


def test_dicts_with_behaviour_are_refused() -> None:
    class Defaulting(DeltaState):
        value: defaultdict[str, list[int]] | None = None
        ordered: OrderedDict[str, int] | None = None

    with pytest.raises(InvalidValue, match="^/value: a defaultdict cannot be tracked"):
        Defaulting().value = defaultdict(list)
    with pytest.raises(InvalidValue, match="^/ordered: "):
        Defaulting().ordered = OrderedDict()

    class Undeclared(DeltaState):
        value: Any = None

    with pytest.raises(InvalidValue, match="^/value: a defaultdict cannot be tracked"):
        Undeclared().value = defaultdict(list)


def test_values_that_pydantic_did_not_validate() -> None:
    class Inner(BaseModel):
        pair: tuple[int, list[int]] = (0, [])
        open_: tuple[int, ...] = ()
        frozen: frozenset[int] = frozenset()
        tags: set[int] = set()
        table: dict[str, int] = {}
        rows: list[int] = []
        item: Item = Item()
        needed: int

    class Holder(DeltaState):
        inner: Inner | None = None

    wrong: dict[str, tuple[Any, str]] = {
        "pair": ((1,), "/inner/pair"),
        "open_": ([1], "/inner/open_"),
        "frozen": ([1], "/inner/frozen"),
        "tags": ([1], "/inner/tags"),
        "table": ([1], "/inner/table"),
        "rows": ({1}, "/inner/rows"),
        "item": ({"n": 1}, "/inner/item"),
    }
    for name, (value, path) in wrong.items():
        made = Inner.model_construct(None, needed=1, **cast("dict[str, Any]", {name: value}))
        with pytest.raises(InvalidValue) as caught:
            Holder().inner = made
        assert caught.value.path == path
    with pytest.raises(InvalidValue, match="^/inner/pair/1/0: "):
        Holder().inner = Inner.model_construct(needed=1, pair=cast("Any", (1, ["x"])))
    with pytest.raises(InvalidValue, match="^/inner/needed: the field is required"):
        Holder().inner = Inner.model_construct()  # type: ignore[call-arg]
    state = Holder()
    made = Inner(needed=1)
    del made.rows
    state.inner = made
    assert state.inner is not None
    assert state.inner.rows == []


def test_copies_of_sets_and_tuples() -> None:
    class Holder(DeltaState):
        tags: set[int] = {1}
        pair: tuple[Item, list[int]] = (Item(), [1])

    state = Holder()
    ways: list[Any] = [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]
    for make in ways:
        assert type(make(state.tags)) is set
        assert type(make(state.pair)) is tuple
        assert type(make(state.pair)[0]) is Item
        assert type(make(state.pair)[1]) is list
        assert make(state.pair) == state.pair


def test_private_attributes_live_outside() -> None:
    class Holder(DeltaState):
        _cache: dict[str, int] = PrivateAttr(default_factory=dict)

    state = Holder()
    state._cache = {"a": 1}
    assert copy.deepcopy(state)._cache == {"a": 1}
    del state._cache
    assert not hasattr(state, "_cache")
    assert drain(state) == []


def test_stored_values_that_were_never_valid() -> None:
    class Raw(DeltaState):
        value: bytes | None = None

    with pytest.raises(StateLoadError, match="does not fit .*Raw: /value: bytes have no JSON form"):
        from_json(Raw, {"value": "x"}, 1)
    with pytest.raises(UnstorableState):
        Raw(value=b"x")


def test_custom_written_values_must_read_back() -> None:
    class Odd(DeltaState):
        value: Annotated[int, PlainSerializer(lambda value: f"<{value}>")] = 0

    with pytest.raises(UnstorableState, match="^/value: it would not load again from its JSON"):
        Odd()


def test_keys_that_cannot_be_written() -> None:
    class Holder(DeltaState):
        by_pair: dict[tuple[int, int], int] = {}
        by_name: dict[Annotated[str, Field(min_length=2)], int] = {}

    state = Holder()
    with pytest.raises(InvalidValue, match="^/by_pair/"):
        state.by_pair[1, 2] = 3
    state.by_name["ab"] = 1
    with pytest.raises(InvalidValue, match="^/by_name/a: .*at least 2"):
        state.by_name["a"] = 1
    with pytest.raises(InvalidValue, match="^/by_name"):
        state.by_name["\ud800\ud800"] = 1
