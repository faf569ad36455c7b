"""Whether mount servers get on: a few numbers in memory that they share with the zygote.

A server says when it begins with a request or a command, when it gets on with it, and when it waits for the next. The
zygote looks now and then. One that has been at the same point of the same request for too long hangs: its disk does not
answer, it was stopped, or it runs in circles. Nothing inside such a process can be relied on, so the zygote aborts the
connection, upon which everyone who waits gets an error, and puts another server in its place.

The memory is made before the template is forked, so that all servers have it; each writes only its own numbers.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Final

__all__ = ["COMMAND", "IDLE", "REQUEST", "Pulse", "Pulses", "Watcher", "unwatched"]

IDLE: Final = 0
REQUEST: Final = 1
COMMAND: Final = 2
_SERVERS: Final = 8192
"""As many as can be watched at once: 16 bytes each, of which only those in use take memory."""
_COMMAND_DEADLINE_S: Final = 1_000.0
"""Longer than a client waits for a seal, the longest command."""


class Pulse:
    """The numbers of one server.

    Args:
        cells: two of them: how often it got on, and what it is doing.
    """

    def __init__(self, cells: memoryview) -> None:
        self.cells = cells

    def beat(self) -> None:
        """Get on: what comes next may take long again."""
        self.cells[0] += 1


class Pulses:
    """The numbers of all servers of a zygote."""

    def __init__(self) -> None:
        self._cells = memoryview(mmap.mmap(-1, _SERVERS * 16)).cast("Q")
        self._free = list(range(_SERVERS - 1, -1, -1))

    def take(self) -> int | None:
        """Return a place for a server; None if there is none left, and the server is not watched."""
        return self._free.pop() if self._free else None

    def give_back(self, place: int) -> None:
        """Say that the server of a place has ended."""
        self.at(place).cells[1] = IDLE
        self._free.append(place)

    def at(self, place: int) -> Pulse:
        """Return the numbers of a place."""
        return Pulse(self._cells[2 * place : 2 * place + 2])


@dataclass(slots=True)
class Watcher:
    """Looks at one server's numbers.

    Args:
        pulse: those.
        request_deadline_s: how long a server may be at one point of a request.
    """

    pulse: Pulse
    request_deadline_s: float
    _seen: int = -1
    _since_s: float = 0.0

    def hangs(self, now_s: float) -> bool:
        """Look; say whether the server has been at the same point for too long.

        Args:
            now_s: monotonic seconds.
        """
        beats, doing = self.pulse.cells
        if doing == IDLE or beats != self._seen:
            self._seen, self._since_s = beats, now_s
            return False
        return now_s - self._since_s > (self.request_deadline_s if doing == REQUEST else _COMMAND_DEADLINE_S)


def unwatched() -> Pulse:
    """Return numbers that nobody looks at."""
    return Pulse(memoryview(bytearray(16)).cast("Q"))
