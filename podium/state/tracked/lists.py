"""Tracked lists: subclasses of list that record each change by position, in O(1) where list's own operation is.

The index of a child changes with every insertion before it. It is not updated eagerly, which would make each insertion
cost the list's length, nor searched for. The list logs its moves; a child has the number of moves for which its index
is right, and catches up when the index is read (`index_of`). When the moves reach a quarter of the list's length, all
children are updated at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeVar, cast

from podium.state.guard import current_permit
from podium.state.tracked.guarded import check_access, guard_of, guarded
from podium.state.tracked.node import (
    MAX_DEPTH,
    SCALARS,
    Refusal,
    Tracked,
    TrackingNode,
    check_depth,
    depth_left_in,
    link,
    mark_changed,
    refused,
    same_leaf,
    unlink,
)
from podium.state.tracked.piece_table import PieceTable, longest_increasing
from podium.state.tracked.plain_values import plain
from podium.state.tracked.shape import DeclaredItems

if TYPE_CHECKING:
    from typing import Self

    from chronicle.canonical import Json
    from podium.state.pointer import Token

__all__ = ["ListShape", "TrackedList", "index_of"]

T = TypeVar("T")

_FREE_MOVES: Final = 64
_list_append: Final = list.append
_list_set: Final = list.__setitem__


class _ListNode(TrackingNode):
    """The bookkeeping of a list.

    Attributes:
        moves: ``(at, removed, inserted)`` of changes that shifted the items behind them.
        dropped: the number of moves before the first in ``moves``.
    """

    __slots__ = ("dropped", "moves")

    def __init__(self, shape: ListShape, size: int) -> None:
        super().__init__(shape, size)
        self.moves: list[tuple[int, int, int]] = []
        self.dropped = 0

    @property
    def now(self) -> int:
        return self.dropped + len(self.moves)


class TrackedList(Tracked, list[T]):
    """A list in a state. Assigned values are validated and copied; reads return the list's own items."""

    __slots__ = ("_podium",)

    _podium: _ListNode

    def __new__(cls, *given: Any) -> Any:
        """Return a plain list: ``type(items)(...)`` builds a list outside of any state."""
        return list(*given)

    def __init__(self, values: Iterable[T] = (), /) -> None:  # only by an explicit second call: see __new__
        self[:] = values

    def append(self, value: T) -> None:
        # The hottest path: `guarded` and `_accept` are inlined, as each call costs a tenth of an append.
        node = self._podium
        guard = node.guard or guard_of(self)
        with guard.lock:
            if current_permit() is not guard.permit:
                check_access(guard, self)
            at = len(self)
            try:
                kept = node.shape.item.accept(
                    value, MAX_DEPTH if type(value) in SCALARS else depth_left_in(self, value)
                )
            except Refusal as refusal:
                refusal.tail.append(at)
                raise refused(self, refusal) from refusal.__cause__
            pieces = node.pieces
            if pieces is None:
                pieces = node.pieces = PieceTable(at)
            pieces.append(1)
            if isinstance(kept, Tracked):
                link(kept, self, at, node.now)
            _list_append(self, kept)
            mark_changed(self)

    def extend(self, values: Iterable[T]) -> None:
        self._extend(list(values))

    @guarded
    def _extend(self, given: list[T]) -> None:
        kept = [self._accept(value, len(self) + offset) for offset, value in enumerate(given)]
        self._replace(len(self), len(self), kept)

    def insert(self, index: SupportsIndex, value: T) -> None:
        guard = self._podium.guard or guard_of(self)
        with guard.lock:
            if current_permit() is not guard.permit:
                check_access(guard, self)
            at = operator.index(index)
            at = max(at + len(self), 0) if at < 0 else min(at, len(self))
            self._replace(at, at, (self._accept(value, at),))

    def pop(self, index: SupportsIndex = -1) -> T:
        guard = self._podium.guard or guard_of(self)
        with guard.lock:
            if current_permit() is not guard.permit:
                check_access(guard, self)
            at = operator.index(index)
            if not -len(self) <= at < len(self):
                return super().pop(index)  # raises what list raises
            at %= len(self)
            value = self[at]
            self._replace(at, at + 1, ())
            return value

    @guarded
    def remove(self, value: T) -> None:
        if value not in self:
            super().remove(value)  # raises what list raises
        at = self.index(value)
        self._replace(at, at + 1, [])

    @guarded
    def clear(self) -> None:
        self._replace(0, len(self), [])

    @guarded
    def reverse(self) -> None:
        self._rearrange(range(len(self) - 1, -1, -1))

    def sort(self, *, key: Callable[[T], Any] | None = None, reverse: bool = False) -> None:
        # The order is computed first, without the lock: the patch needs it, a key that raises changes nothing, and a
        # key that waits for another thread does not hold the lock.
        olds = list(self)
        keys = olds if key is None else [key(value) for value in olds]
        self._take_order(olds, sorted(range(len(keys)), key=cast("Any", keys.__getitem__), reverse=reverse))

    @guarded
    def _take_order(self, olds: list[T], order: Sequence[int]) -> None:
        """Reorder the items as computed for ``olds``, if these are still the items."""
        if len(olds) != len(self) or any(old is not now for old, now in zip(olds, self, strict=True)):
            raise ValueError(
                "list modified during sort"
            )  # list's own message; changes by the key or another thread stay
        self._rearrange(order)

    def __setitem__(self, index: SupportsIndex | slice, value: Any) -> None:
        if isinstance(index, slice):
            self._set_slice(index, list(value))
        else:
            self._set_item(index, value)

    @guarded
    def _set_item(self, index: SupportsIndex, value: Any) -> None:
        if not -len(self) <= operator.index(index) < len(self):
            super().__setitem__(index, value)  # raises what list raises
        old = self[index]
        if value is old and isinstance(value, Tracked):
            return  # the last step of ``items[0] += [...]``: the container is assigned to its own index
        at = operator.index(index) % len(self)
        kept = self._accept(value, at)
        if not same_leaf(old, kept):
            self._replace(at, at + 1, [kept])

    @guarded
    def __delitem__(self, index: SupportsIndex | slice) -> None:
        if not isinstance(index, slice):
            at = operator.index(index)
            if not -len(self) <= at < len(self):
                super().__delitem__(index)  # raises what list raises
            self.pop(at)
            return
        places = range(*index.indices(len(self)))
        if abs(places.step) == 1 and places:
            self._replace(min(places), max(places) + 1, [])
            return
        if not places:
            return
        gone = set(places)
        self._rearrange([at for at in range(len(self)) if at not in gone])

    def __iadd__(self, values: Iterable[T]) -> Self:  # type: ignore[override,misc]
        self.extend(values)
        return self

    @guarded
    def __imul__(self, count: SupportsIndex) -> Self:
        times = operator.index(count)
        if times <= 0:
            self.clear()
        else:
            self.extend(list(self) * (times - 1))
        return self

    def __copy__(self) -> list[T]:
        return [plain(value) for value in self]

    def __deepcopy__(self, memo: dict[int, Any]) -> list[T]:
        memo[id(self)] = copied = self.__copy__()
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return (list, (self.__copy__(),))

    def _accept(self, value: object, at: int) -> T:
        try:
            return cast("T", self._podium.shape.item.accept(value, depth_left_in(self, value)))
        except Refusal as refusal:
            refusal.tail.append(at)
            raise refused(self, refusal) from refusal.__cause__

    @guarded
    def _set_slice(self, index: slice, given: list[T]) -> None:
        places = range(*index.indices(len(self)))
        if places.step == 1:
            self._rewrite(places.start, max(places.start, places.stop), given)
            return
        if len(given) != len(places):
            raise ValueError(f"attempt to assign sequence of size {len(given)} to extended slice of size {len(places)}")
        kept = [self._accept(value, at) for at, value in zip(places, given, strict=True)]
        for at, value in zip(places, kept, strict=True):
            if not same_leaf(self[at], value):
                self._replace(at, at + 1, [value])

    def _replace(self, start: int, stop: int, kept: Sequence[T]) -> None:
        """Replace the items from ``start`` to before ``stop`` by accepted values."""
        if start == stop and not kept:
            return
        node = self._podium
        length = len(self)
        if node.pieces is None:
            node.pieces = PieceTable(length)
        node.pieces.splice(start, stop - start, len(kept))
        if not node.shape.item.leaf:
            for value in self[start:stop]:
                unlink(value)
            if stop < length and len(kept) != stop - start:
                node.moves.append((start, stop - start, len(kept)))
            for offset, value in enumerate(kept):
                link(value, self, start + offset, node.now)
        _list_set(self, slice(start, stop), kept)
        if len(node.moves) > _FREE_MOVES + len(self) // 4:
            _update_indexes(self)
        mark_changed(self)

    def _rewrite(self, start: int, stop: int, given: list[T]) -> None:
        """Assign a slice; items of it that are assigned again, once each, are kept instead of copied."""
        olds = self[start:stop]
        own = {id(value): place for place, value in enumerate(olds) if isinstance(value, Tracked)}
        kept: list[T] = []
        stays: list[tuple[int, int]] = []
        for offset, value in enumerate(given):
            place = own.pop(id(value), None) if isinstance(value, Tracked) else None
            if place is None:
                kept.append(self._accept(value, start + offset))
            else:
                kept.append(value)
                stays.append((place, offset))
        head, tail = _common_ends(olds, kept)
        if head == len(olds) == len(kept):
            return
        old_end, new_end = len(olds) - tail, len(kept) - tail
        inner = [(place, offset) for place, offset in stays if head <= place < old_end and head <= offset < new_end]
        rising = set(longest_increasing([place for place, _ in inner]))
        anchors = [(head - 1, head - 1), *(stay for stay in inner if stay[0] in rising)]
        node = self._podium
        if node.pieces is None:
            node.pieces = PieceTable(len(self))
        for place, offset in reversed(anchors):  # from the right, so that the indexes to the left stay valid
            node.pieces.splice(start + place + 1, old_end - place - 1, new_end - offset - 1)
            old_end, new_end = place, offset
        for place in own.values():
            unlink(olds[place])
        super().__setitem__(slice(start, stop), kept)
        _update_indexes(self)
        mark_changed(self)

    def _rearrange(self, order: Sequence[int]) -> None:
        """Reorder the items; those missing in ``order`` are removed."""
        olds = list(self)
        if len(order) == len(olds) and all(place == old for place, old in enumerate(order)):
            return
        node = self._podium
        if node.pieces is None:
            node.pieces = PieceTable(len(olds))
        node.pieces.rearrange(order)
        if len(order) < len(olds):
            stay = set(order)
            for old, value in enumerate(olds):
                if old not in stay:
                    unlink(value)
        super().__setitem__(slice(None), [olds[old] for old in order])
        _update_indexes(self)
        mark_changed(self)


class ListShape(DeclaredItems):
    """A declared list."""

    __slots__ = ()

    def fits(self, value: object) -> bool:
        return isinstance(value, list)

    def copy_in(self, value: object, depth_left: int) -> object:
        if not isinstance(value, list | tuple):
            raise Refusal(f"a {type(value).__name__} cannot be tracked; declare a list")
        check_depth(depth_left)
        kept: TrackedList[object] = list.__new__(TrackedList)
        copy_in = self.item.copy_in
        try:
            for item in value:
                list.append(kept, copy_in(item, depth_left - 1))
        except Refusal as refusal:
            refusal.tail.append(len(kept))
            raise
        kept._podium = _ListNode(self, len(kept))
        if not self.item.leaf:
            for index, item in enumerate(kept):
                if isinstance(item, Tracked):
                    node = item._podium
                    node.parent, node.key = kept, index
        return kept

    def encode(self, value: object) -> Json:
        assert isinstance(value, list)
        encode = self.item.encode
        return [encode(item) for item in value]

    def tokens_of(self, owner: TrackedList[Any], child: Tracked) -> tuple[Token, ...]:
        """Return the path tokens from a list to a child."""
        return (index_of(owner, child),)


def index_of(owner: TrackedList[Any], child: Tracked, lookups: int = 1) -> int:
    """Return the present index of a child of a list.

    Args:
        owner: the list.
        child: a container in it.
        lookups: about how many children will be looked up; for many, all are updated at once.
    """
    above, node = owner._podium, child._podium
    if lookups * len(above.moves) > len(owner):
        _update_indexes(owner)
    index: int = node.key
    for at, removed, inserted in above.moves[node.stamp - above.dropped :] if above.moves else ():
        if index >= at + removed:
            index += inserted - removed
    node.key, node.stamp = index, above.now
    return index


def _update_indexes(owner: TrackedList[Any]) -> None:
    node = owner._podium
    if node.shape.item.leaf:
        return
    node.dropped = now = node.now
    node.moves.clear()
    for index, item in enumerate(owner):
        link(item, owner, index, now)


def _common_ends(olds: Sequence[object], news: Sequence[object]) -> tuple[int, int]:
    """Return the lengths of the common head and, behind it, of the common tail."""
    shorter = min(len(olds), len(news))
    head = 0
    while head < shorter and _same(olds[head], news[head]):
        head += 1
    tail = 0
    while tail < shorter - head and _same(olds[-1 - tail], news[-1 - tail]):
        tail += 1
    return head, tail


def _same(old: object, new: object) -> bool:
    return old is new or same_leaf(old, new)
