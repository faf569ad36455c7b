"""Models in a state: the state class itself, nested ones, and everything a field may be declared as."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, NotRequired, TypeVar
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    JsonValue,
    PrivateAttr,
    RootModel,
    ValidationError,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType, TypedDict

from chronicle.canonical import encode
from podium.agent.models.delta_state import DeltaState
from podium.state import (
    InvalidState,
    InvalidValue,
    StateError,
    UnstorableState,
    UnsupportedType,
    check,
    drain,
    from_json,
    is_dirty,
    to_json,
)
from podium.state.node import Tracked
from tests.unit.state_tools import Follower, containers


class Part(BaseModel):
    n: int = 0
    tags: list[str] = []
    kids: list[Part] = []

    def grow(self) -> None:
        self.n += 1
        self.tags.append(str(self.n))

    @cached_property
    def twice(self) -> int:
        return 2 * self.n


class Child(DeltaState):
    _version = 7
    values: list[int] = []


class State(DeltaState):
    _version = 3
    _entity_type = "thing"

    count: int = 0
    part: Part = Part()
    maybe: Part | None = None
    parts: list[Part] = []
    nested: dict[str, list[dict[str, list[Part]]]] = {}
    child: Child = Child()
    anything: Any = None


# ------------------------------------------------------------------------------------------------------------- header


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


# ------------------------------------------------------------------------------------------------------------ tracking


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


# --------------------------------------------------------------------------------------------------------------- types


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Word(str, Enum):  # noqa: UP042  as users wrote it before StrEnum
    YES = "yes"


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    toys: list[str] = []


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Point(BaseModel):
    model_config = ConfigDict(frozen=True)
    x: int = 0
    trail: tuple[int, ...] = ()


class Notes(BaseModel):
    model_config = ConfigDict(frozen=True)
    lines: list[str] = []


class Movie(TypedDict):
    title: str
    cast: NotRequired[list[str]]


@dataclass(frozen=True)
class Pair:
    left: int = 0
    right: int = 0


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    value: list[T] = []


Tree = TypeAliasType("Tree", "dict[str, Tree]")
Numbers = RootModel[list[int]]


class Wide(DeltaState):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    moment: datetime | None = None
    clock: time | None = None
    span: timedelta = timedelta()
    price: Decimal = Decimal(0)
    identity: UUID | None = None
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    word: Word | None = None
    url: HttpUrl | None = None
    address: IPv4Address | None = None
    path: PurePosixPath = PurePosixPath("/")
    raw: bytes = b""
    encoded: Base64Bytes | None = None
    big: int = 0
    ratio: float = 0.0
    choice: Literal["a", "b"] = "a"
    positive: Annotated[int, Field(gt=0)] = 1
    pet: Cat | Dog = Cat()
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []
    either: list[int] | list[str] | dict[str, int] = []
    point: Point = Point()
    points: set[Point] = set()
    notes: Notes = Notes()
    movie: Movie = {"title": ""}
    pair: Pair = Pair()
    box: Box[int] = Box[int]()
    numbers: Numbers = Numbers([])
    couple: tuple[Part, list[int]] | None = None
    row: tuple[int, ...] = ()
    colours: dict[Colour, set[Level]] = {}
    sequence: Sequence[int] = []
    mapping: Mapping[str, list[int]] = {}
    frozen: frozenset[str] = frozenset()
    moments: set[datetime] = set()


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


# ---------------------------------------------------------------------------------------------------------- validators


class Guarded(DeltaState):
    low: int = 0
    high: int = 10
    total: int = 0
    parts: Annotated[list[int], Field(max_length=3)] = []
    names: list[str] = []
    checked: dict[str, int] = {}

    @field_validator("names")
    @classmethod
    def no_twins(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names):
            raise ValueError("two names are the same")
        return sorted(names)

    @field_validator("high")
    @classmethod
    def above(cls, high: int, info: Any) -> int:
        if high < info.data.get("low", 0):
            raise ValueError("high is below low")
        return high

    @model_validator(mode="after")
    def in_order(self) -> Guarded:
        if self.low > self.high:
            raise ValueError("low is above high")
        self.total = sum(self.parts)
        return self


def test_model_validators_run_at_commit_and_may_correct() -> None:
    state = Guarded()
    follower = Follower(state)
    state.low = 20
    with pytest.raises(InvalidState, match="low is above high") as caught:
        check(state)
    assert caught.value.path == ""
    assert is_dirty(state)
    with pytest.raises(InvalidState):
        drain(state)
    state.high = 30
    state.parts.extend([1, 2])
    assert {step["path"] for step in follower.drain()} == {"/low", "/high", "/parts", "/total"}
    assert state.total == 3


def test_field_validators_see_the_other_fields() -> None:
    state = Guarded(low=5)
    with pytest.raises(InvalidValue, match="^/high: .*high is below low"):
        state.high = 4


def test_validators_around_containers_run_at_commit() -> None:
    state = Guarded(names=["b"])
    follower = Follower(state)
    state.names.append("a")
    follower.drain()
    assert state.names == ["a", "b"]
    state.names.append("a")
    with pytest.raises(InvalidState, match="^/names: .*two names are the same"):
        drain(state)
    state.names.pop()
    state.parts.extend([1, 2, 3, 4])
    with pytest.raises(InvalidState, match="^/parts: .*at most 3"):
        drain(state)
    state.parts.pop()
    follower.drain()


def test_validators_of_nested_models() -> None:
    class Span(BaseModel):
        start: int = 0
        end: int = 0

        @model_validator(mode="after")
        def forward(self) -> Span:
            if self.end < self.start:
                raise ValueError("it ends before it starts")
            return self

    class Renamed(BaseModel):
        value: int = 0

        @model_validator(mode="before")
        @classmethod
        def from_old(cls, data: Any) -> Any:
            if isinstance(data, dict) and "old" in data:
                data = {"value": data["old"]}
            if isinstance(data, dict) and data.get("value") == 13:
                raise ValueError("not that one")
            return data

    class Holder(DeltaState):
        spans: list[Span] = []
        by_name: dict[str, Span] = {}
        renamed: Renamed = Renamed()

    state = Holder(spans=[Span(), Span()], by_name={"a": Span()})
    follower = Follower(state)
    state.spans[1].start = 5
    with pytest.raises(InvalidState, match="^/spans/1: .*ends before"):
        drain(state)
    state.spans[1].end = 6
    state.spans.append(Span(end=3))
    state.spans[-1].start = 4
    with pytest.raises(InvalidState, match="^/spans/2: "):
        drain(state)
    state.spans[-1].start = 0
    state.by_name["a"].start = 1
    with pytest.raises(InvalidState, match="^/by_name/a: "):
        drain(state)
    state.by_name["a"].end = 1
    state.renamed.value = 13
    with pytest.raises(InvalidState, match="^/renamed: .*not that one"):
        drain(state)
    state.renamed.value = 14
    follower.drain()
    assert from_json(Holder, {"spans": [], "by_name": {}, "renamed": {"old": 4}}, 1).renamed.value == 4


def test_typed_dict_must_be_whole_at_commit() -> None:
    state = Wide(movie={"title": "x"})
    del state.movie["title"]  # type: ignore[misc]
    with pytest.raises(InvalidState, match="^/movie/title: Field required"):
        drain(state)
    state.movie["title"] = "y"
    assert drain(state) == [{"op": "replace", "path": "/movie/title", "value": "y"}]
    with pytest.raises(InvalidValue, match="^/movie/year: no such key"):
        state.movie["year"] = 1  # type: ignore[typeddict-unknown-key]


def test_frozen_models_and_fields() -> None:
    class Fixed(DeltaState):
        name: str = Field("a", frozen=True)
        list_: list[int] = Field([], frozen=True)

    state = Fixed()
    with pytest.raises(ValidationError, match="frozen"):
        state.name = "b"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        state.list_ = []  # type: ignore[misc]
    state.list_.append(1)
    assert drain(state) == [{"op": "add", "path": "/list_/0", "value": 1}]
    wide = Wide()
    with pytest.raises(ValidationError, match="frozen"):
        wide.point.x = 1  # type: ignore[misc]


def test_aliases_private_excluded_and_computed() -> None:
    class Named(DeltaState):
        by_alias: int = Field(0, alias="theAlias")
        secret: list[int] = Field([], exclude=True)
        items: list[int] = Field([], validation_alias="Items", serialization_alias="ITEMS")
        _cache: dict[str, int] = PrivateAttr(default_factory=dict)

        @computed_field  # type: ignore[prop-decorator]
        @property
        def doubled(self) -> int:
            return 2 * self.by_alias

    state = Named(theAlias=3, Items=[1])
    follower = Follower(state)
    state._cache["a"] = 1
    state.secret.append(1)
    assert to_json(state) == {"by_alias": 3, "items": [1]}
    assert drain(state) == []
    state.by_alias = 4
    state.items.append(2)
    assert {step["path"] for step in follower.drain()} == {"/by_alias", "/items/1"}
    again = from_json(Named, to_json(state), 1)
    assert (again.by_alias, again.items, again.secret, again._cache, again.doubled) == (4, [1, 2], [], {}, 8)


def test_excluded_fields_need_a_default() -> None:
    class Lost(DeltaState):
        secret: int = Field(exclude=True)

    with pytest.raises(UnsupportedType, match="Lost.secret is excluded and has no default"):
        Lost(secret=1)


def test_generic_and_recursive_state_classes() -> None:
    class Holder(DeltaState, Generic[T]):
        values: list[T] = []

    class Node(DeltaState):
        name: str = ""
        children: list[Node] = []
        tree: Tree = {}

    holder = Holder[int](values=[1])
    with pytest.raises(InvalidValue, match="^/values/1: "):
        holder.values.append("x")  # type: ignore[arg-type]
    node = Node(children=[Node(name="a", children=[Node(name="b")])])
    follower = Follower(node)
    node.children[0].children[0].name = "c"
    node.children[0].children.append(Node())
    node.tree = {"a": {"b": {}}}
    node.tree["a"]["b"]["c"] = {}
    follower.drain()
    node.tree["a"]["b"]["c"]["d"] = {}
    assert follower.drain() == [{"op": "add", "path": "/tree/a/b/c/d", "value": {}}]
    assert from_json(Node, to_json(node), 1) == node


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    the_name: str = ""


class Mixin(BaseModel):
    marks: list[int] = []

    def bump(self) -> None:
        self.marks.append(1)


class Seat(NamedTuple):
    row: int
    letter: str = "a"


class Strict(DeltaState):
    model_config = ConfigDict(strict=True, frozen=False, extra="forbid")
    row: tuple[int, ...] = ()
    moment: datetime | None = None
    by_day: dict[date, int] = {}
    colour: Colour = Colour.RED
    prices: set[Decimal] = set()


class Values(DeltaState):
    model_config = ConfigDict(use_enum_values=True)
    colours: list[Colour] = []


class Aliased(DeltaState):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    sub_items: list[Camel] = []


class Late(DeltaState):
    model_config = ConfigDict(defer_build=True)
    later: list[Later] = []


class Later(BaseModel):
    values: list[int] = []


class MixedIn(Mixin, DeltaState):
    pass


class MixedOut(DeltaState, Mixin):
    pass


class Stripped(DeltaState):
    model_config = ConfigDict(str_strip_whitespace=True, str_max_length=5)
    words: list[str] = []
    by_word: dict[str, str] = {}


class Revalidating(DeltaState):
    model_config = ConfigDict(validate_assignment=True, revalidate_instances="always")
    mixins: list[Mixin] = []


class Sundry(DeltaState):
    class Inner(BaseModel):
        class Deep(BaseModel):
            values: list[int] = []

        deep: Deep = Deep()

    inner: Inner = Inner()
    json_: JsonValue = None
    seats: list[Seat] = []
    trimmed: list[Annotated[str, AfterValidator(str.strip), Field(min_length=1)]] = []
    ratio: float | int = 0


def fill_strict(state: Strict) -> None:
    state.row = (1, 2)
    state.moment = datetime(2024, 1, 1, tzinfo=UTC)
    state.by_day[date(2024, 1, 1)] = 1
    state.prices.add(Decimal("1.5"))


def fill_aliased(state: Aliased) -> None:
    state.sub_items.append({"theName": "x"})  # type: ignore[arg-type]
    state.sub_items[0].the_name += "y"


def fill_late(state: Late) -> None:
    state.later.append(Later())
    state.later[0].values.append(1)


def fill_stripped(state: Stripped) -> None:
    state.words.append(" a ")
    state.by_word[" k "] = " v "
    assert (state.words, state.by_word) == (["a"], {"k": "v"})
    with pytest.raises(InvalidValue, match="^/words/1: .*at most 5"):
        state.words.append("123456")


def fill_revalidating(state: Revalidating) -> None:
    state.mixins.append(Mixin())
    state.mixins[0].bump()
    state.mixins = [*state.mixins, Mixin()]
    state.mixins[0].bump()


def fill_sundry(state: Sundry) -> None:
    state.inner.deep.values.append(1)
    state.json_ = {"a": [1]}
    state.json_["a"].append({"b": None})  # type: ignore[union-attr]
    state.seats.append(Seat(1, "b"))
    state.trimmed.append(" a ")
    state.ratio = 1.5
    with pytest.raises(InvalidValue, match="^/trimmed/1: "):
        state.trimmed.append("  ")


CONFIGURED: list[tuple[Callable[[], DeltaState], Callable[[Any], object]]] = [
    (Strict, fill_strict),
    (Values, lambda state: state.colours.append(Colour.RED)),
    (Aliased, fill_aliased),
    (Late, fill_late),
    (MixedIn, lambda state: state.bump()),
    (MixedOut, lambda state: state.bump()),
    (Stripped, fill_stripped),
    (Revalidating, fill_revalidating),
    (Sundry, fill_sundry),
]


@pytest.mark.parametrize(("make", "fill"), CONFIGURED, ids=range(len(CONFIGURED)))
def test_pydantic_configurations(make: Callable[[], DeltaState], fill: Callable[[Any], object]) -> None:
    state = make()
    follower = Follower(state)
    fill(state)
    assert follower.drain()
    again = from_json(type(state), to_json(state), 1)
    assert again == state


def test_validators_that_change_what_they_read_are_refused() -> None:
    class Doubling(DeltaState):
        values: list[Annotated[int, AfterValidator(lambda value: 2 * value)]] = []

    with pytest.raises(InvalidValue, match="^/values/0: it would come back from its JSON as 4"):
        Doubling().values.append(1)


def test_another_container_of_the_same_type_is_plain() -> None:
    state = Wide(couple=(Part(), []), colours={Colour.RED: set()}, numbers=Numbers([1]))
    assert state.couple is not None
    values: list[Any] = [state.couple, state.couple[1], state.colours, state.colours[Colour.RED], state.numbers.root]
    for value in values:
        again = type(value)(value)
        assert again == value
        assert not isinstance(again, Tracked)


def test_hooks_of_user_classes_do_not_see_tracked_ones() -> None:
    seen: list[str] = []

    class Hooked(BaseModel):
        x: int = 0

        def __init_subclass__(cls, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            seen.append(cls.__name__)

    class Holder(DeltaState):
        value: Hooked = Hooked()

    assert isinstance(Holder().value, Tracked)
    assert seen == []


def test_user_code_in_construction_sees_a_state_like_any_model() -> None:
    class Busy(DeltaState):
        values: list[int] = []
        _seen: int = PrivateAttr(0)

        def model_post_init(self, context: Any, /) -> None:
            self.values.append(1)
            self._seen = 5

        @model_validator(mode="after")
        def more(self) -> Busy:
            if len(self.values) < 2:
                self.values.append(2)
            return self

    state = Busy()
    assert state.values == [1, 2]
    assert state._seen == 5
    assert drain(state) == []
