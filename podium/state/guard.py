"""Who may change a state: the code of the turn that runs, and nobody between turns.

A turn's commit says what the state became. A change that another thread makes while the patch is collected, or that
leftover code makes after it, would be in the state and in no patch. So each state has a `Guard`. Every change of a
container in it takes the guard's lock, and compares the *permit* of the code that makes the change with the one that
the guard has:

- A turn opens the state with a permit of its own (`permitted`), which stands in a context variable. Tasks that the turn
  creates, and threads that it starts through ``asyncio.to_thread``, have a copy of the context, hence the permit.
- Code without any permit is let through on the thread of the turn's event loop: a callback that a thread handed over by
  ``loop.call_soon_threadsafe`` runs there. All other code is refused with `OutsideTurn`, and nothing is changed.
- The commit drains the state and takes the permit back in one hold of the lock (`podium.state.state.take`).

Iterables that are given to a method, and keys of a sort, are user code that may wait for another thread. They run
before the lock is taken. Validators and comparisons of the declared types run under it, and must not wait for another
thread.

The lock also keeps changes apart that several threads of one turn make at once. A state that no agent has (built in a
test, or by a turn for itself) is open to everyone; its lock works all the same.

A container finds its guard by its root, once. What was in a container that was taken out of the state may still have
the state's guard, so the root is looked for again before a change is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from podium.state.errors import OutsideTurn
from podium.state.pointer import join
from podium.state.tracked.node import Tracked, path_of

__all__ = ["Guard", "Permit", "current_permit", "guard_of", "guarded", "having", "limit", "permitted", "retire"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Tracked)


class Permit:
    """The right of one turn's code to change one state.

    Args:
        turn: whose it is, such as ``turn 3 of hello/alice``.
    """

    __slots__ = ("is_over", "thread", "turn")

    def __init__(self, turn: str) -> None:
        self.turn = turn
        self.thread = threading.get_ident()
        self.is_over = False


_permit: Final[ContextVar[Permit | None]] = ContextVar("podium_state_permit", default=None)
_NOBODY: Final = Permit("nobody")
"""Held by no code."""

current_permit: Final = _permit.get
"""Return the permit of the code that calls; ``None`` outside of turns."""


class Guard:
    """Says who may change one state.

    Attributes:
        lock: held by each change, and by a commit while it drains.
        permit: what code that changes the state must have; ``None`` if the state is open to everyone.
    """

    __slots__ = ("_closed", "lock", "permit")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.permit: Permit | None = None
        self._closed: str | None = None
        """Why nobody may change the state between turns; ``None`` if it is open to everyone."""

    def limit(self, reason: str) -> None:
        """Let nobody change the state any more without a permit."""
        with self.lock:
            self._closed = reason
            self.permit = _NOBODY

    def open_to(self, permit: Permit) -> None:
        """Let the code that has a permit change the state."""
        with self.lock:
            self.permit = permit

    def close(self) -> None:
        """Take the permit back, if the state is limited to one."""
        with self.lock:
            if self.permit is not None and self.permit is not _NOBODY:
                self.permit.is_over = True
                self.permit = _NOBODY

    def look_closer(self, owner: Tracked) -> None:
        """Decide on a change by code whose permit is not the guard's. The lock is held.

        Raises:
            OutsideTurn: it may not change the state.
        """
        if self._closed is None or guard_of(owner, afresh=True) is not self:
            return
        mine, wanted = current_permit(), self.permit or _NOBODY
        if mine is None and wanted is not _NOBODY:
            if threading.get_ident() == wanted.thread:
                return
            reason = (
                f"it was changed by a thread that {wanted.turn} does not know; use await asyncio.to_thread(...), which "
                "tells a thread whose code it runs, or change the state in the hook"
            )
        elif mine is not None and mine.is_over:
            reason = f"{mine.turn} is over, and its code changes the state; await what a hook starts before it returns"
        else:
            reason = self._closed
        raise OutsideTurn(join(path_of(owner)), reason)


def guard_of(owner: Tracked, *, afresh: bool = False) -> Guard:
    """Return the guard of the state that a container is in; a container in no state has one that lets everyone.

    Args:
        owner: the container.
        afresh: look where the container is now, whatever was found before.
    """
    node = owner._podium
    if node.guard is not None and not afresh:
        return node.guard
    top = node
    while top.parent is not None:
        top = top.parent._podium
    if top.guard is None:
        top.guard = Guard()
    node.guard = top.guard
    return top.guard


def guarded(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Make a container's method that changes it one change, which its guard is asked about."""

    @wraps(method)
    def change(owner: T, /, *args: P.args, **more: P.kwargs) -> R:
        guard = owner._podium.guard or guard_of(owner)
        with guard.lock:
            if current_permit() is not guard.permit:
                guard.look_closer(owner)
            return method(owner, *args, **more)

    return change


def limit(state: Any, agent: str) -> None:
    """Let only turns change an agent's state from now on.

    Args:
        state: its root.
        agent: its address, for errors.
    """
    guard_of(state).limit(f"no hook of {agent} runs now; change the state in a hook, while it runs")


def retire(state: Any) -> None:
    """Let nobody change a state any more: its agent goes on with another one, read from its last commit."""
    guard_of(state).limit("this is the state of a try that was taken back; use the ctx.state of the hook that runs")


@contextmanager
def permitted(state: Any, turn: str) -> Iterator[Permit]:
    """Let the code in the ``with`` block, with its tasks and threads, change a state; afterwards nobody may.

    Enter it on the thread of the turn's event loop.

    Args:
        state: its root.
        turn: whose code it is, for errors.
    """
    permit = Permit(turn)
    guard = guard_of(state)
    guard.open_to(permit)
    try:
        with having(permit):
            yield permit
    finally:
        guard.close()


@contextmanager
def having(permit: Permit) -> Iterator[None]:
    """Run the code in the ``with`` block with a permit: for a task of a turn that the turn did not create itself."""
    before = _permit.set(permit)
    try:
        yield
    finally:
        _permit.reset(before)
