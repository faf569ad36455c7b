"""Threads of tools: each call has its own, so that one that hangs holds up no other, nor the end of the process."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["in_thread"]


async def in_thread(call: Callable[[], Any], name: str) -> Any:
    """Make a call in a thread of its own, with a copy of the caller's context, and return its value.

    A cancellation leaves the thread running: nothing stops a function that blocks.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value, raised = None, None
        try:
            value = context.run(call)
        except BaseException as error:  # noqa: BLE001  raised again where the call is awaited
            raised = error
        with suppress(RuntimeError):  # the event loop has ended meanwhile
            loop.call_soon_threadsafe(settle, value, raised)

    threading.Thread(target=run, name=name, daemon=True).start()
    value, error = await ended
    if error is not None:
        raise error
    return value
