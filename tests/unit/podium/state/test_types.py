"""What a field may be declared as, and what is refused: each value comes back from its JSON as what it was."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import (
    BaseModel,
    Field,
    HttpUrl,
    ValidationError,
    field_serializer,
)

from chronicle.canonical import encode
from podium.agent.models.delta_state import DeltaState
from podium.state import (
    InvalidValue,
    UnstorableState,
    UnsupportedType,
    drain,
    from_json,
    is_dirty,
    to_json,
)
from tests.unit.podium.state.state_classes import (
    Box,
    Cat,
    Child,
    Colour,
    Dog,
    Level,
    Notes,
    Numbers,
    Pair,
    Part,
    Point,
    State,
    Wide,
    Word,
)
from tests.unit.podium.state.state_tools import Follower

VALUES: dict[str, list[Any]] = {
    "moment": [datetime(2024, 2, 29, 1, 2, 3, 456789, tzinfo=UTC), datetime(1, 1, 1)],  # noqa: DTZ001
    "clock": [time(1, 2, 3, 4)],
    "span": [timedelta(days=-3, microseconds=1), timedelta(days=999_999)],
    "price": [Decimal("1.10"), Decimal("1E+50"), Decimal("-0.0")],
    "identity": [UUID(int=7)],
    "colour": [Colour.RED],
    "level": [Level.LOW],
    "word": [Word.YES],
    "url": [HttpUrl("http://example.org/a?b=c")],
    "address": [IPv4Address("127.0.0.1")],
    "path": [PurePosixPath("/a/b")],
    "raw": [b"\x00\xff", b""],
    "encoded": [b"aGk="],
    "big": [2**64, -(2**200), 10**4299],
    "ratio": [1e300, 5e-324, 0.1, -0.0, 1e16, 123456789012345680.0],
    "choice": ["b"],
    "positive": [5],
    "pet": [Dog(tricks=["sit"]), Cat(toys=["ball"])],
    "pets": [[Dog(), Cat()]],
    "either": [["a"], [1], {"a": 1}, []],
    "point": [Point(x=1, trail=(1, 2))],
    "points": [{Point(x=1), Point(x=2, trail=(3,))}],
    "notes": [Notes(lines=["a"])],
    "movie": [{"title": "x", "cast": ["y"]}, {"title": "z"}],
    "pair": [Pair(1, 2)],
    "box": [Box[int](value=[1])],
    "numbers": [Numbers([1, 2])],
    "couple": [(Part(n=3), [1]), None],
    "row": [(1, 2, 3), ()],
    "colours": [{Colour.RED: {Level.LOW}}],
    "sequence": [[1, 2]],
    "mapping": [{"a": [1]}],
    "frozen": [frozenset({"b", "a"})],
    "moments": [{datetime(2024, 1, 1, tzinfo=UTC)}],
}


@pytest.mark.parametrize("name", VALUES)
def test_type_comes_back(name: str) -> None:
    state = Wide()
    follower = Follower(state)
    for value in VALUES[name]:
        setattr(state, name, value)
        follower.drain()
        again = from_json(Wide, to_json(state), 1)
        assert getattr(again, name) == getattr(state, name)
        assert encode(to_json(again)) == encode(to_json(state))
        plainly = getattr(copy.deepcopy(state), name)
        assert plainly == getattr(state, name)


def test_changes_inside_all_kinds_of_containers() -> None:
    state = Wide(
        pets=[Cat(), Dog()], couple=(Part(), [1]), mapping={"a": []}, either=["x"], colours={Colour.RED: set()}
    )
    follower = Follower(state)
    assert isinstance(state.pet, Cat)
    state.pet.toys.append("a")
    assert isinstance(state.pets[1], Dog)
    state.pets[1].tricks.append("b")
    assert isinstance(state.either, list)
    state.either.append("y")  # type: ignore[arg-type]
    state.notes.lines.append("c")
    state.movie["cast"] = ["d"]
    state.movie["cast"].append("e")
    state.box.value.append(1)
    state.numbers.root.append(2)
    assert state.couple is not None
    state.couple[0].grow()
    state.couple[1].append(2)
    state.mapping["a"].append(3)
    state.colours[Colour.RED].add(Level.LOW)
    follower.drain()
    state.numbers.root.append(3)
    state.couple[1].append(3)
    state.movie["cast"].pop(0)
    assert {step["path"] for step in follower.drain()} == {"/numbers/1", "/couple/1/2", "/movie/cast/0"}
    state.numbers.root = [9, 9]
    assert [step["path"] for step in follower.drain()] == ["/numbers"]
    assert from_json(Wide, to_json(state), 1) == state


BAD_N: dict[str, Any] = {"n": "x"}
BAD_TAGS: dict[str, Any] = {"tags": [float("nan")]}
REFUSED: list[tuple[str, Any, str]] = [
    ("anything", float("nan"), "/anything"),
    ("anything", {"a": [1, float("-inf")]}, "/anything/a/1"),
    ("anything", {"a/b": {"~": b"x"}}, "/anything/a~1b/~0"),
    ("anything", bytearray(b"x"), "/anything"),
    ("anything", {"a": {1: 2}}, "/anything/a/1"),
    ("anything", object(), "/anything"),
    ("anything", [{1, 2}], "/anything/0"),
    ("anything", datetime(2024, 1, 1, tzinfo=UTC), "/anything"),
    ("anything", Part(), "/anything"),
    ("anything", Colour.RED, "/anything"),
    ("anything", "\ud800", "/anything"),
    ("anything", 10**4300, "/anything"),
    ("anything", 1j, "/anything"),
    ("anything", lambda: None, "/anything"),
    ("count", "x", "/count"),
    ("count", None, "/count"),
    ("parts", [Part(), {"n": "x"}], "/parts/1/n"),
    ("parts", [Part.model_construct(**BAD_N)], "/parts/0/n"),
    ("parts", [Part.model_construct(**BAD_TAGS)], "/parts/0/tags/0"),
    ("nested", {"a": [{"b": [{"kids": [{"tags": [1]}]}]}]}, "/nested/a/0/b/0/kids/0/tags/0"),
    ("child", Child.model_construct(values=[1]).values, "/child"),
]


@pytest.mark.parametrize(("name", "value", "path"), REFUSED, ids=range(len(REFUSED)))
def test_refused_with_the_path(name: str, value: object, path: str) -> None:
    state = State()
    before = to_json(state)
    with pytest.raises(InvalidValue) as caught:
        setattr(state, name, value)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")
    assert to_json(state) == before
    assert not is_dirty(state)


def test_refused_when_built() -> None:
    with pytest.raises(UnstorableState, match="^/anything/a/0: JSON cannot hold nan"):
        State(anything={"a": [float("nan")]})
    with pytest.raises(ValidationError):
        State(count="x")

    class Unset(DeltaState):
        name: str = None  # type: ignore[assignment]  # as users write it

    with pytest.raises(ValidationError):
        Unset()


def test_plain_subclasses_of_json_types_become_plain_values() -> None:
    state = State(anything=[Word.YES, Level.LOW, True])
    assert [type(value) for value in state.anything] == [str, int, bool]
    state.anything = (1, (2, 3))
    assert state.anything == [1, [2, 3]]


def test_nesting_is_limited_to_what_can_be_read_back() -> None:
    deep: list[Any] = []
    for _ in range(125):
        deep = [deep]
    state = State(anything=deep)
    assert from_json(State, to_json(state), 3) == state
    with pytest.raises(InvalidValue, match="nested too deep"):
        state.anything = [[deep]]
    here = state.anything
    while here:
        here = here[0]
    here.append([])
    with pytest.raises(InvalidValue, match="nested too deep"):
        here[0].append([])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidValue, match="nested too deep"):
        state.anything = endless


class Plain:
    pass


@dataclass
class Mutable:
    x: int = 0


def test_types_that_cannot_be_tracked_are_refused() -> None:
    class ByDataclass(DeltaState):
        value: Mutable = Mutable()

    class BySerializer(DeltaState):
        value: list[int] = []

        @field_serializer("value")
        def joined(self, value: list[int]) -> str:
            return ",".join(map(str, value))

    class ByBytes(DeltaState):
        value: bytes | None = None

    class Subclass(Part):
        more: int = 0

    with pytest.raises(UnstorableState, match="^/value: changes inside a value of type Mutable"):
        ByDataclass()
    with pytest.raises(UnstorableState, match="^/value: changes inside a value of type list"):
        BySerializer()
    with pytest.raises(InvalidValue, match="^/value: bytes have no JSON form"):
        ByBytes().value = b"x"
    with pytest.raises(InvalidValue, match="^/part: a Subclass would come back"):
        State().part = Subclass()


def test_ambiguous_unions_are_refused_until_told_apart() -> None:
    class One(BaseModel):
        x: int = 0

    class Other(BaseModel):
        x: int = 0
        y: int = 0

    class Choice(DeltaState):
        value: One | Other | None = None
        moment: datetime | str = ""

    state = Choice()
    follower = Follower(state)
    state.value = Other(y=1)
    state.moment = "tomorrow"
    follower.drain()
    state.value = One()
    follower.drain()
    state.moment = datetime(2024, 1, 1, tzinfo=UTC)
    follower.drain()
    with pytest.raises(InvalidValue, match="^/moment: .*would come back as"):
        state.moment = "2024-01-01T00:00:00"
    assert follower.drain() == []


class Apart(DeltaState):
    price: Decimal = Decimal("1.1")
    prices: list[Decimal] = [Decimal("1.1")]
    by_name: dict[str, Decimal] = {"a": Decimal("1.1")}
    moment: datetime = datetime(2024, 1, 1, 12, tzinfo=UTC)
    row: tuple[Decimal, ...] = (Decimal("1.1"),)
    frozen: frozenset[Decimal] = frozenset({Decimal("1.1")})
    ratio: float = 0.0
    limited: Annotated[float, Field(ge=-1)] = 0.0
    ratios: list[float] = []
    anything: Any = None


def test_values_that_are_equal_and_written_apart_are_changes() -> None:
    state = Apart()
    follower = Follower(state)
    later = datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    state.price = state.prices[0] = state.by_name["a"] = Decimal("1.10")
    state.moment = later
    state.row = (Decimal("1.10"),)
    state.frozen = frozenset({Decimal("1.10")})
    assert str(state.price) == str(state.prices[0]) == str(state.by_name["a"]) == "1.10"
    assert state.moment.utcoffset() == timedelta(hours=2)
    assert len(follower.drain()) == 6
    state.prices[:] = [Decimal("1.100")]
    assert str(state.prices[0]) == "1.100"
    assert len(follower.drain()) == 1
    state.price, state.moment = Decimal("1.10"), later
    assert follower.drain() == []


def test_there_is_no_negative_zero() -> None:
    """JSON has none, so it would not come back."""
    state = Apart(ratio=-0.0)
    state.limited = -0.0
    state.ratios.append(-0.0)
    state.anything = [-0.0, {"a": -0.0}]
    values = [state.ratio, state.limited, state.ratios[0], state.anything[0], state.anything[1]["a"]]
    assert [math.copysign(1, value) for value in values] == [1] * 5


def test_a_utc_offset_with_seconds_is_refused() -> None:
    state = Wide()
    with pytest.raises(InvalidValue, match=r"^/moment: its UTC offset of 0:53:28 has seconds"):
        state.moment = datetime(1800, 1, 1, tzinfo=timezone(timedelta(minutes=53, seconds=28)))
    with pytest.raises(InvalidValue, match="^/clock: its UTC offset"):
        state.clock = time(1, tzinfo=timezone(timedelta(seconds=-1)))
    assert drain(state) == []


def test_what_is_written_as_null_is_refused_where_none_may_stand() -> None:
    class Answer(Enum):
        YES = "yes"
        UNKNOWN = None

    class Asked(DeltaState):
        maybe: Answer | None = None
        sure: Answer = Answer.UNKNOWN

    state = Asked()
    follower = Follower(state)
    with pytest.raises(InvalidValue, match="^/maybe: <Answer.UNKNOWN: None> is written as null"):
        state.maybe = Answer.UNKNOWN
    state.maybe = Answer.YES
    follower.drain()
    again = from_json(Asked, to_json(state), 1)
    assert (again.maybe, again.sure) == (Answer.YES, Answer.UNKNOWN)


def test_a_model_of_any_class_cannot_be_declared() -> None:
    class Holder(DeltaState):
        value: BaseModel | None = None

    with pytest.raises(UnsupportedType, match="BaseModel itself declares no fields"):
        Holder()


HOSTILE_KEYS = [
    "",
    "/",
    "~",
    "~0",
    "~1",
    "a/b~c",
    "0",
    "-",
    "é",
    "\U0001f600",
    "\x00",
    "\n",
    '"',
    "\u2028",
    "__class__",
]


@pytest.mark.parametrize("key", HOSTILE_KEYS, ids=range(len(HOSTILE_KEYS)))
def test_keys_are_any_text(key: str) -> None:
    state = State()
    follower = Follower(state)
    state.anything = {key: {key: [1]}}
    follower.drain()
    state.anything[key][key].append(2)
    state.nested[key] = [{key: [Part(n=1)]}]
    follower.drain()
    state.nested[key][0][key][0].tags.append(key)
    state.anything[key][key] = key
    follower.drain()
    assert from_json(State, to_json(state), 3) == state
    del state.anything[key]
    state.nested.pop(key)
    follower.drain()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e400, Decimal("NaN"), Decimal("-Infinity")], ids=str)
def test_what_is_no_number_is_refused_everywhere(value: Any) -> None:
    class Numbers_(DeltaState):  # noqa: N801
        one: float = 0.0
        maybe: float | None = None
        either: int | float = 0
        exact: Decimal = Decimal(0)
        many: list[float] = []
        named: dict[str, float] = {}
        row: tuple[float, ...] = ()
        bag: set[float] = set()
        anything: Any = None

    state = Numbers_()
    places: list[tuple[str, Callable[[], object]]] = [
        ("/one", lambda: setattr(state, "one", value)),
        ("/maybe", lambda: setattr(state, "maybe", value)),
        ("/either", lambda: setattr(state, "either", value)),
        ("/exact", lambda: setattr(state, "exact", value)),
        ("/many/1", lambda: state.many.extend([1.0, value])),
        ("/named/a", lambda: state.named.update(a=value)),
        ("/row/1", lambda: setattr(state, "row", (1.0, value))),
        ("/bag", lambda: state.bag.add(value)),
        ("/anything/0/a/1", lambda: setattr(state, "anything", [{"a": [1, value]}])),
    ]
    for path, put in places:
        with pytest.raises(InvalidValue, match=f"^{path}: "):
            put()
    assert drain(state) == []
