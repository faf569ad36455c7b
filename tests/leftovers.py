"""What a run of tests leaves behind: processes, known by a variable in their environment, and FUSE mounts.

Each worker of pytest-xdist extends the variable's value, so it finds its own processes only; the controller finds those
of all workers, and the workers themselves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

VARIABLE = "PODIUM_TEST_RUN"


def mark_this_run(worker: str | None) -> None:
    """Set the variable that every process started from here inherits, however it detaches itself.

    Args:
        worker: the id of this worker of pytest-xdist, whose environment has the controller's value; None in a
            controller and in a run without workers.
    """
    os.environ[VARIABLE] = f"{os.environ[VARIABLE]}{worker}." if worker else f"{uuid.uuid4().hex}."


def marked_processes() -> dict[int, str]:
    """Processes of this run but this one: process id to command line. Zombies are not counted."""
    mark = f"{VARIABLE}={os.environ[VARIABLE]}".encode()
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = Path(entry.path, "environ").read_bytes()
            if any(each.startswith(mark) for each in environ.split(b"\0")):
                command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found[int(entry.name)] = command
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return found


def fuse_mounts(below: Path) -> set[str]:
    """FUSE mount points below a directory, in this process's mount namespace."""
    mounts = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        if after.startswith("fuse") and Path(point).is_relative_to(below):
            mounts.add(point)
    return mounts


def wait_until_gone(before: dict[int, str], grace_s: float) -> dict[int, str]:
    """Processes of this run that were not there before and do not end within the grace.

    A mount service that several tests share forks servers ahead: what is of its session is its own.
    """
    services = {session_of(pid) for pid in before} - {None, session_of(os.getpid())}
    deadline = time.monotonic() + grace_s
    while left := {
        pid: command
        for pid, command in marked_processes().items()
        if pid not in before and session_of(pid) not in services
    }:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)  # a process that was told to end needs a moment; a clean test never comes here
    return {}


def session_of(pid: int) -> int | None:
    """The session of a process; None if it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def clean_up(processes: dict[int, str], mounts: set[str]) -> None:
    """End what was left, so that one leak fails one test."""
    for mount in mounts:
        subprocess.run(["fusermount3", "-u", "-z", mount], check=False, capture_output=True, timeout=10)
    for pid in processes:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def describe(processes: dict[int, str], mounts: set[str]) -> str:
    """A list of what was left."""
    lines = [f"process {pid}: {command[:200]}" for pid, command in sorted(processes.items())]
    return "\n  ".join(["left behind:", *lines, *(f"mount {mount}" for mount in sorted(mounts))])
