"""Opening and closing an agent's state: only the code of the running turn may change it; see `podium.state.guard`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from podium.state.guard import PERMIT, Permit
from podium.state.tracked.guarded import guard_of

__all__ = ["permit_turn", "restrict_to_turns", "retire"]


def restrict_to_turns(state: Any, agent: str) -> None:
    """Refuse changes of an agent's state outside of turns from now on.

    Args:
        state: its root.
        agent: its address, for errors.
    """
    guard_of(state).restrict(f"no hook of {agent} runs now; change the state in a hook, while it runs")


def retire(state: Any) -> None:
    """Refuse all changes of a state from now on: its agent continues with another one, read from its last commit."""
    guard_of(state).restrict("this is the state of an attempt that was rolled back; use the ctx.state of the hook")


@contextmanager
def permit_turn(state: Any, turn: str) -> Iterator[Permit]:
    """Permit the ``with`` block, with its tasks and threads, to change a state; the permit ends with the block.

    Enter it on the thread of the turn's event loop.

    Args:
        state: its root.
        turn: the turn, for errors.
    """
    permit = Permit(turn)
    guard = guard_of(state)
    guard.grant(permit)
    before = PERMIT.set(permit)
    try:
        yield permit
    finally:
        PERMIT.reset(before)
        guard.revoke()
