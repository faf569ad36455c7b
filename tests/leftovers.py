"""What a run of tests leaves behind: processes, mounts and directories, and how they are known.

A run is named after its controller, ``<pid>-<start time>-<pid namespace>``, from which `is_over` tells whether it
still runs.

* A process has the names of its runs and workers in its environment: ``<run>.gw0.``, and ``<run>.gw0.<run>.`` below a
  pytest that a test started. So a worker finds its own processes only, and a controller those of all its workers.
* A directory is in the run's record, a file in `RECORDS`: pytest's own, below which tests mount, and those that tests
  make elsewhere by `new_directory`. Workspaces and sockets of a home in such a directory are found by the home.

A run ends at its end what is left of it. A run that is killed cannot, so each begins with `clear_runs_that_are_over`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coordinator.home import Home

VARIABLE = "PODIUM_TEST_RUN"
RECORDS = Path(tempfile.gettempdir(), f"podium-test-runs-{os.getuid()}")
KILL_GRACE_S = 10
"""How long killed processes may take to end: the kernel unmounts for them, and Ray's have much memory."""
MARKED = 0
"""The process that has set the mark. What a test forks from it is another."""


# -- runs --------------------------------------------------------------------------------------------------------------


def mark_this_run(worker: str | None) -> None:
    """Set the variable that every process started from here inherits, however it detaches itself.

    Args:
        worker: the id of this worker of pytest-xdist, whose environment has the controller's value; None in a
            controller and in a run without workers.
    """
    global MARKED
    MARKED = os.getpid()
    os.environ[VARIABLE] = f"{os.environ.get(VARIABLE, '')}{worker or name_of_run(os.getpid())}."


def name_of_run(controller: int) -> str:
    """The name of the run of a controller; that of no run if there is no such process."""
    namespace = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - it is no file of ours
    try:
        state, *fields = Path(f"/proc/{controller}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else f"{controller}-{fields[18]}-{namespace}"


def is_over(part: str) -> bool:
    """Whether a part of a mark is a run that is over; a run in another pid namespace cannot be told to be."""
    pid, _, rest = part.partition("-")
    ours = name_of_run(os.getpid()).rpartition("-")[2]
    return pid.isdigit() and rest.rpartition("-")[2] == ours and name_of_run(int(pid)) != part


def this_run() -> str:
    """The name of the run that this process is in, the last one of its mark; a benchmark is one from here on."""
    if VARIABLE not in os.environ:
        mark_this_run(None)
    return [part for part in os.environ[VARIABLE].split(".") if "-" in part][-1]


# -- directories -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def new_directory(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a directory outside of pytest's, and remove it at the end.

    pytest's own are closed to other users, on a disk, and have long paths.
    """
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    record("made", made)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def record(kind: str, path: Path) -> None:
    """Write down a directory of this run.

    Args:
        kind: ``made``: it goes with the run; ``kept``: it stays, to be looked at, and mounts below it go.
    """
    RECORDS.mkdir(mode=0o700, exist_ok=True)
    with (RECORDS / this_run()).open("a") as file:
        file.write(f"{kind} {path}\n")


def end_directories(run: str) -> set[str]:
    """Unmount all that is mounted in a run's directories and in the workspaces of homes there, and remove what goes.

    Its processes have ended.

    Returns:
        What was mounted.
    """
    path = RECORDS / run
    lines = [line.partition(" ") for line in path.read_text().splitlines()] if path.exists() else []
    directories = [Path(each) for _, _, each in lines]
    homes = homes_in(directories)
    found = set().union(*(mounts(each) for each in (*directories, *homes)))
    for home in homes.values():
        home.remove_run_dir()
    unmount(found)
    gone = [*homes, *(Path(each) for kind, _, each in lines if kind == "made")]
    subprocess.run(["rm", "-rf", "--one-file-system", *gone], check=False, capture_output=True)  # it knows deep trees
    path.unlink(missing_ok=True)
    return found


def homes_in(directories: Iterable[Path]) -> dict[Path, Home]:
    """The homes in these directories whose service was killed, by the directory of their workspaces."""
    found = {}
    for claim in Path("/tmp").glob("podium-*/home"):
        with contextlib.suppress(OSError):  # another user's, or gone
            path = Path(claim.read_text().strip())
            if any(path.is_relative_to(each) for each in directories):
                from coordinator.home import Home

                found[claim.parent] = Home(path)
    return found


def clear_runs_that_are_over() -> None:
    """End what killed runs left, and unmount what pytest cannot remove, about which it ends without a summary."""

    def left() -> list[int]:
        return [pid for pid, (mark, _) in marks().items() if any(map(is_over, mark.split(".")))]

    kill(left)
    if RECORDS.exists() and RECORDS.stat().st_uid == os.getuid():
        for path in RECORDS.iterdir():
            if is_over(path.name):
                end_directories(path.name)
    temporary = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
    for garbage in temporary.glob("pytest-of-*/garbage-*"):
        unmount(mounts(garbage))


# -- processes ---------------------------------------------------------------------------------------------------------


def marks() -> dict[int, tuple[str, str]]:
    """Processes of runs, but this one itself: process id to mark and command line. Zombies are not counted."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            for each in Path(entry.path, "environ").read_bytes().split(b"\0"):
                if each.startswith(f"{VARIABLE}=".encode()):
                    command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(entry.name)] = each.decode().partition("=")[2], command.strip()
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return found


def marked_processes() -> dict[int, str]:
    """Processes of this run but this one: process id to command line."""
    ours = os.environ[VARIABLE]
    return {pid: command for pid, (mark, command) in marks().items() if mark.startswith(ours)}


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


def kill(find: Callable[[], Iterable[int]]) -> None:
    """Kill processes until none is found, and none acts on the end of another: all are stopped first."""
    deadline = time.monotonic() + KILL_GRACE_S
    while (found := list(find())) and time.monotonic() < deadline:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        time.sleep(0.02)


# -- mounts ------------------------------------------------------------------------------------------------------------


def mounts(below: Path) -> set[str]:
    """Mount points below a directory, in this process's mount namespace."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    points = {os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1")) for line in lines}
    return {point for point in points if Path(point).is_relative_to(below)}


def unmount(points: Iterable[str]) -> None:
    """Unmount, the innermost first; a user that may not unmount may do so with FUSE's own."""
    for point in sorted(points, reverse=True):
        for command in (["umount", "-l", point], ["fusermount3", "-u", "-z", point]):
            if not subprocess.run(command, check=False, capture_output=True, timeout=10).returncode:
                break


def describe(processes: dict[int, str], points: set[str]) -> str:
    """A list of what was left."""
    lines = [f"process {pid}: {command[:200]}" for pid, command in sorted(processes.items())]
    return "\n  ".join(["left behind:", *lines, *(f"mount {point}" for point in sorted(points))])
