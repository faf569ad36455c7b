"""Waits with liveness probes of the peer, in place of a deadline, for operations of unlimited duration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from podium.errors import HostDied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["until_ended", "with_probes"]

_T = TypeVar("_T")


async def with_probes(answer: Awaitable[_T], interval_s: float, probe: Callable[[], Awaitable[None]]) -> _T:
    """Await an answer, with a probe after each interval without one; an exception of a probe ends the wait."""
    waiting = asyncio.ensure_future(answer)
    try:
        while not (await asyncio.wait({waiting}, timeout=interval_s))[0]:
            await probe()
        return waiting.result()
    finally:
        waiting.cancel()


async def until_ended(answer: Awaitable[_T], ended: asyncio.Event) -> _T:
    """Await an answer of a process, unless an event tells that the process has ended.

    Raises:
        HostDied: it has ended without an answer.
    """
    waiting, ending = asyncio.ensure_future(answer), asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise HostDied("its process has ended")
        return waiting.result()
    finally:
        waiting.cancel()
        ending.cancel()
