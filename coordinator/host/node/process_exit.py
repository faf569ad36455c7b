"""The cause of a process's end, for processes that are not children of this one.

A host's parent is the template of Ray's workers, or Ray's raylet. It does not pass the exit status on, and Ray reports
every death with the same text. The kernel keeps the status for holders of a pidfd (``PIDFD_GET_INFO``, Linux 6.15). On
an older kernel the only source is the file of last words, which a process writes before it exits deliberately.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import sys
import time
import traceback
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "OomKills",
    "WatchedProcess",
    "available_bytes",
    "computes",
    "describe_end",
    "last_culprit",
    "last_words",
    "leave_culprit",
    "leave_last_words",
    "tell_of_os_exit",
]

_PIDFD_GET_INFO: Final = 0xC040FF0B
"""``_IOWR(0xFF, 11, 64 bytes)``, include/uapi/linux/pidfd.h."""
_PIDFD_INFO_EXIT: Final = 1 << 3
_INFO_BYTES: Final = 64
_REAPED_S: Final = 10.0
"""Timeout for the parent to reap an ended process, usually at once: the kernel reports the status only after that."""
_EXIT_CODE_AT: Final = 60
"""Offset of ``exit_code``, a wait status, in ``struct pidfd_info``."""
_OOM_WINDOW_S: Final = 30.0
"""Age up to which an OOM kill explains a SIGKILL; the death of a host is examined within seconds."""


class WatchedProcess:
    """A pidfd of a running process, which gives its exit status after its end.

    Args:
        pid: the process id; the caller knows that the process runs.

    Raises:
        OSError: the process has ended, or the kernel has no pidfds.
    """

    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)
        self.pid = pid

    def fileno(self) -> int:
        """Return the pidfd, which is readable once the process has ended."""
        return self._fd

    def wait_status(self, timeout_s: float) -> int | None:
        """Wait for the end; return the wait status, ``None`` after the timeout or if the kernel does not report it."""
        if not self._poll(select.POLLIN, timeout_s):
            return None
        try:
            status = self._status()
            if status is None and self._poll(0, _REAPED_S):  # POLLIN: the process is a zombie; POLLHUP: it was reaped
                status = self._status()
        except OSError:  # a kernel before 6.15
            return None
        return status

    def close(self) -> None:
        """Close the pidfd."""
        os.close(self._fd)

    def _poll(self, events: int, timeout_s: float) -> bool:
        """Wait for events of the pidfd, POLLHUP always included; return whether one occurred."""
        poll = select.poll()
        poll.register(self._fd, events)
        return bool(poll.poll(timeout_s * 1000))

    def _status(self) -> int | None:
        """Return the wait status; ``None`` until the process has been reaped.

        Raises:
            OSError: the kernel does not report the status.
        """
        info = bytearray(_INFO_BYTES)
        struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
        fcntl.ioctl(self._fd, _PIDFD_GET_INFO, info)
        (mask,) = struct.unpack_from("Q", info, 0)
        (status,) = struct.unpack_from("i", info, _EXIT_CODE_AT)
        return int(status) if mask & _PIDFD_INFO_EXIT else None


class OomKills:
    """Detects recent kills by the kernel's OOM killer on this machine.

    Args:
        count: returns the number of OOM kills since boot; by default the kernel's counter.
        monotonic_s: the monotonic clock, seconds.
    """

    def __init__(
        self, count: Callable[[], int] | None = None, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count or _oom_kills
        self._monotonic_s = monotonic_s
        self._seen: deque[tuple[float, int]] = deque([(monotonic_s(), self._count())])

    def sample(self) -> None:
        """Sample the counter; call this every few seconds."""
        now_s = self._monotonic_s()
        self._seen.append((now_s, self._count()))
        while len(self._seen) > 1 and self._seen[1][0] < now_s - _OOM_WINDOW_S:
            self._seen.popleft()

    def lately(self) -> bool:
        """Whether there was an OOM kill in the last half minute or so."""
        return self._count() > self._seen[0][1]


def describe_end(status: int | None, *, oom: bool, words: str | None) -> str | None:
    """Return a short description of a process's end; ``None`` if nothing is known.

    Args:
        status: the wait status of the process.
        oom: whether there were OOM kills at that time.
        words: the last words of the process.
    """
    if words is not None:
        return words
    if status is not None and os.WIFEXITED(status):
        return f"exit status {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status) if status is not None else None
    by_oom = oom and number in (None, signal.SIGKILL)
    suspect = "the kernel was killing processes for lack of memory at that time" if by_oom else None
    killed = f"killed by {_signal_name(number)}" if number is not None else None
    return "; ".join(part for part in (killed, suspect) if part) or None


def leave_last_words(path: Path, text: str) -> None:
    """Write why this process is about to exit. Only the first call writes; errors are ignored."""
    with contextlib.suppress(OSError), path.open("x", encoding="utf-8") as file:
        file.write(text)


def last_words(path: Path) -> str | None:
    """Return the last words of a process, and remove the file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        path.unlink()
    except OSError:
        return None
    return text or None


def leave_culprit(path: Path, agent: str) -> None:
    """Write which agent of a shared host made this process exit, beside its last words."""
    leave_last_words(_culprit_path(path), agent)


def last_culprit(path: Path) -> str | None:
    """Return what `leave_culprit` has written, and remove the file."""
    return last_words(_culprit_path(path))


def _culprit_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.culprit")


def tell_of_os_exit(
    path: Path, caller: Callable[[], object | None] = lambda: None, on_call: Callable[[], None] = lambda: None
) -> None:
    """Patch ``os._exit`` to print the stack of its caller: by itself it runs no handler and prints no traceback.

    Args:
        path: of the file for the last words of this process.
        caller: returns the agent whose code calls, which is to blame; ``None`` if it is not known.
        on_call: called before the process ends, by what calls.
    """
    end, pid = os._exit, os.getpid()

    def exit_with_trace(status: int) -> NoReturn:
        if os.getpid() == pid:  # in a forked child it is the regular way to exit
            print(f"os._exit({status}) was called:", file=sys.stderr)  # noqa: T201  the agent's log
            traceback.print_stack()
            leave_last_words(path, f"exit status {status}, os._exit was called")
            if (agent := caller()) is not None:
                leave_culprit(path, str(agent))
            on_call()
        end(status)

    os._exit = exit_with_trace


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def available_bytes() -> int:
    """Return the memory that the kernel estimates to be available to new programs, bytes; 0 if it is not known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)


def computes(pid: int) -> bool:
    """Return whether a thread of a process runs, or waits for a processor or the disk; also if that is not known."""
    try:
        states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has ended meanwhile
        return True
    return any(state in "RD" for state in states)


def own_bytes(pid: int) -> int | None:
    """Return the resident memory of a process that is no file's and not shared, bytes; ``None`` if it has ended."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def _oom_kills() -> int:
    """Return the number of OOM kills since boot."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
