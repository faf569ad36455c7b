"""Waiting for a result as long as the client waits for it, and its key permits it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from coordinator.gateway.key_bound import watching, while_permitted
from podium.tasks import joined_beside

__all__ = ["while_connected"]

_T = TypeVar("_T")


async def while_connected(request: Request, waiting: Coroutine[None, None, _T]) -> _T:
    """Return a result; if the client leaves before, or its key ends, the coroutine is cancelled.

    Args:
        request: its body was read.
        waiting: gives the result.

    Raises:
        ClientDisconnect: the client left.
        NotAuthenticated: its key ended.
    """
    with watching(request) as ended:
        return await while_permitted(ended, _while_connected(request, waiting))


async def _while_connected(request: Request, waiting: Coroutine[None, None, _T]) -> _T:
    async with joined_beside(waiting) as result, joined_beside(_left(request)) as left:
        await asyncio.wait((result, left), return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise ClientDisconnect
        return result.result()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
