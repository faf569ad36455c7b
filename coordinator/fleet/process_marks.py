"""Marks by which the processes that an activation started are found again, whatever they did to detach themselves.

A mark is the soft limit of RLIMIT_RTTIME, set to a number that is derived from the host's id. The kernel hands limits
on to every process that is forked or executed; ``setsid``, a double fork, a cleared environment and closed descriptors
leave them as they are. It needs no privilege. The limit itself is of no consequence: it counts microseconds of a
process under a real-time scheduling policy, and the least mark is 146,000 years.

Processes that set this limit themselves, and systems that refuse it, are covered by a second mark, an environment
variable. It is the weaker one: a process can be started without it, and one that was forked and executed nothing has
the environment that its ancestor was started with. docs/adr/0019 has the alternatives, and what neither mark catches.
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

__all__ = ["Mark", "end_marked", "environment_without_mark", "take_mark_off"]

_LEAST: Final = 1 << 62
_DIGEST_BYTES: Final = 7
_CLEAN_SCANS: Final = 2
"""Scans in a row that must find no process: one that is forked during a scan may be missed by it."""
_MOST_WAITED_FOR: Final = 16
"""Processes that are waited for at a time, each by a descriptor: there may be more of them than descriptors."""
_END_DEADLINE_S: Final = 20.0
"""For killed processes to end; one that waits for a disk ends when the disk has answered."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of one host's processes.

    A copy of a home has the home's id, and the ids of the hosts that ran when it was made. Both may have services at
    the same time. So the home's directory is part of the mark: the copy does not find the processes of the original.
    """

    home: str
    """The home's id, and the device and inode of its directory; see `coordinator.home.Home.identity`."""
    host_id: str

    def put_on(self) -> None:
        """Mark this process, and all that it starts from now on."""
        set_host_variable(self._text)
        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
        # Under a lower hard limit, or in a sandbox that refuses, the variable is left.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_RTTIME, (self._limit, hard))

    def is_on(self, process: int) -> bool:
        """Whether a process has this mark; ``False`` if it has ended or may not be looked at.

        The environment is looked at only where the limit cannot tell: it takes longer, and waits for a process that
        hangs while its memory is changed.
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
    """Free this process, and what it starts from now on, of a mark that it inherited: a service belongs to no agent."""
    set_host_variable(None)
    soft, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    if soft >= _LEAST:
        resource.setrlimit(resource.RLIMIT_RTTIME, (hard, hard))


def environment_without_mark() -> dict[str, str]:
    """Return this process's environment for a service that it starts.

    The service cannot take the variable off by itself: ``/proc/PID/environ`` keeps what a process was started with.
    """
    return environment_without_host_variable()


def end_marked(mark: Mark, deadline_s: float = _END_DEADLINE_S) -> int:
    """Kill every process that has a mark, but this one, and return when all of them have ended.

    Returns:
        how many there were.

    Raises:
        Unavailable: some could not be killed, or did not end in time.
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
    except PermissionError:  # it is another user's, or has other rights; this takes twenty times as long
        lines = (Path("/proc") / str(process) / "limits").read_bytes().splitlines()
        soft = next((line.split()[3] for line in lines if line.startswith(b"Max realtime timeout")), None)
        if soft is None:  # it was reaped meanwhile
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


def _kill_found(mark: Mark, until: float) -> set[int]:
    """Kill each process with a mark when it is found, and wait until the first of them have ended.

    Returns:
        the ids of those that were found. Those not waited for are found again by the next scan if they still end.

    Raises:
        Unavailable: some could not be killed, or did not end in time.
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
                if len(waited_for) < _MOST_WAITED_FOR:
                    waited_for[process] = pidfd
                    descriptors.push(closing.pop_all())
        hang = [process for process, pidfd in waited_for.items() if not _has_ended(pidfd, until - time.monotonic())]
    if hang:
        why = "runs as another user" if others else "was killed and has not ended: it may wait for a disk"
        raise Unavailable(
            f"process {(others or hang)[0]}, which an earlier activation of the agent started, {why}; the workspace is "
            "not used again before it has ended: end it, and try again"
        )
    return found


def _has_ended(pidfd: int, patience_s: float) -> bool:
    """Whether a process and its threads have ended, reaped or not, waiting for that."""
    waiter = select.poll()
    waiter.register(pidfd, select.POLLIN)
    return bool(waiter.poll(max(patience_s, 0) * 1000))


def _processes() -> Iterator[tuple[int, int]]:
    """Yield the id and a descriptor, to be closed by the caller, of each process but this one."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted of hundreds
        if name.isdecimal() and int(name) != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                yield int(name), os.pidfd_open(int(name))
