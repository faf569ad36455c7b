"""Waits with liveness probes of the peer, in place of a deadline, for operations of unlimited duration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from podium.errors import HostDied

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

__all__ = ["until_ended", "with_probes", "with_ticks"]

_T = TypeVar("_T")


async def with_ticks(items: AsyncIterator[_T], interval_s: float) -> AsyncGenerator[_T | None, None]:
    """Yield items as they arrive, and ``None`` after each interval without one.

    Ending the iteration early cancels the wait for the next item, and returns when that has ended: the caller may then
    close the source of the items.
    """
    waiting: asyncio.Future[_T] | None = None
    try:
        while True:
            if waiting is None:
                waiting = asyncio.ensure_future(anext(items))
            done, _ = await asyncio.wait({waiting}, timeout=interval_s)
            if not done:
                yield None
                continue
            try:
                item = waiting.result()
            except StopAsyncIteration:
                return
            finally:
                waiting = None
            yield item
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)  # asyncio warns of exceptions never retrieved


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
