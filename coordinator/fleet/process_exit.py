"""How a process ended that is no child of ours: what Ray does not tell.

A host's parent is Ray's raylet, which drops its exit status, and Ray reports every death in the same words. The kernel
keeps the status for the holder of a pidfd (``PIDFD_GET_INFO``, Linux 6.15). On an older kernel only what the process
itself left is known: its last words, which it writes before it ends on purpose.
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

__all__ = ["OomKills", "WatchedProcess", "describe_end", "last_words", "leave_last_words", "tell_of_os_exit"]

_PIDFD_GET_INFO: Final = 0xC040FF0B
"""``_IOWR(0xFF, 11, 64 bytes)``, include/uapi/linux/pidfd.h."""
_PIDFD_INFO_EXIT: Final = 1 << 3
_INFO_BYTES: Final = 64
_REAPED_S: Final = 10.0
"""For the parent of an ended process to reap it, at once as a rule: only then the kernel tells the status to others."""
_EXIT_CODE_AT: Final = 60
"""Offset of ``exit_code``, a wait status."""
_OOM_MEMORY_S: Final = 30.0
"""How long an OOM kill is held to be the reason of a SIGKILL; hosts that die are looked at within seconds."""


class WatchedProcess:
    """A process that lives, watched so that its exit status is known afterwards.

    Args:
        pid: its id; the caller knows that it lives.

    Raises:
        OSError: it does not, or the kernel has no pidfds.
    """

    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)

    def wait_status(self, timeout_s: float) -> int | None:
        """Wait until it has ended; return its wait status, ``None`` if it lives on or the kernel does not tell."""
        if not self._poll(select.POLLIN, timeout_s):
            return None
        try:
            status = self._status()
            if status is None and self._poll(0, _REAPED_S):  # POLLIN: it is a zombie; POLLHUP: it has been reaped
                status = self._status()
        except OSError:  # a kernel before 6.15
            return None
        return status

    def close(self) -> None:
        """Stop watching."""
        os.close(self._fd)

    def _poll(self, events: int, timeout_s: float) -> bool:
        """Wait for events of the pidfd; POLLHUP is always one of them."""
        poll = select.poll()
        poll.register(self._fd, events)
        return bool(poll.poll(timeout_s * 1000))

    def _status(self) -> int | None:
        """Return the wait status; ``None`` until the process has been reaped.

        Raises:
            OSError: the kernel does not tell.
        """
        info = bytearray(_INFO_BYTES)
        struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
        fcntl.ioctl(self._fd, _PIDFD_GET_INFO, info)
        (told,) = struct.unpack_from("Q", info, 0)
        (status,) = struct.unpack_from("i", info, _EXIT_CODE_AT)
        return int(status) if told & _PIDFD_INFO_EXIT else None


class OomKills:
    """Whether the kernel killed processes of this machine for lack of memory a moment ago.

    Args:
        count: how many it has killed since it was started; the kernel's own count by default.
        monotonic_s: the time.
    """

    def __init__(
        self, count: Callable[[], int] | None = None, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count or _oom_kills
        self._monotonic_s = monotonic_s
        self._seen: deque[tuple[float, int]] = deque([(monotonic_s(), self._count())])

    def sample(self) -> None:
        """Note how many there were; to be called every few seconds."""
        now_s = self._monotonic_s()
        self._seen.append((now_s, self._count()))
        while len(self._seen) > 1 and self._seen[1][0] < now_s - _OOM_MEMORY_S:
            self._seen.popleft()

    def lately(self) -> bool:
        """Return whether there was one in the last half minute or so."""
        return self._count() > self._seen[0][1]


def describe_end(status: int | None, *, oom: bool, words: str | None) -> str | None:
    """Say in a few words how a process ended; ``None`` if nothing is known.

    Args:
        status: its wait status.
        oom: whether the kernel killed processes for lack of memory at that time.
        words: what it left.
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
    """Write, from a process that is about to end on purpose, why. The first words count; errors are passed over."""
    with contextlib.suppress(OSError), path.open("x", encoding="utf-8") as file:
        file.write(text)


def last_words(path: Path) -> str | None:
    """Return what a process left, and remove it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        path.unlink()
    except OSError:
        return None
    return text or None


def tell_of_os_exit(path: Path) -> None:
    """Let ``os._exit`` print who called it: it runs no handler, and leaves no traceback by itself.

    Args:
        path: for the last words of this process.
    """
    end, pid = os._exit, os.getpid()

    def end_and_tell(status: int) -> NoReturn:
        if os.getpid() == pid:  # a forked child ends with it in order
            print(f"os._exit({status}) was called:", file=sys.stderr)  # noqa: T201  the agent's log
            traceback.print_stack()
            leave_last_words(path, f"exit status {status}, os._exit was called")
        end(status)

    os._exit = end_and_tell


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _oom_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since it was started."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
