"""How blocking calls are made from the event loop: in a thread, inline, or under a simulator's control."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor
    from typing import Any

__all__ = ["BlockingRunner", "at_most", "at_once", "in_threads", "to_its_end"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class BlockingRunner(Protocol):
    """Makes a call that may block, and returns its answer; ``asyncio.to_thread`` is one.

    If the caller is cancelled, the call may or may not happen.
    """

    async def __call__(self, call: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Make the call and return its answer, or raise its exception."""
        ...


async def at_once(call: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Make the call inline: a `BlockingRunner` for calls that are shorter than the hop to a thread and back.

    The hop costs 60 to 100 µs, a read of a local SQLite database 20. The event loop is blocked during the call.
    """
    return call(*args, **kwargs)


def at_most(calls: int, threads: Executor) -> BlockingRunner:
    """Return what `in_threads` returns, but only so many calls run at a time; others wait, in their order.

    A call whose caller was cancelled counts until its thread is free. The threads end before the event loop.
    """
    room = asyncio.Semaphore(calls)

    async def limited(call: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        await room.acquire()
        loop, in_context = asyncio.get_running_loop(), copy_context().run
        try:
            running = threads.submit(lambda: in_context(call, *args, **kwargs))
        except BaseException:
            room.release()
            raise
        running.add_done_callback(lambda _: loop.call_soon_threadsafe(room.release))
        return await asyncio.wrap_future(running)

    return limited


def in_threads(threads: Executor) -> BlockingRunner:
    """Return a `BlockingRunner` with threads of its own: agents may block those of ``asyncio.to_thread``.

    A call has a copy of the caller's context.
    """

    async def run(call: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        in_context = copy_context().run
        return await asyncio.get_running_loop().run_in_executor(threads, lambda: in_context(call, *args, **kwargs))

    return run


async def to_its_end(call: Coroutine[Any, Any, _T], name: str) -> _T:
    """Await a call that must not be left half-way: one that is cancelled meanwhile goes on to its end first.

    Args:
        name: of the task that makes it.

    Raises:
        CancelledError: the caller was cancelled; the call has ended, and what it returned or raised is dropped.
    """
    running = asyncio.create_task(call, name=name)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # the cancellation is raised instead
        raise
