"""Tuples: plain values while their items are immutable, tracked containers otherwise."""

# Not every shape uses all arguments of the protocol.
# ruff: noqa: ARG002
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

from podium.state.tracked.node import Refusal, Tracked, TrackingNode, check_depth, link
from podium.state.tracked.plain_values import plain
from podium.state.tracked.shape import Declared, Shape

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

    from chronicle.canonical import Json
    from podium.state.pointer import Token

__all__ = ["TrackedTuple", "TupleShape"]

T = TypeVar("T")


class TrackedTuple(Tracked, tuple[T, ...]):  # noqa: SLOT001  a variable-length tuple cannot have slots
    """A tuple that contains tracked containers. It is immutable itself, so indexes are permanent."""

    _podium: TrackingNode

    def __new__(cls, *given: Any) -> Any:
        """Return a plain tuple: ``type(items)(...)`` builds a tuple outside of any state."""
        return tuple(*given)

    def __copy__(self) -> tuple[T, ...]:
        return tuple(plain(item) for item in self)

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[T, ...]:
        memo[id(self)] = copied = self.__copy__()
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return (tuple, (self.__copy__(),))


class TupleShape(Declared):
    """A declared tuple.

    Args:
        items: the shapes of its items, in order.
        rest: the index in ``items`` of the shape that repeats any number of times; ``None`` for a fixed length.
        validator: pydantic's for the declared type.
    """

    __slots__ = ("_items", "_rest")

    def __init__(self, items: Sequence[Shape], rest: int | None, validator: SchemaValidator) -> None:
        super().__init__(validator)
        self._items = items
        self._rest = rest

    @property
    def leaf(self) -> bool:
        return all(item.leaf for item in self._items)

    def fits(self, value: object) -> bool:
        return isinstance(value, tuple)

    def copy_in(self, value: object, depth_left: int) -> object:
        if not isinstance(value, tuple) or hasattr(value, "_fields"):
            raise Refusal(f"a {type(value).__name__} stands where a tuple is declared")
        check_depth(depth_left)
        kept: list[object] = []
        shapes = self._shapes(len(value))
        try:
            for shape, item in zip(shapes, value, strict=True):
                kept.append(shape.copy_in(item, depth_left - 1))
        except Refusal as refusal:
            refusal.tail.append(len(kept))
            raise
        if not any(isinstance(item, Tracked) for item in kept):
            return tuple(kept)
        tracked: TrackedTuple[object] = tuple.__new__(TrackedTuple, kept)
        tracked._podium = TrackingNode(self)
        for index, item in enumerate(tracked):
            link(item, tracked, index)
        return tracked

    def encode(self, value: object) -> Json:
        assert isinstance(value, tuple)
        return [shape.encode(item) for shape, item in zip(self._shapes(len(value)), value, strict=True)]

    def slot(self, key: int, length: int) -> Shape:
        """Return the shape of the item at ``key`` in a tuple of ``length`` items."""
        return self._shapes(length)[key]

    def tokens_of(self, owner: object, child: Tracked) -> tuple[Token, ...]:
        """Return the path tokens from a tuple to a child."""
        return (child._podium.key,)

    def _shapes(self, length: int) -> Sequence[Shape]:
        rest = self._rest
        if rest is None:
            if len(self._items) != length:
                raise Refusal(f"it has {length} items where {len(self._items)} are declared")
            return self._items
        repeated = length - len(self._items) + 1
        if repeated < 0:
            raise Refusal(f"it has {length} items where {len(self._items) - 1} or more are declared")
        return [*self._items[:rest], *[self._items[rest]] * repeated, *self._items[rest + 1 :]]
