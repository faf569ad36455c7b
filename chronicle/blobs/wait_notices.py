"""Notices for the user of a command about slow requests to a far store.

By default there are none: a mount server has no user to notify. A command installs a reporter for its run, with
`report_slow_requests`. Requests then record their progress here; one thread, started by the first of them, reports the
one that waits longest. The module knows neither what is requested nor how.
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

__all__ = ["Wait", "report_slow_requests", "track"]

_FIRST_S: Final = 3.0
"""A command without output for longer looks hung."""
_EVERY_S: Final = 10.0
"""The timeout of one attempt of a small request."""
_END_S: Final = 5.0


@dataclass(slots=True)
class Wait:
    """A request without an answer so far.

    Attributes:
        store: its name for messages.
        max_s: the longest duration of all attempts, seconds.
        began_s: its start, monotonic seconds.
        attempt: the number of the current attempt, from 1.
        reason: why the previous attempt failed; empty for the first.
    """

    store: str
    max_s: float
    began_s: float
    attempt: int = 1
    reason: str = ""

    def line(self, now_s: float) -> str:
        """Return the text of the notice."""
        left_s = max(0.0, self.began_s + self.max_s - now_s)
        reason = f" ({self.reason})" if self.reason else ""
        return (
            f"waiting for the store at {self.store}, which has not answered for {now_s - self.began_s:.0f} s{reason}: "
            f"attempt {self.attempt}, gives up in {left_s:.0f} s at the latest"
        )


class SlowRequestReporter:
    """Reports slow requests; its arguments are those of `report_slow_requests`."""

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
    def track(self, wait: Wait) -> Iterator[None]:
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
        # Outside of the lock: requests must not wait for a stderr without a reader.
        with suppress(OSError, ValueError):  # it was closed
            while (line := self._next_line()) is not None:
                self._say(line)

    def _next_line(self) -> str | None:
        """Wait until a notice is due, and return its text; ``None`` at the end."""
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


_reporter: SlowRequestReporter | None = None


@contextmanager
def report_slow_requests(
    say: Callable[[str], None], first_s: float = _FIRST_S, every_s: float = _EVERY_S
) -> Iterator[None]:
    """Report the slow requests of all threads of this process.

    Args:
        say: called with each line, in a thread of its own.
        first_s: shorter waits are not reported, seconds.
        every_s: the time between two lines, for any number of waits, seconds.
    """
    global _reporter
    before, _reporter = _reporter, SlowRequestReporter(say, first_s, every_s)
    try:
        yield
    finally:
        ended, _reporter = _reporter, before
        ended.end()


def track(wait: Wait) -> AbstractContextManager[None]:
    """Return a context for a request: a notice reports it if it takes long and a reporter is installed."""
    return _reporter.track(wait) if _reporter is not None else nullcontext()
