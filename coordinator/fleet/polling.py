"""Waiting for what may come late, without waiting blindly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

__all__ = ["answer_of", "ticking"]

_T = TypeVar("_T")


async def ticking(items: AsyncIterator[_T], every_s: float) -> AsyncGenerator[_T | None, None]:
    """Yield items as they come, and ``None`` whenever none came for that long.

    Ending the iteration early cancels the wait for the next item.
    """
    waiting: asyncio.Future[_T] | None = None
    try:
        while True:
            if waiting is None:
                waiting = asyncio.ensure_future(anext(items))
            done, _ = await asyncio.wait({waiting}, timeout=every_s)
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


async def answer_of(answer: Awaitable[_T], every_s: float, check: Callable[[], Awaitable[None]]) -> _T:
    """Await an answer that may take long; ``check`` is awaited again and again meanwhile, and gives up by raising."""
    waiting = asyncio.ensure_future(answer)
    try:
        while not (await asyncio.wait({waiting}, timeout=every_s))[0]:
            await check()
        return waiting.result()
    finally:
        waiting.cancel()
