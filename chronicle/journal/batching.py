"""Writes of coroutines in batches: one thread writes what has gathered while it was at the disk.

A lone write costs two thread switches. None of it blocks an event loop: a stalled disk must not stall other coroutines.
An event loop hands over its writes once an iteration. Handed over one by one, they would go in small batches, and a
thread that writes beside a busy loop waits for the interpreter's lock after each statement.
"""

from __future__ import annotations

import asyncio
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from chronicle.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Batches"]

_W = TypeVar("_W")
_R = TypeVar("_R")

_MAX_BATCH: Final = 256
"""Most writes in one batch. It bounds the time that the first of them waits for the others."""


class Batches(Generic[_W, _R]):
    """Writes in batches, on a thread of its own. The queues hold at most one entry for each waiting coroutine.

    Args:
        write: writes a batch durably, and returns the result or the error of each write, in order; what it raises, all
            of them get. It is called on the thread.
        name: of the thread.
    """

    def __init__(self, write: Callable[[Sequence[_W]], Sequence[_R | Exception]], name: str) -> None:
        self._write = write
        self._name = name
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Entry[_W, _R]]] = {}
        """What each loop hands over at the end of its iteration."""
        self._queue: SimpleQueue[list[_Entry[_W, _R]] | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def written(self, write: _W) -> _R:
        """Write, durably, and return the result; any number of coroutines of any event loop may wait at once.

        When cancelled, it may still be written.

        Raises:
            Unavailable: `close` was called.
            Exception: the error of this write, or of the whole batch.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_R] = loop.create_future()
        with self._guard:
            if self._closed:
                raise Unavailable(f"the {self._name} was closed")
            gathered = self._gathered.get(loop)
            if gathered is None:
                gathered = self._gathered[loop] = []
                loop.call_soon(self._hand_over, loop)
            gathered.append((write, future))
        return await future

    def close(self) -> None:
        """Write what is queued and end the thread. Blocks until then."""
        with self._guard:
            self._closed = True
        for loop in list(self._gathered):
            self._hand_over(loop)
        with self._guard:
            thread = self._thread
            self._queue.put(None)
        if thread is not None:
            thread.join()

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._guard:
            gathered = self._gathered.pop(loop, None)
            if gathered is None:  # `close` did it
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._queue.put(gathered)

    def _run(self) -> None:
        last = False
        while not last:
            batch: list[_Entry[_W, _R]] = []
            entries = self._queue.get()
            while entries is not None:
                batch += entries
                try:
                    entries = self._queue.get_nowait()
                except Empty:
                    break
            last = entries is None
            # A write whose caller was cancelled while it was queued is skipped.
            begun = [each for each in batch if not each[1].cancelled()]
            for part in range(0, len(begun), _MAX_BATCH):
                self._write_all(begun[part : part + _MAX_BATCH])

    def _write_all(self, batch: Sequence[_Entry[_W, _R]]) -> None:
        outcomes: Sequence[_R | Exception]
        try:
            outcomes = self._write([write for write, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, each caller gets it
            outcomes = [error] * len(batch)
        by_loop: dict[asyncio.AbstractEventLoop, _Answers[_R]] = {}
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            by_loop.setdefault(future.get_loop(), []).append((future, outcome))
        for loop, answers in by_loop.items():
            try:
                loop.call_soon_threadsafe(_answer, answers)
            except RuntimeError:  # the loop was closed, so no coroutine waits there
                continue


_Entry: TypeAlias = "tuple[_W, asyncio.Future[_R]]"
_Answers: TypeAlias = "list[tuple[asyncio.Future[_R], _R | Exception]]"


def _answer(answers: _Answers[_R]) -> None:
    for future, outcome in answers:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
