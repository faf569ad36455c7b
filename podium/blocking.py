"""How blocking calls leave the event loop: to a thread as a rule, wherever a simulator wants them otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BlockingRunner"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class BlockingRunner(Protocol):
    """Runs a call that may block, and gives its answer; ``asyncio.to_thread`` is one.

    Cancelling the caller does not tell whether the call happens.
    """

    async def __call__(self, call: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run the call and return its answer, or raise what it raised."""
        ...
