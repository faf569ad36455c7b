"""Marks that identify all processes started by an activation, even processes that have detached themselves.

A mark is a value of the soft limit RLIMIT_RTTIME that is derived from the host's id. Limits are inherited across fork
and exec; ``setsid``, a double fork, a cleared environment and closed descriptors do not change them. Setting the limit
needs no privilege. The limit itself has no effect: it counts microseconds of CPU time under a real-time scheduling
policy, and the smallest mark is 146,000 years.

A second mark, an environment variable, covers processes that set this limit themselves, and systems that refuse to set
it. It is weaker: a process can be started without it, and ``/proc/PID/environ`` of a process that forked without exec
shows the environment with which its ancestor was executed. docs/adr/0019 has the alternatives, and the limits of both
marks.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import resource
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import Unavailable
from coordinator.environment import HOST_VARIABLE, environment_without_host_variable, set_host_variable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ProcessMark", "end_marked", "environment_without_mark", "take_mark_off"]

_LEAST: Final = 1 << 62
_DIGEST_BYTES: Final = 7
_CLEAN_SCANS: Final = 2
"""Consecutive scans that must find no process: a scan may miss a process that is forked meanwhile."""
_MAX_WAITED_FOR: Final = 16
"""Limit of pidfds held at a time: there may be more processes than descriptors."""
_END_DEADLINE_S: Final = 20.0
"""Timeout for killed processes to exit; one blocked on disk I/O exits when the I/O completes."""


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """The mark of one host's processes.

    A copy of a home has the same home id and the ids of the hosts that ran at the time of the copy, and both may have
    services at the same time. So the mark includes the home's directory: the service of a copy does not find the
    processes of the original.
    """

    home: str
    """The home's id, and the device and inode of its directory; see `coordinator.home.Home.identity`."""
    host_id: str

    def put_on(self) -> None:
        """Mark this process and all its future descendants."""
        set_host_variable(self._text)
        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
        # Under a lower hard limit, or in a sandbox that refuses this, the variable remains as the only mark.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_RTTIME, (self._limit, hard))

    def is_on(self, process: int) -> bool:
        """Whether a process has this mark; ``False`` if it has ended or cannot be inspected.

        The environment is read only where the limit is inconclusive: reading takes longer, and blocks on a process that
        hangs while it holds the lock of its memory map.
        """
        with contextlib.suppress(OSError):
            limit = _limit_of(process)
            if limit >= _LEAST or (limit == resource.RLIM_INFINITY and _can_be_limited()):
                return limit == self._limit
            variables = (Path("/proc") / str(process) / "environ").read_bytes().split(b"\0")
            return f"{HOST_VARIABLE}={self._text}".encode() in variables
        return False

    @property
    def _text(self) -> str:
        return f"{self.home}/{self.host_id}"

    @property
    def _limit(self) -> int:
        digest = hashlib.sha256(self._text.encode()).digest()[:_DIGEST_BYTES]
        return _LEAST + int.from_bytes(digest, "big")


def take_mark_off() -> None:
    """Remove an inherited mark from this process and its future descendants: a service belongs to no agent."""
    set_host_variable(None)
    soft, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    if soft >= _LEAST:
        resource.setrlimit(resource.RLIMIT_RTTIME, (hard, hard))


def environment_without_mark() -> dict[str, str]:
    """Return this process's environment without the mark, for a service that it starts.

    The service cannot remove the variable itself: ``/proc/PID/environ`` keeps the environment of the exec.
    """
    return environment_without_host_variable()


def end_marked(mark: ProcessMark, deadline_s: float = _END_DEADLINE_S) -> int:
    """Kill every process with a mark, except this one, and return when all have exited.

    Returns:
        the number of processes.

    Raises:
        Unavailable: a process could not be killed, or did not exit before the deadline.
    """
    until = time.monotonic() + deadline_s
    killed: set[int] = set()
    clean = 0
    while clean < _CLEAN_SCANS:
        found = _kill_found(mark, until)
        killed |= found
        clean = 0 if found else clean + 1
    return len(killed)


def _limit_of(process: int) -> int:
    """Return the soft limit of a process.

    Raises:
        OSError: it has ended.
    """
    try:
        return resource.prlimit(process, resource.RLIMIT_RTTIME)[0]
    except PermissionError:  # another user's process, or one with other capabilities; /proc takes twenty times as long
        lines = (Path("/proc") / str(process) / "limits").read_bytes().splitlines()
        soft = next((line.split()[3] for line in lines if line.startswith(b"Max realtime timeout")), None)
        if soft is None:  # the process was reaped meanwhile
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(process)) from None
        return int(soft) if soft.isdigit() else resource.RLIM_INFINITY


@functools.cache
def _can_be_limited() -> bool:
    """Whether this system lets processes set the limit."""
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, (_LEAST, before[1]))
        resource.setrlimit(resource.RLIMIT_RTTIME, before)
    except (OSError, ValueError):
        return False
    return True


def _kill_found(mark: ProcessMark, until: float) -> set[int]:
    """Scan once: kill each process with a mark, and wait for the exit of the first `_MAX_WAITED_FOR` of them.

    Returns:
        the ids of the processes found. The next scan finds those that were not waited for and still run.

    Raises:
        Unavailable: a process could not be killed, or did not exit before the deadline.
    """
    found: set[int] = set()
    waited_for: dict[int, int] = {}
    others = []
    with contextlib.ExitStack() as descriptors:
        for process, pidfd in _processes():
            with contextlib.ExitStack() as closing:
                closing.callback(os.close, pidfd)
                if not mark.is_on(process) or _has_ended(pidfd, 0):
                    continue
                found.add(process)
                try:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                except PermissionError:
                    others.append(process)
                if len(waited_for) < _MAX_WAITED_FOR:
                    waited_for[process] = pidfd
                    descriptors.push(closing.pop_all())
        hang = [process for process, pidfd in waited_for.items() if not _has_ended(pidfd, until - time.monotonic())]
    if hang:
        why = "runs as another user" if others else "was killed and has not exited: it may be blocked on disk I/O"
        raise Unavailable(
            f"process {(others or hang)[0]}, which an earlier activation of the agent started, {why}; the workspace "
            "stays locked until it exits: end it, and try again"
        )
    return found


def _has_ended(pidfd: int, patience_s: float) -> bool:
    """Wait until a process and all its threads have exited, reaped or not; return whether they have."""
    waiter = select.poll()
    waiter.register(pidfd, select.POLLIN)
    return bool(waiter.poll(max(patience_s, 0) * 1000))


def _processes() -> Iterator[tuple[int, int]]:
    """Yield the id and a pidfd, which the caller closes, of each process except this one."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - only names are needed, of hundreds of entries
        if name.isdecimal() and int(name) != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                yield int(name), os.pidfd_open(int(name))
