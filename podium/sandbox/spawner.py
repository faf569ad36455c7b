"""The process that commands are forked from, one for each process that runs commands, and the supervisor of each.

It has one thread and imports little, so a fork is cheap and safe, and it has no environment that a command could read.
For each command it forks a *supervisor*, which starts the command, holds it to its limits, and ends all that it leaves:
as *subreaper* it is the parent of every descendant whose own parent is gone, whatever session that is in. Supervisors
watch the process that asked, too: nothing outlives it. `podium.sandbox.spawning` speaks with both.

What they say to each other: to the supervisor that waits one byte with three descriptors (a socket for the rest, both
outputs), then one line of JSON, then the name of a limit that was seen from outside; from it one line of JSON at the
end. A closed socket ends the command.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import threading
import time
import traceback
from typing import Any, Final, NoReturn

from podium.sandbox.kernel import confine, die_with_parent, reap_orphans

__all__ = ["main"]

_LOOK_MS: Final = 20
"""Between two looks at processes and memory: what may be taken meanwhile is more than a limit."""
_SCAN_S: Final = 0.25
"""Least pause between two scans of the disk; a scan takes at most a fifth of the time."""
_GRACE_S: Final = 1.0
"""From SIGTERM to SIGKILL, for a command whose time is over."""
_END_S: Final = 30.0
"""For killed processes to end: the kernel may be in a request to a file system that does not answer."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def main(descriptor: int) -> None:
    """Keep one supervisor ready for the next request at a socket, until its other end is closed, or its process over.

    To fork takes longer than to start most programs, so it is done ahead, for the supervisor and for its command.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps supervisors
    requests, asker = socket.socket(fileno=descriptor), os.pidfd_open(os.getppid())
    gc.disable()  # a collection would copy the pages that forks share
    while True:
        mine, its = os.pipe()
        if os.fork() == 0:
            os.close(mine)
            try:
                _Supervisor(asker).serve(requests, its)
            except BaseException:  # noqa: BLE001  a bug: who asked finds the socket closed
                traceback.print_exc()
            os._exit(0)
        os.close(its)
        taken = os.read(mine, 1)
        os.close(mine)
        if not taken:
            return


class _Supervisor:
    """One command from its start to the end of its last process."""

    def __init__(self, asker: int) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        reap_orphans()
        self._asker = asker
        self._limit: str | None = None
        self._on_disk = 0
        self._status = 0
        self._failure, failure = os.pipe()
        self._to_leader, its = socket.socketpair()
        self._leader = os.fork()
        if self._leader == 0:
            self._to_leader.close()
            _become(its, failure)
        its.close()
        os.close(failure)

    def serve(self, requests: socket.socket, taken: int) -> None:
        """Take the next request, say so, and carry it out; end with the leader if none will come."""
        watch = select.poll()
        for each in (requests.fileno(), self._asker):
            watch.register(each, select.POLLIN)
        descriptors: list[int] = []
        if self._asker not in dict(watch.poll()):
            _, descriptors, _, _ = socket.recv_fds(requests, 1, 3)
        requests.close()
        if len(descriptors) != 3:
            return  # the leader is killed with its parent
        os.write(taken, b"\n")
        os.close(taken)
        self._control = socket.socket(fileno=descriptors[0])
        line = _line(self._control)
        socket.send_fds(self._to_leader, [line], descriptors[1:])
        self._to_leader.close()
        for each in descriptors[1:]:
            os.close(each)
        self._request: dict[str, Any] = json.loads(line)
        self._limits: dict[str, float] = self._request["limits"]
        self._run()

    def _run(self) -> None:
        """Wait for the end of the command, or end it; then end what it left, and answer."""
        failure = b""
        while more := os.read(self._failure, 4096):
            failure += more  # at an exec that works the pipe is closed
        if not failure:
            self._watch()
        left = self._end_all()
        answer = {"status": self._status, "limit": self._limit, "failure": failure.decode(), "left": left}
        try:
            self._control.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:  # who asked is gone, and removes no temporary directory
            shutil.rmtree(self._request["disk"][0], ignore_errors=True)

    def _watch(self) -> None:
        """Return when the command has ended or is to be ended; it is not reaped."""
        leader, control = os.pidfd_open(self._leader), self._control.fileno()
        began = time.monotonic()
        over = began + self._limits["time_s"]
        scans = False
        watch = select.poll()
        for each in (leader, control, self._asker):
            watch.register(each, select.POLLIN)
        while True:
            ready = dict(watch.poll(_LOOK_MS))
            if leader in ready or self._asker in ready:
                return
            if control in ready:
                self._limit = self._control.recv(64).decode() or None
                return
            self._reap_orphans()
            if not scans and time.monotonic() > began + _SCAN_S:
                scans = True
                threading.Thread(target=self._scan_disk, daemon=True).start()
            if time.monotonic() > over:
                if self._limit == "time":
                    return
                self._limit, over = "time", time.monotonic() + _GRACE_S
                self._ask_to_end()
            if (exceeded := self._exceeded()) is not None:
                self._limit = exceeded
                return

    def _exceeded(self) -> str | None:
        processes = _descendants()
        if len(processes) > self._limits["processes"]:
            return "processes"
        if sum(map(_private_bytes, processes)) > self._limits["memory_bytes"]:
            return "memory"
        return "disk" if self._on_disk > self._limits["disk_bytes"] else None

    def _scan_disk(self) -> None:
        while True:
            began = time.monotonic()
            self._on_disk = sum(map(_disk_bytes, self._request["disk"]))
            time.sleep(max(_SCAN_S, 4 * (time.monotonic() - began)))

    def _ask_to_end(self) -> None:
        for pid in _descendants():
            if _name(pid) != b"bwrap":  # which would take all with it at once
                _kill(pid, signal.SIGTERM)

    def _reap_orphans(self) -> None:
        """Reap what has been left to this process; not the command, whose process id names its group."""
        with contextlib.suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid == self._leader:
                    return
                os.waitpid(found.si_pid, 0)

    def _end_all(self) -> int:
        """Kill all descendants, and reap them; return how many would not end."""
        over = time.monotonic() + _END_S
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._leader, signal.SIGKILL)  # all of a group at once: none of it can fork meanwhile
        while time.monotonic() < over:
            try:
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    if ended[0] == self._leader:
                        self._status = os.waitstatus_to_exitcode(ended[1])
            except ChildProcessError:
                return 0
            for pid in _descendants():
                _kill(pid, signal.SIGKILL)
            time.sleep(0.001)
        return len(_descendants())


def _line(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n") and (piece := connection.recv(1 << 16)):
        received += piece
    return received


def _become(supervisor: socket.socket, failure: int) -> NoReturn:
    """Wait for a command and become it: in a session of its own, confined, with nothing open but its outputs."""
    try:
        die_with_parent()
        os.setsid()
        line, (stdout, stderr), _, _ = socket.recv_fds(supervisor, 1 << 16, 2)
        request = json.loads(line if line.endswith(b"\n") else line + _line(supervisor))
        stdin, filtered = os.open(request["stdin"], os.O_RDONLY), bytes.fromhex(request["filter"] or "")
        reading, writing = os.pipe()
        os.write(writing, filtered)  # some hundred bytes
        moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (stdin, stdout, stderr, reading)]
        failure = fcntl.fcntl(failure, fcntl.F_DUPFD_CLOEXEC, 10)
        os.closerange(0, 10)
        for number, each in enumerate(moved):
            os.dup2(each, number, inheritable=number < 3 or request["wrapped"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        _limit(request["limits"])
        os.chdir(request["cwd"])
        if request["confine"] is not None:
            confine(**request["confine"], filtered=filtered)
        os.execve(request["program"], request["argv"], request["environment"])  # noqa: S606
    except BaseException as error:  # noqa: BLE001  told to who asked
        os.write(failure, f"{error}".encode(errors="replace")[:4096] or b"?")
    os._exit(127)


def _limit(limits: dict[str, float]) -> None:
    """Set what the kernel itself bounds."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, int(limits["disk_bytes"]))
    # It counts all threads of the user, and does not hold for root: a backstop for what forks between two looks.
    on_machine = int(_read("/proc/loadavg").split()[3].split(b"/")[1])
    _lower(resource.RLIMIT_NPROC, on_machine + int(limits["processes"]))


def _lower(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _descendants() -> list[int]:
    """Return the processes below this one, zombies included, each after its parent."""
    found = [os.getpid()]
    for pid in found:
        found += _children(pid)
    return found[1:]


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            children += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        pass  # it has ended
    return children


def _private_bytes(pid: int) -> int:
    try:
        _, resident, shared, *_ = _read(f"/proc/{pid}/statm").split()
    except (OSError, ValueError):
        return 0  # it has ended
    return (int(resident) - int(shared)) * _PAGE


def _name(pid: int) -> bytes:
    try:
        return _read(f"/proc/{pid}/comm").strip()
    except OSError:
        return b""  # it has ended


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _disk_bytes(path: str) -> int:
    """Return the blocks of all files below a directory, in bytes; what cannot be read counts nothing."""
    total, directories = 0, [path]
    while directories:
        try:
            with os.scandir(directories.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
        except OSError:
            continue  # removed meanwhile
    return total
