"""Declaring state classes: configurations, aliases, generics, mixins and hooks of pydantic's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    ValidationError,
    computed_field,
    model_validator,
)
from pydantic.alias_generators import to_camel

from podium.agent.models.delta_state import DeltaState
from podium.state import (
    InvalidValue,
    UnsupportedType,
    drain,
    from_json,
    to_json,
)
from podium.state.tracked.node import Tracked
from tests.unit.podium.state.state_classes import (
    Colour,
    Numbers,
    Part,
    T,
    Tree,
    Wide,
)
from tests.unit.podium.state.state_tools import Follower


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


def test_models_that_take_assignments_themselves_are_refused() -> None:
    class Follows(BaseModel):
        n: int = 0
        doubled: int = 0

        if not TYPE_CHECKING:

            def __setattr__(self, name: str, value: Any) -> None:
                super().__setattr__(name, value)
                if name == "n":
                    super().__setattr__("doubled", 2 * value)

    class Holder(DeltaState):
        value: Follows = Follows()

    class Root(DeltaState):
        n: int = 0
        doubled: int = 0

        if not TYPE_CHECKING:

            def __setattr__(self, name: str, value: Any) -> None:
                super().__setattr__(name, value)
                if name == "n":
                    self.doubled = 2 * value

    with pytest.raises(UnsupportedType, match="Follows defines __setattr__, which tracked instances have of their own"):
        Holder()
    state = Root()  # what it calls is the tracking one
    follower = Follower(state)
    state.n = 4
    assert len(follower.drain()) == 2
    assert to_json(state) == {"n": 4, "doubled": 8}
