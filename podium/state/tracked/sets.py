"""Tracked sets and frozensets: stored as arrays, sorted by the canonical JSON of their items.

A set has no order and an array has one, so the order is defined by the bytes of each item's canonical JSON. Equal sets
are then equal documents, and adding or removing an item is one operation at its index in that order.
"""

# Not every shape uses all arguments of the protocol.
# ruff: noqa: ARG002
from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeVar, cast

from chronicle.canonical import Json, decode, encode
from podium.state.guard import current_permit
from podium.state.tracked.guarded import check_access, guard_of, guarded
from podium.state.tracked.node import Refusal, Tracked, TrackingNode, check_depth, mark_changed, refused
from podium.state.tracked.scalars import Scalar
from podium.state.tracked.shape import Declared, DeclaredItems, Shape

if TYPE_CHECKING:
    from typing import Self

    from pydantic_core import SchemaValidator

    from podium.state.pointer import Token

__all__ = ["FrozenSetShape", "SetShape", "TrackedSet", "set_changes"]

T = TypeVar("T")

_set_add: Final = set.add
_set_remove: Final = set.remove


class _SetNode(TrackingNode):
    """The bookkeeping of a set.

    ``olds`` is keyed by the canonical JSON of items: whether an item was in the set at the last drain, and is now.

    Attributes:
        order: the canonical JSON of the items at the last drain, sorted; ``None`` until first used.
    """

    __slots__ = ("order",)

    def __init__(self, shape: SetShape, size: int) -> None:
        super().__init__(shape, size)
        self.order: list[bytes] | None = None


class TrackedSet(Tracked, set[T]):
    """A set in a state. Added items are validated; they are immutable, so nothing is copied."""

    __slots__ = ("_podium",)

    _podium: _SetNode

    def __new__(cls, *given: Any) -> Any:
        """Return a plain set: ``type(items)(...)`` builds a set outside of any state."""
        return set(*given)

    def __init__(self, items: Iterable[T] = (), /) -> None:  # only by an explicit second call: see __new__
        given = [self._accept(item) for item in items]
        self.clear()
        self.update(given)

    def add(self, item: T) -> None:
        guard = self._podium.guard or guard_of(self)
        with guard.lock:
            if current_permit() is not guard.permit:
                check_access(guard, self)
            self._put(self._accept(item))

    def discard(self, item: object) -> None:
        guard = self._podium.guard or guard_of(self)
        with guard.lock:
            if current_permit() is not guard.permit:
                check_access(guard, self)
            if item in self:
                self._drop(self._own(cast("T", item)))

    @guarded
    def remove(self, item: T) -> None:
        if item not in self:
            super().remove(item)  # raises what set raises
        self._drop(self._own(item))

    @guarded
    def pop(self) -> T:
        if not self:
            return super().pop()  # raises what set raises
        item = next(iter(self))
        self._drop(item)
        return item

    @guarded
    def clear(self) -> None:
        for item in list(self):
            self._drop(item)

    def update(self, *others: Iterable[T]) -> None:
        self._update([list(other) for other in others])

    @guarded
    def _update(self, given: list[list[T]]) -> None:
        for item in [self._accept(item) for items in given for item in items]:
            self._put(item)

    def difference_update(self, *others: Iterable[Any]) -> None:
        self._difference_update([list(other) for other in others])

    @guarded
    def _difference_update(self, given: list[list[Any]]) -> None:
        for items in given:
            for item in items:
                self.discard(item)

    def intersection_update(self, *others: Iterable[Any]) -> None:
        self._intersection_update([list(other) for other in others])

    @guarded
    def _intersection_update(self, given: list[list[Any]]) -> None:
        for item in self.difference(self.intersection(*given)):
            self._drop(item)

    def symmetric_difference_update(self, other: Iterable[T]) -> None:
        self._symmetric_difference_update(set(other))

    @guarded
    def _symmetric_difference_update(self, given: set[T]) -> None:
        for item in [self._accept(item) for item in given]:
            if item in self:
                self._drop(self._own(item))
            else:
                self._put(item)

    def __ior__(self, other: AbstractSet[T]) -> Self:  # type: ignore[override,misc]
        if not isinstance(other, AbstractSet):
            return NotImplemented
        self.update(other)
        return self

    def __iand__(self, other: AbstractSet[object]) -> Self:
        if not isinstance(other, AbstractSet):
            return NotImplemented
        self.intersection_update(other)
        return self

    def __isub__(self, other: AbstractSet[object]) -> Self:
        if not isinstance(other, AbstractSet):
            return NotImplemented
        self.difference_update(other)
        return self

    def __ixor__(self, other: AbstractSet[T]) -> Self:  # type: ignore[override,misc]
        if not isinstance(other, AbstractSet):
            return NotImplemented
        self.symmetric_difference_update(other)
        return self

    def __repr__(self) -> str:
        return repr(set(self))

    def __copy__(self) -> set[T]:
        return set(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> set[T]:
        memo[id(self)] = copied = set(self)
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return (set, (list(self),))

    def _accept(self, item: object) -> T:
        try:
            return cast("T", self._podium.shape.accept_item(item))
        except Refusal as refusal:
            raise refused(self, refusal) from refusal.__cause__

    def _own(self, item: T) -> T:
        """Return the set's own item equal to ``item``: 1, True and 1.0 are equal, and differ in JSON."""
        shape = self._podium.shape.item
        if type(item) is str or (isinstance(shape, Scalar) and shape.fits(item)):
            return item
        return next(own for own in self if own == item)

    def _put(self, item: T) -> None:
        if item not in self:
            self._note(item, now=True)
            _set_add(self, item)

    def _drop(self, item: T) -> None:
        self._note(item, now=False)
        _set_remove(self, item)

    def _note(self, item: T, *, now: bool) -> None:
        node = self._podium
        olds = node.olds
        if olds is None:
            olds = node.olds = {}
        text = encode(node.shape.item.encode(item))
        noted = olds.get(text)
        olds[text] = (noted[0] if noted else not now, now)
        if noted is None:
            mark_changed(self)


class SetShape(DeclaredItems):
    """A declared set."""

    __slots__ = ()

    def fits(self, value: object) -> bool:
        return isinstance(value, set)

    def copy_in(self, value: object, depth_left: int) -> object:
        if not isinstance(value, set):
            raise Refusal(f"a {type(value).__name__} cannot be tracked; declare a set")
        check_depth(depth_left)
        kept: TrackedSet[object] = set.__new__(TrackedSet)
        set.update(kept, _frozen_items(self.item, value))
        kept._podium = _SetNode(self, len(kept))
        return kept

    def accept_item(self, item: object) -> object:
        """Validate an item; otherwise like `accept`."""
        return _frozen_item(self.item.accept(item, 1))

    def encode(self, value: object) -> Json:
        return _sorted_array(self.item, cast("set[object]", value))

    def tokens_of(self, owner: object, child: Tracked) -> tuple[Token, ...]:
        """Return nothing: items of a set are not containers."""
        return ()


class FrozenSetShape(Declared):
    """A declared frozenset: an untracked value, stored like a set.

    Args:
        item: the shape of its items.
        validator: pydantic's for the declared type.
    """

    __slots__ = ("_item",)
    leaf: Final = True

    def __init__(self, item: Shape, validator: SchemaValidator) -> None:
        super().__init__(validator)
        self._item = item

    def fits(self, value: object) -> bool:
        return isinstance(value, frozenset)

    def copy_in(self, value: object, depth_left: int) -> object:
        if not isinstance(value, frozenset):
            raise Refusal(f"a {type(value).__name__} stands where a frozenset is declared")
        return frozenset(_frozen_items(self._item, value))

    def encode(self, value: object) -> Json:
        return _sorted_array(self._item, cast("frozenset[object]", value))


def set_changes(owner: TrackedSet[Any]) -> list[tuple[str, int, Json]]:
    """Return the changes of a set's array since the last drain, in order.

    Returns:
        ``add`` or ``remove``, the index, and the item or ``None``.
    """
    gone, come = _net_changes(owner)
    order = _order(owner, gone, come)
    # Removals run from the end, at their old indexes; additions from the start, at indexes that count earlier ones.
    removals = [("remove", bisect_left(order, text), None) for text in reversed(gone)]
    additions = [
        ("add", bisect_left(order, text) - bisect_left(gone, text) + rank, decode(text))
        for rank, text in enumerate(come)
    ]
    return [*removals, *additions]


def update_order(owner: TrackedSet[Any]) -> None:
    """Update the order of a set after its changes were drained."""
    gone, come = _net_changes(owner)
    order = _order(owner, gone, come)
    for text in gone:
        del order[bisect_left(order, text)]
    for text in come:
        insort(order, text)


def _net_changes(owner: TrackedSet[Any]) -> tuple[list[bytes], list[bytes]]:
    """Return the canonical JSON of the removed and of the added items, each sorted."""
    touched = (owner._podium.olds or {}).items()
    gone = sorted(text for text, (was, now) in touched if was and not now)
    come = sorted(text for text, (was, now) in touched if now and not was)
    return gone, come


def _order(owner: TrackedSet[Any], gone: list[bytes], come: list[bytes]) -> list[bytes]:
    """Return the order at the last drain; computed once, and updated at each drain."""
    node = owner._podium
    if node.order is None:
        came = set(come)
        texts = (encode(node.shape.item.encode(item)) for item in owner)
        node.order = sorted([*(text for text in texts if text not in came), *gone])
    return node.order


def _frozen_items(shape: Shape, items: Iterable[object]) -> list[object]:
    return [_frozen_item(shape.copy_in(item, 1)) for item in items]


def _frozen_item(kept: object) -> object:
    if isinstance(kept, Tracked):
        raise Refusal("items of a set must be immutable all the way down")
    return kept


def _sorted_array(shape: Shape, items: Iterable[object]) -> Json:
    return [decode(text) for text in sorted(encode(shape.encode(item)) for item in items)]
