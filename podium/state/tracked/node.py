"""Where a tracked container stands, and how its parent hears that it changed.

Each container in a state (list, dict, set, tuple of containers, model) carries a `Node` in its attribute ``_podium``:
its parent, its place in it, its shape, and what changed since the last drain. A change marks the containers from there
up to the root, stopping at the first that is marked already; draining walks down along the marks. So both cost what
changed, not what is there.

A container has one parent at most: what is put into a state is copied in. One that was taken out has none, and goes on
as a container that nobody listens to.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from chronicle.error_pickling import Portable
from podium.state.errors import InvalidValue
from podium.state.pointer import Token, join

if TYPE_CHECKING:
    from podium.state.guard import Guard
    from podium.state.tracked.list_edits import Pieces

__all__ = [
    "MAX_DEPTH",
    "MISSING",
    "SCALARS",
    "Node",
    "Refusal",
    "Tracked",
    "check_room",
    "link",
    "mark",
    "note_old",
    "path_of",
    "refused",
    "room_in",
    "same_leaf",
    "unlink",
]

MAX_DEPTH: Final = 128
"""Containers in containers. pydantic's JSON reader stops at 200, and an event has a few levels around a value."""


MISSING: Final = object()
"""Stands for "was not there", which None cannot: null is a value."""


class Refusal(Portable):
    """A value that cannot be kept, on its way up to where its place is known.

    Attributes:
        reason: why, and how to mend it.
        tail: the tokens from the container that was asked to the refused value, last first.
    """

    def __init__(self, reason: str, *tail: Token) -> None:
        super().__init__(reason)
        self.reason = reason
        self.tail = list(tail)


class Tracked:
    """What every tracked container is, besides a real list, dict, set, tuple or model."""

    __slots__ = ()

    if TYPE_CHECKING:
        _podium: Node


class Node:
    """The bookkeeping of one tracked container.

    Attributes:
        parent: the container it is in; ``None`` for the root and for what was taken out.
        key: its place there: a key or field name; in a list or tuple an index (see `podium.state.tracked.lists`).
        stamp: for a child of a list, how many moves the list had seen when ``key`` was right.
        shape: what it may hold.
        olds: for dicts, models and sets: what each touched place held at the last drain.
        pieces: for lists: what became of the list of the last drain.
        marked: children with something to drain in them, by the id of their node.
        guard: says who may change it; ``None`` until that is asked the first time (see `podium.state.guard`).
        size: for lists, dicts and sets: how many members there were at the last drain.
    """

    __slots__ = ("guard", "key", "marked", "olds", "parent", "pieces", "shape", "size", "stamp")

    def __init__(self, shape: Any, size: int = 0) -> None:
        self.parent: Any = None
        self.key: Any = None
        self.stamp = 0
        self.shape = shape
        self.size = size
        self.guard: Guard | None = None
        self.olds: dict[Any, Any] | None = None
        self.pieces: Pieces | None = None
        self.marked: dict[int, Any] | None = None

    @property
    def changed(self) -> bool:
        """Whether there may be anything to drain in it or below it."""
        return bool(self.olds) or self.pieces is not None or bool(self.marked)


def link(value: object, parent: Tracked, key: object, stamp: int = 0) -> None:
    """Tell a kept value its place, if it is a container."""
    if isinstance(value, Tracked):
        node = value._podium
        node.parent, node.key, node.stamp = parent, key, stamp


def unlink(value: object) -> None:
    """Take a kept value out of its parent, if it is a container: from here on nobody listens to it."""
    if isinstance(value, Tracked):
        node = value._podium
        if node.parent is not None:
            marked = node.parent._podium.marked
            if marked:
                marked.pop(id(node), None)
            node.parent = node.guard = None


def mark(owner: Tracked) -> None:
    """Note that something changed in a container, for the containers around it."""
    node = owner._podium
    while (parent := node.parent) is not None:
        above: Node = parent._podium
        if above.marked is None:
            above.marked = {}
        elif id(node) in above.marked:
            return
        above.marked[id(node)] = owner
        node, owner = above, parent


def note_old(owner: Tracked, key: object, old: object) -> None:
    """Note what a place of a dict or model held before its first change since the last drain."""
    node = owner._podium
    olds = node.olds
    if olds is None:
        olds = node.olds = {}
    elif key in olds:
        return  # it is marked already
    olds[key] = old
    mark(owner)


def path_of(owner: Tracked) -> list[Token]:
    """Return the tokens that lead from the root to a container."""
    tokens: list[Token] = []
    node = owner._podium
    while (parent := node.parent) is not None:
        tokens.extend(parent._podium.shape.tokens_of(parent, owner))
        node, owner = parent._podium, parent
    tokens.reverse()
    return tokens


def room_in(owner: Tracked, value: object) -> int:
    """Return how many levels of containers a value put into ``owner`` may have."""
    if type(value) in SCALARS:
        return MAX_DEPTH
    room = MAX_DEPTH - 1
    node = owner._podium
    while node.parent is not None:
        room -= 1
        node = node.parent._podium
    return room


SCALARS: Final = frozenset({str, int, float, bool, type(None)})
"""Types of values without parts that JSON has."""


_EQUAL_IS_SAME: Final = SCALARS | {UUID, date, timedelta}
"""Types whose equal values are one value. Others may be equal and written apart: Decimal 1.1 and 1.10, or one moment
in two time zones."""


def check_room(room: int) -> None:
    """Refuse a container that is nested deeper than can be read back.

    Args:
        room: how many levels of containers there may be, itself counted.

    Raises:
        Refusal: there is no room for it.
    """
    if room <= 0:
        raise Refusal(f"it is nested too deep; keep less than {MAX_DEPTH} levels")


def same_leaf(old: object, new: object) -> bool:
    """Return whether putting ``new`` where ``old`` is changes nothing; containers are never the same."""
    if isinstance(new, Tracked):
        return False
    return old is new or (type(old) is type(new) and type(new) in _EQUAL_IS_SAME and old == new)


def refused(owner: Tracked, refusal: Refusal) -> InvalidValue:
    """Return the public error of a refusal whose tail starts in ``owner``."""
    return InvalidValue(join([*path_of(owner), *reversed(refusal.tail)]), refusal.reason)
