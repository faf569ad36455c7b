"""Whether mount servers get on: a few numbers in memory that they share with the zygote.

A server says when it begins with a request or a command, when it gets on with it, and when it waits for the next. The
zygote looks now and then. One that has been at the same point of the same request for too long hangs: its disk does not
answer, it was stopped, or it runs in circles. Nothing inside such a process can be relied on, so the zygote aborts the
connection, upon which everyone who waits gets an error, and puts another server in its place.

A command may be longer at one point than a request: syncing and removing many files. One that takes much longer than
that gets on where it does, and says so, or lets requests in meanwhile (`chronicle.fuse.transport.interleave`).

One that waits for requests looks the same when it was stopped (SIGSTOP, a frozen control group), and how the system
shows such a process depends on what stopped it. So a server that nothing was heard of for a while is asked, and the
answer is that it beats. One that opens its layer has nothing to beat with: it gets on if it uses the processor, which
who waits for a disk that does not answer, or was stopped, does not.

The memory is made before the template is forked, so that all servers have it; each writes only its own numbers.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

__all__ = ["COMMAND", "IDLE", "LOOKS", "OPENING", "REQUEST", "Finding", "Pulse", "Pulses", "Watcher", "unwatched"]

IDLE: Final = 0
REQUEST: Final = 1
COMMAND: Final = 2
OPENING: Final = 3
LOOKS: Final = 6
"""How often a server is looked at within the time that it may be at one point of a request."""
_SERVERS: Final = 8192
"""As many as can be watched at once: 16 bytes each, of which only those in use take memory."""
_COMMAND_PATIENCE: Final = 5
"""How many times as long as in a request a server may be at one point of a command: rolling back a million files is
one such point."""


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


class Finding(Enum):
    """What a look at a server found."""

    WELL = "well"
    QUIET = "quiet"
    """It waits for requests and had none for some time: ask it whether it would hear one."""
    HANGS = "hangs"


@dataclass(slots=True)
class Watcher:
    """Looks at one server.

    Args:
        pulse: its numbers.
        request_deadline_s: how long a server may be at one point of a request, of the opening of its layer, or leave
            half of it unheard that it was asked; of a command longer, see `_COMMAND_PATIENCE`.
    """

    pulse: Pulse
    request_deadline_s: float
    _seen: tuple[int, int, int] = (-1, -1, -1)
    _waited_s: float = 0.0
    _looked_s: float = 0.0
    _asked: bool = False

    def look(self, now_s: float, pid: int) -> Finding:
        """Look, and say what was found.

        Args:
            now_s: monotonic seconds. Of a long time between two looks little is counted: the zygote may have been
                stopped together with its servers.
            pid: the server's process; 0 if it has none yet.
        """
        beats, doing = self.pulse.cells
        seen = beats, doing, _processor_ticks(pid) if doing == OPENING else 0
        step_s = min(now_s - self._looked_s, 2 * self.request_deadline_s / LOOKS)
        self._looked_s = now_s
        if seen != self._seen:
            self._seen, self._waited_s, self._asked = seen, 0.0, False
            return Finding.WELL
        self._waited_s += step_s
        if doing == IDLE and not self._asked:
            self._asked = self._waited_s >= self.request_deadline_s / 2
            return Finding.QUIET if self._asked else Finding.WELL
        patience = _COMMAND_PATIENCE if doing == COMMAND else 1
        return Finding.HANGS if self._waited_s > patience * self.request_deadline_s else Finding.WELL


def _processor_ticks(pid: int) -> int:
    """Return how long a process has computed, in units of some 10 ms; 0 if there is no such process."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(after_name[11]) + int(after_name[12])  # utime and stime, of proc(5)


def unwatched() -> Pulse:
    """Return numbers that nobody looks at."""
    return Pulse(memoryview(bytearray(16)).cast("Q"))
