"""Notices for the user of a command about slow requests to a far store.

By default there are none: a mount server has no user to notify. A command installs a notifier for its run, with
`telling`. Requests then record their progress here; one thread, started by the first of them, reports the one that
waits longest. The module knows neither what is requested nor how.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

__all__ = ["Wait", "noted", "telling"]

_FIRST_S: Final = 3.0
"""A command that says nothing for longer looks as if it hung."""
_EVERY_S: Final = 10.0
"""As long as an attempt of a small request takes that is not answered."""
_END_S: Final = 5.0


@dataclass(slots=True)
class Wait:
    """A request that was not answered yet.

    Attributes:
        store: its name, as messages have it.
        most_s: how long all of them take at most, seconds.
        began_s: when it began, monotonic seconds.
        attempt: which one it is at, from 1.
        reason: why the last one failed; empty before.
    """

    store: str
    most_s: float
    began_s: float
    attempt: int = 1
    reason: str = ""

    def line(self, now_s: float) -> str:
        """Return what is said of it."""
        left_s = max(0.0, self.began_s + self.most_s - now_s)
        reason = f" ({self.reason})" if self.reason else ""
        return (
            f"waiting for the store at {self.store}, which has not answered for {now_s - self.began_s:.0f} s{reason}: "
            f"attempt {self.attempt}, gives up in {left_s:.0f} s at the latest"
        )


class _Teller:
    """Says what is waited for; its arguments are those of `telling`."""

    def __init__(self, say: Callable[[str], None], first_s: float, every_s: float) -> None:
        self._say = say
        self._first_s = first_s
        self._every_s = every_s
        self._changed = threading.Condition()
        self._waits: dict[int, Wait] = {}
        self._said_s = -math.inf
        self._ended = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def noted(self, wait: Wait) -> Iterator[None]:
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="chronicle-waiting", daemon=True)
                self._thread.start()
            if not self._waits:
                self._changed.notify()
            self._waits[id(wait)] = wait
        try:
            yield
        finally:
            with self._changed:
                del self._waits[id(wait)]

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_END_S)  # stderr may be a pipe without a reader

    def _run(self) -> None:
        # Without the lock, or requests would wait for a stderr without a reader.
        with suppress(OSError, ValueError):  # it was closed
            while (line := self._next_line()) is not None:
                self._say(line)

    def _next_line(self) -> str | None:
        """Wait until there is something to say; ``None`` at the end."""
        with self._changed:
            while not self._ended:
                wait = next(iter(self._waits.values()), None)  # the oldest
                if wait is None:
                    self._changed.wait()
                    continue
                now_s = time.monotonic()
                due_s = max(wait.began_s + self._first_s, self._said_s + self._every_s)
                if now_s >= due_s:
                    self._said_s = now_s
                    return wait.line(now_s)
                self._changed.wait(due_s - now_s)
            return None


_teller: _Teller | None = None


@contextmanager
def telling(say: Callable[[str], None], first_s: float = _FIRST_S, every_s: float = _EVERY_S) -> Iterator[None]:
    """Let waits of any thread of this process be told meanwhile.

    Args:
        say: is given a line, in a thread of its own.
        first_s: a wait that is shorter is not told, seconds.
        every_s: the time between two lines, however many wait, seconds.
    """
    global _teller
    before, _teller = _teller, _Teller(say, first_s, every_s)
    try:
        yield
    finally:
        ended, _teller = _teller, before
        ended.end()


def noted(wait: Wait) -> AbstractContextManager[None]:
    """Return a context for a request: a notice reports it if it takes long and a notifier is installed."""
    return _teller.noted(wait) if _teller is not None else nullcontext()
