"""Opening and closing an agent's state: only the code of the running turn may change it; see `podium.state.guard`."""

from __future__ import annotations

from typing import Any

from podium.state.guard import PERMIT, Permit
from podium.state.tracked.guarded import guard_of

__all__ = ["TurnPermit", "freeze", "restrict_to_turns", "retire"]


def restrict_to_turns(state: Any, agent: str) -> None:
    """Refuse changes of an agent's state outside of turns from now on.

    Args:
        state: its root.
        agent: its address, for errors.
    """
    guard_of(state).restrict(f"no hook of {agent} runs now; change the state in a hook, while it runs")


def freeze(state: Any, reason: str) -> None:
    """Refuse all changes of a state from now on, with a reason."""
    guard_of(state).restrict(reason)


def retire(state: Any) -> None:
    """Refuse all changes of a state from now on: its agent continues with another one, read from its last commit."""
    guard_of(state).restrict("this is the state of an attempt that was rolled back; use the ctx.state of the hook")


class TurnPermit:
    """Permits the ``with`` block, with its tasks and threads, to change a state; the permit ends with the block.

    Enter it on the thread of the turn's event loop. A class, as each turn has one: a generator takes longer.

    Args:
        state: its root.
        turn: the turn, for errors.
    """

    __slots__ = ("_before", "_guard", "_permit")

    def __init__(self, state: Any, turn: str) -> None:
        self._guard = guard_of(state)
        self._permit = Permit(turn)

    def __enter__(self) -> Permit:
        """Grant the permit, and return it."""
        self._guard.grant(self._permit)
        self._before = PERMIT.set(self._permit)
        return self._permit

    def __exit__(self, *exc_info: object) -> None:
        """Revoke the permit."""
        PERMIT.reset(self._before)
        self._guard.revoke()
