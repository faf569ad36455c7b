"""The bookkeeping of tracked containers: position, shape, and the changes since the last drain.

Each container in a state (list, dict, set, tuple of containers, model) has a `TrackingNode` in its attribute
``_podium``: its parent, its key there, its shape, and its changes since the last drain. A change registers the
container with its parent, and so on up to the root, stopping at the first that is registered already; draining follows
these registrations down. So both cost what changed, not the size of the state.

A container has at most one parent: values put into a state are copied. A container that was taken out has no parent; it
goes on working, untracked.
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
    from podium.state.tracked.piece_table import PieceTable

__all__ = [
    "MAX_DEPTH",
    "MISSING",
    "SCALARS",
    "Refusal",
    "Tracked",
    "TrackingNode",
    "check_depth",
    "depth_left_in",
    "link",
    "mark_changed",
    "note_old",
    "path_of",
    "refused",
    "same_leaf",
    "unlink",
]

MAX_DEPTH: Final = 128
"""Nesting limit of containers. pydantic's JSON reader stops at 200, and an event adds a few levels around a value."""


MISSING: Final = object()
"""Marks an absent value; None cannot, as null is a value."""


class Refusal(Portable):
    """A refused value, raised up to where its full path is known.

    Attributes:
        reason: why, and how to fix it.
        tail: the path tokens from the catching container to the refused value, last first.
    """

    def __init__(self, reason: str, *tail: Token) -> None:
        super().__init__(reason)
        self.reason = reason
        self.tail = list(tail)


class Tracked:
    """Base class of all tracked containers, besides list, dict, set, tuple or the model's class."""

    __slots__ = ()

    if TYPE_CHECKING:
        _podium: TrackingNode


class TrackingNode:
    """The bookkeeping of one tracked container.

    Attributes:
        parent: the container that holds it; ``None`` for the root and for containers that were taken out.
        key: its position there: a key or field name; in a list or tuple an index (see `podium.state.tracked.lists`).
        stamp: for a child of a list: the number of moves of the list for which ``key`` is right.
        shape: of its members.
        olds: for dicts, models and sets: the values at the last drain, by the keys changed since.
        pieces: for lists: the edits since the last drain.
        changed_children: children with changes in them, by the id of their node.
        guard: of the state; ``None`` until it is first looked up (see `podium.state.tracked.guarded`).
        size: for lists, dicts and sets: the number of members at the last drain.
    """

    __slots__ = ("changed_children", "guard", "key", "olds", "parent", "pieces", "shape", "size", "stamp")

    def __init__(self, shape: Any, size: int = 0) -> None:
        self.parent: Any = None
        self.key: Any = None
        self.stamp = 0
        self.shape = shape
        self.size = size
        self.guard: Guard | None = None
        self.olds: dict[Any, Any] | None = None
        self.pieces: PieceTable | None = None
        self.changed_children: dict[int, Any] | None = None

    @property
    def changed(self) -> bool:
        """Whether there may be changes to drain in it or below it."""
        return bool(self.olds) or self.pieces is not None or bool(self.changed_children)


def link(value: object, parent: Tracked, key: object, stamp: int = 0) -> None:
    """Set the position of a member, if it is a container."""
    if isinstance(value, Tracked):
        node = value._podium
        node.parent, node.key, node.stamp = parent, key, stamp


def unlink(value: object) -> None:
    """Detach a member from its parent, if it is a container; its changes are no longer tracked."""
    if isinstance(value, Tracked):
        node = value._podium
        if node.parent is not None:
            changed_children = node.parent._podium.changed_children
            if changed_children:
                changed_children.pop(id(node), None)
            node.parent = node.guard = None


def mark_changed(owner: Tracked) -> None:
    """Register a changed container with the containers around it."""
    node = owner._podium
    while (parent := node.parent) is not None:
        above: TrackingNode = parent._podium
        if above.changed_children is None:
            above.changed_children = {}
        elif id(node) in above.changed_children:
            return
        above.changed_children[id(node)] = owner
        node, owner = above, parent


def note_old(owner: Tracked, key: object, old: object) -> None:
    """Record the value under a key of a dict or model before its first change since the last drain."""
    node = owner._podium
    olds = node.olds
    if olds is None:
        olds = node.olds = {}
    elif key in olds:
        return  # recorded and registered already
    olds[key] = old
    mark_changed(owner)


def path_of(owner: Tracked) -> list[Token]:
    """Return the path tokens from the root to a container."""
    tokens: list[Token] = []
    node = owner._podium
    while (parent := node.parent) is not None:
        tokens.extend(parent._podium.shape.tokens_of(parent, owner))
        node, owner = parent._podium, parent
    tokens.reverse()
    return tokens


def depth_left_in(owner: Tracked, value: object) -> int:
    """Return how many levels of containers a value put into ``owner`` may have."""
    if type(value) in SCALARS:
        return MAX_DEPTH
    depth_left = MAX_DEPTH - 1
    node = owner._podium
    while node.parent is not None:
        depth_left -= 1
        node = node.parent._podium
    return depth_left


SCALARS: Final = frozenset({str, int, float, bool, type(None)})
"""JSON's scalar types."""


_EQUAL_IS_SAME: Final = SCALARS | {UUID, date, timedelta}
"""Types whose equal values have the same JSON. Others may be equal and differ in JSON: Decimal 1.1 and 1.10, or one
instant in two time zones."""


def check_depth(depth_left: int) -> None:
    """Refuse a container that is nested too deep to be read back.

    Args:
        depth_left: levels of containers allowed, itself included.

    Raises:
        Refusal: none is left.
    """
    if depth_left <= 0:
        raise Refusal(f"it is nested too deep; keep less than {MAX_DEPTH} levels")


def same_leaf(old: object, new: object) -> bool:
    """Return whether replacing ``old`` by ``new`` changes nothing; always ``False`` for containers."""
    if isinstance(new, Tracked):
        return False
    return old is new or (type(old) is type(new) and type(new) in _EQUAL_IS_SAME and old == new)


def refused(owner: Tracked, refusal: Refusal) -> InvalidValue:
    """Return the public error for a refusal whose tail starts in ``owner``."""
    return InvalidValue(join([*path_of(owner), *reversed(refusal.tail)]), refusal.reason)
