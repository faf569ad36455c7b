"""The guard of a tracked container, and the check that each of its changes makes; see `podium.state.guard`.

A container finds its guard through its root, once. A member of a container that was taken out of the state may still
have the state's guard, so the root is looked up again before a change is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from podium.state.errors import OutsideTurn
from podium.state.guard import Guard, current_permit
from podium.state.pointer import join
from podium.state.tracked.node import Tracked, path_of

__all__ = ["check_access", "guard_of", "guarded"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Tracked)


def guard_of(owner: Tracked, *, refresh: bool = False) -> Guard:
    """Return the guard of the state that a container is in; a container in no state has a guard open to all code.

    Args:
        owner: the container.
        refresh: look up the root again, whatever was found before.
    """
    node = owner._podium
    if node.guard is not None and not refresh:
        return node.guard
    top = node
    while top.parent is not None:
        top = top.parent._podium
    if top.guard is None:
        top.guard = Guard()
    node.guard = top.guard
    return top.guard


def check_access(guard: Guard, owner: Tracked) -> None:
    """Check a change by code whose permit is not the guard's. The lock is held.

    Raises:
        OutsideTurn: the calling code may not change the container.
    """
    reason = guard.refusal()
    if reason is not None and guard_of(owner, refresh=True) is guard:
        raise OutsideTurn(join(path_of(owner)), reason)


def guarded(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Make a method that changes its container one atomic change, checked by the container's guard."""

    @wraps(method)
    def change(owner: T, /, *args: P.args, **more: P.kwargs) -> R:
        guard = owner._podium.guard or guard_of(owner)
        with guard.lock:
            if current_permit() is not guard.permit:
                check_access(guard, owner)
            return method(owner, *args, **more)

    return change
