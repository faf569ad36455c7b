"""Validators: when they run, what they may change, and what they may not."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    field_validator,
    model_validator,
)

from podium.agent.models.delta_state import DeltaState
from podium.state import (
    InvalidState,
    InvalidValue,
    StateLoadError,
    check,
    drain,
    from_json,
    is_dirty,
    to_json,
)
from tests.unit.podium.state.state_classes import (
    Wide,
)
from tests.unit.podium.state.state_tools import Follower


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


def test_validators_that_change_what_they_read_are_refused() -> None:
    class Doubling(DeltaState):
        values: list[Annotated[int, AfterValidator(lambda value: 2 * value)]] = []

    with pytest.raises(InvalidValue, match="^/values/0: it would come back from its JSON as 4"):
        Doubling().values.append(1)


def test_validators_that_change_what_they_made_are_refused_at_commit() -> None:
    class Shifting(BaseModel):
        low: int = 0
        high: int = 0

        @field_validator("high")
        @classmethod
        def above(cls, high: int, info: Any) -> int:
            return high + int(info.data.get("low", 0))

    class Holder(DeltaState):
        shifting: Shifting = Shifting()

    state = Holder()
    follower = Follower(state)
    state.shifting.high = 3
    follower.drain()
    state.shifting.low = 1
    with pytest.raises(InvalidState, match="^/shifting/high: its validators are not idempotent"):
        drain(state)
    state.shifting.low = 0
    follower.drain()


def test_a_model_validator_must_not_return_another_instance() -> None:
    class Replaced(BaseModel):
        n: int = 0

        @model_validator(mode="after")
        def capped(self) -> Replaced:
            return self.model_copy(update={"n": min(self.n, 10)})

    class Holder(DeltaState):
        part: Replaced | None = None

    state = Holder()
    follower = Follower(state)
    state.part = {"n": 20}  # type: ignore[assignment]
    assert state.part is not None
    assert state.part.n == 10
    state.part.n = 5
    follower.drain()
    state.part.n = 11
    with pytest.raises(InvalidState, match="^/part: a model validator returned another instance"):
        drain(state)


def test_whatever_a_validator_raises_refuses_the_state() -> None:
    """pydantic makes a ValidationError of ValueError and AssertionError only."""

    class Lookup(DeltaState):
        known: dict[str, int] = {}
        name: str = ""

        @model_validator(mode="after")
        def is_known(self) -> Lookup:
            if self.name:
                self.known[self.name]
            return self

    state = Lookup()
    state.name = "x"
    with pytest.raises(InvalidState, match="a validator raised KeyError: 'x'"):
        drain(state)
    with pytest.raises(StateLoadError, match="a validator raised KeyError: 'x'"):
        from_json(Lookup, {"known": {}, "name": "x"}, 1)


def test_what_an_init_of_its_own_cannot_read_is_refused_at_commit() -> None:
    class Named(BaseModel):
        name: str

        def __init__(self, full: str) -> None:
            super().__init__(name=full)

    class Holder(DeltaState):
        named: Named | None = None

    state = Holder()
    state.named = Named("x")
    with pytest.raises(InvalidState, match="^/named: a validator raised TypeError: .*unexpected keyword"):
        drain(state)
    state.named = None
    assert drain(state) == []


def test_validators_around_containers_may_write_them_otherwise() -> None:
    def rounded(values: list[Decimal]) -> list[Decimal]:
        return [value.quantize(Decimal("0.01")) for value in values]

    class Bill(DeltaState):
        items: Annotated[list[Decimal], AfterValidator(rounded)] = []

    state = Bill()
    follower = Follower(state)
    state.items.append(Decimal("1.5"))
    follower.drain()
    assert to_json(state) == {"items": ["1.50"]}
