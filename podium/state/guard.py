"""Permits and guards: the access control of one state. It knows no container.

A turn's commit records what the state became. A change that another thread makes while the patch is collected, or that
leftover code makes after the commit, would be in the state and in no patch. So each state has a `Guard`. Every change
of a container in the state takes the guard's lock and compares the *permit* of the calling code with the guard's:

- A turn opens the state with a permit of its own (`podium.state.access.TurnPermit`), held in a context variable.
  Tasks that the turn creates, and threads that it starts through ``asyncio.to_thread``, have a copy of the context,
  hence the permit.
- Code without a permit is accepted on the thread of the turn's event loop: a callback that another thread scheduled by
  ``loop.call_soon_threadsafe`` runs there. All other code is refused with `OutsideTurn`, and nothing is changed.
- The commit drains the state and revokes the permit in one hold of the lock (`podium.state.state.take`).

Iterables passed to a method, and sort keys, are user code that may wait for another thread. They run before the lock is
taken. Validators and comparisons of the declared types run under the lock, and must not wait for another thread.

The lock also serializes concurrent changes by several threads of one turn. A state without an agent (built in a test,
or by a turn for itself) is open to all code; its lock works all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["PERMIT", "Guard", "Permit", "current_permit", "use_permit"]


class Permit:
    """The right of one turn's code to change one state.

    Args:
        turn: the turn, for errors, such as ``turn 3 of hello/alice``.
    """

    __slots__ = ("is_over", "thread", "turn")

    def __init__(self, turn: str) -> None:
        self.turn = turn
        self.thread = threading.get_ident()
        self.is_over = False


PERMIT: Final[ContextVar[Permit | None]] = ContextVar("podium_state_permit", default=None)
"""The permit of the calling code."""
_NOBODY: Final = Permit("nobody")
"""Held by no code."""

current_permit: Final = PERMIT.get
"""Return the permit of the calling code; ``None`` outside of turns."""


class Guard:
    """The access control of one state.

    Attributes:
        lock: held by each change, and by a commit while it drains.
        permit: what code that changes the state must hold; ``None`` if the state is open to all code.
    """

    __slots__ = ("_reason", "lock", "permit")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.permit: Permit | None = None
        self._reason: str | None = None
        """Why a change without a permit is refused; ``None`` if the state is open to all code."""

    def restrict(self, reason: str) -> None:
        """Refuse changes without a permit from now on.

        Args:
            reason: for errors.
        """
        with self.lock:
            self._reason = reason
            self.permit = _NOBODY

    def grant(self, permit: Permit) -> None:
        """Admit changes by code that holds a permit."""
        with self.lock:
            self.permit = permit

    def revoke(self) -> None:
        """End the permit that was granted last, if there is one."""
        with self.lock:
            if self.permit is not None and self.permit is not _NOBODY:
                self.permit.is_over = True
                self.permit = _NOBODY

    def refusal(self) -> str | None:
        """Return why the calling code may not change the state; ``None`` if it may. The lock is held."""
        if self._reason is None:
            return None
        held, required = current_permit(), self.permit or _NOBODY
        if held is None and required is not _NOBODY:
            if threading.get_ident() == required.thread:
                return None
            return (
                f"it was changed by a thread that {required.turn} does not know; use await asyncio.to_thread(...), "
                "which hands the turn's context to the thread, or change the state in the hook"
            )
        if held is not None and held.is_over:
            return f"{held.turn} is over, and its code changes the state; await what a hook starts before it returns"
        return self._reason


@contextmanager
def use_permit(permit: Permit) -> Iterator[None]:
    """Run the ``with`` block with a permit: for a task of a turn that was not created by the turn's own code."""
    before = PERMIT.set(permit)
    try:
        yield
    finally:
        PERMIT.reset(before)
