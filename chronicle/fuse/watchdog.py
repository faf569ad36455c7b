"""The watchdog of mount servers: heartbeats in memory that they share with the zygote.

A server records when it begins a request or a command, when it makes progress, and when it is idle. The zygote checks
the records at an interval. A server that stays at one point of a request for too long hangs: its disk does not answer,
it was stopped, or it loops. Nothing inside such a process can be relied on, so the zygote aborts the connection, upon
which all callers get an error, and replaces the server.

A command may stay at one point longer than a request: it syncs and removes many files. Longer commands record progress
themselves, or interleave requests (`chronicle.fuse.transport.interleave`).

An idle server and a stopped one (SIGSTOP, a frozen control group) look the same, and how the system shows a stopped
process depends on what stopped it. So an idle server that was silent for a while is probed, and answers by a heartbeat.
A server that opens its layer records nothing; there, CPU time is progress. A process that waits for a hung disk or was
stopped uses none.

The memory is allocated before the prefork process is forked, so that all servers share it; each writes its own cells
only.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

__all__ = [
    "CHECKS_PER_DEADLINE",
    "COMMAND",
    "IDLE",
    "OPENING",
    "REQUEST",
    "Heartbeat",
    "HeartbeatTable",
    "Verdict",
    "Watchdog",
    "unwatched_heartbeat",
]

IDLE: Final = 0
REQUEST: Final = 1
COMMAND: Final = 2
OPENING: Final = 3
CHECKS_PER_DEADLINE: Final = 6
"""Checks of a server per request deadline."""
_SERVERS: Final = 8192
"""The limit of watched servers: 16 bytes each, of which only those in use take memory."""
_COMMAND_PATIENCE: Final = 5
"""A command's deadline as a multiple of a request's: rolling back a million files is one point of a command."""


class Heartbeat:
    """The record of one server.

    Args:
        cells: two numbers: a counter of progress, and the current activity.
    """

    def __init__(self, cells: memoryview) -> None:
        self.cells = cells

    def beat(self) -> None:
        """Record progress; restarts the watchdog deadline."""
        self.cells[0] += 1


class HeartbeatTable:
    """The records of all servers of a zygote."""

    def __init__(self) -> None:
        self._cells = memoryview(mmap.mmap(-1, _SERVERS * 16)).cast("Q")
        self._free = list(range(_SERVERS - 1, -1, -1))

    def allocate(self) -> int | None:
        """Return a slot for a server; None if all are taken, and the server is not watched."""
        return self._free.pop() if self._free else None

    def release(self, number: int) -> None:
        """Free the slot of a server that has ended."""
        self.slot(number).cells[1] = IDLE
        self._free.append(number)

    def slot(self, number: int) -> Heartbeat:
        """Return the record in a slot."""
        return Heartbeat(self._cells[2 * number : 2 * number + 2])


class Verdict(Enum):
    """The result of a check."""

    ALIVE = "well"
    SILENT = "quiet"
    """Idle and without progress for some time: probe it."""
    HUNG = "hangs"


@dataclass(slots=True)
class Watchdog:
    """Checks one server.

    Args:
        heartbeat: its record.
        request_deadline_s: limit for one point of a request or of opening the layer, and, from half of it on, for the
            answer to a probe. Commands have a longer one, see `_COMMAND_PATIENCE`.
    """

    heartbeat: Heartbeat
    request_deadline_s: float
    _last_state: tuple[int, int, int] = (-1, -1, -1)
    _stalled_s: float = 0.0
    _checked_s: float = 0.0
    _probed: bool = False

    def check(self, now_s: float, pid: int) -> Verdict:
        """Check the server.

        Args:
            now_s: monotonic seconds. A long gap between two checks counts in part only: the zygote may have been
                stopped together with its servers.
            pid: the server's process; 0 if it has none yet.
        """
        beats, doing = self.heartbeat.cells
        state = beats, doing, _processor_ticks(pid) if doing == OPENING else 0
        step_s = min(now_s - self._checked_s, 2 * self.request_deadline_s / CHECKS_PER_DEADLINE)
        self._checked_s = now_s
        if state != self._last_state:
            self._last_state, self._stalled_s, self._probed = state, 0.0, False
            return Verdict.ALIVE
        self._stalled_s += step_s
        if doing == IDLE and not self._probed:
            self._probed = self._stalled_s >= self.request_deadline_s / 2
            return Verdict.SILENT if self._probed else Verdict.ALIVE
        patience = _COMMAND_PATIENCE if doing == COMMAND else 1
        return Verdict.HUNG if self._stalled_s > patience * self.request_deadline_s else Verdict.ALIVE


def _processor_ticks(pid: int) -> int:
    """Return the CPU time of a process in units of some 10 ms; 0 if there is no such process."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(after_name[11]) + int(after_name[12])  # utime and stime, of proc(5)


def unwatched_heartbeat() -> Heartbeat:
    """Return a record that no watchdog checks."""
    return Heartbeat(memoryview(bytearray(16)).cast("Q"))
