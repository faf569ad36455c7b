"""State classes that several tests use: a deep one, and one with a field of every type that can be declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar
from uuid import UUID

from pydantic import (
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    RootModel,
)
from typing_extensions import TypeAliasType, TypedDict

from podium.agent.models.delta_state import DeltaState


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
