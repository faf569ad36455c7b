"""The process that supervisors are forked from, one for each process that runs commands, and the supervisor.

It has one thread and imports little, so a fork is cheap and safe, and it has no environment that a command could read.
A *supervisor* runs one command after the other: it starts it, holds it to its limits, and ends all that it leaves:
as *subreaper* it is the parent of every descendant whose own parent is gone, whatever session that is in. Supervisors
watch the process that asked, too: nothing outlives it. `podium.sandbox.spawning` speaks with both.

What they say to each other: to the spawner one byte with a socket, which a new supervisor listens at. To it for each
command one line of JSON with its outputs, and a third descriptor if it is to have one; then, perhaps, the name of a
limit that was seen from outside, after which nothing more is asked of it. From it one line of JSON when nothing of the
command is left. A closed socket ends the command and the supervisor.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import fcntl
import gc
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, Final, NoReturn

from podium.sandbox.kernel import allow, confine, die_with_parent, new_ruleset, reap_orphans
from podium.sandbox.trees import remove

__all__ = ["main"]

_LOOK_MS: Final = 20
"""Between two looks at processes and memory: what may be taken meanwhile is more than a limit."""
_SCAN_S: Final = 0.25
"""Least pause between two scans of the disk; a scan takes at most a fifth of the time."""
_GRACE_S: Final = 1.0
"""From SIGTERM to SIGKILL, for a command whose time is over."""
_END_S: Final = 30.0
"""For killed processes to end: the kernel may be in a request to a file system that does not answer."""
_PREPARED: Final = ("tcp", "directories", "devices")
"""What is prepared for the next command. Not the files, which may be replaced before it comes."""
_ABOVE: Final = 200
"""No descriptor that a command, or bubblewrap, is to have has this number or a greater one."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def main(descriptor: int) -> None:
    """Fork a supervisor for each socket that comes, until the other end of this one is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps supervisors
    os.closerange(descriptor + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # what the parent has let through
    requests, asker = socket.socket(fileno=descriptor), os.pidfd_open(os.getppid())
    gc.disable()  # a collection would copy the pages that forks share
    while True:
        _, received, _, _ = socket.recv_fds(requests, 1, 1)
        if not received:
            return
        if os.fork() == 0:
            requests.close()
            try:
                _Supervisor(asker, socket.socket(fileno=received[0])).serve()
            except BaseException:  # noqa: BLE001  a bug: who asked finds the socket closed
                sys.excepthook(*sys.exc_info())
            os._exit(0)
        os.close(received[0])


class _Supervisor:
    """One command at a time, from its start to the end of its last process."""

    def __init__(self, asker: int, control: socket.socket) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        reap_orphans()
        self._asker = asker
        self._control = control
        self._request: dict[str, Any] = {"confine": None}
        self._on_disk = 0.0
        self._scans = False

    def serve(self) -> None:
        """Carry out one request after the other, each by a process that was forked before it came.

        That fork takes longer than the start of most programs.
        """
        watch = select.poll()
        for each in (self._control.fileno(), self._asker):
            watch.register(each, select.POLLIN)
        while True:
            self._fork()
            if self._asker in dict(watch.poll()):
                return  # the leader is killed with its parent
            line, outputs, _, _ = socket.recv_fds(self._control, 1 << 16, 3)
            if len(outputs) < 2:
                return
            line = line if line.endswith(b"\n") else line + _line(self._control)
            socket.send_fds(self._to_leader, [line], outputs)
            self._to_leader.close()
            for each in outputs:
                os.close(each)
            self._request = json.loads(line)
            self._limits: dict[str, float] = self._request["limits"]
            if not self._run():
                return

    def _fork(self) -> None:
        """Fork the process that will be the next command."""
        self._limit: str | None = None
        self._status = 0
        self._failure, failure = os.pipe()
        self._to_leader, its = socket.socketpair()
        self._leader = os.fork()
        if self._leader == 0:
            self._to_leader.close()
            _become(its, failure, self._request["confine"])
        its.close()
        os.close(failure)

    def _run(self) -> bool:
        """Wait for the end of the command, or end it; end what it left, answer, and return whether this is as before.

        A thread that scans the disk may be in a system call for long, and a fork beside it would not be safe.
        """
        failure = b""
        while more := os.read(self._failure, 4096):
            failure += more  # at an exec that works the pipe is closed
        os.close(self._failure)
        if not failure:
            self._watch()
        left = self._end_all()
        again = not left and not self._scans
        answer = {
            "status": self._status,
            "limit": self._limit,
            "failure": failure.decode(),
            "left": left,
            "again": again,
        }
        try:
            self._control.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:  # who asked is gone, and removes no temporary directory
            with contextlib.suppress(OSError):
                remove(self._request["disk"][0])
        return again

    def _watch(self) -> None:
        """Return when the command has ended or is to be ended; it is not reaped."""
        leader, control = os.pidfd_open(self._leader), self._control.fileno()
        began = time.monotonic()
        over = began + self._limits["time_s"]
        watch = select.poll()
        for each in (leader, control, self._asker):
            watch.register(each, select.POLLIN)
        while True:
            ready = dict(watch.poll(_LOOK_MS))
            if leader in ready or self._asker in ready:
                os.close(leader)
                return
            if control in ready:
                self._limit = self._control.recv(64).decode() or None
                return
            self._reap_orphans()
            if not self._scans and time.monotonic() > began + _SCAN_S:
                self._scans = True
                _thread.start_new_thread(self._scan_disk, ())
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


def _become(supervisor: socket.socket, failure: int, expected: dict[str, Any] | None) -> NoReturn:
    """Wait for a command and become it: in a session of its own, confined, with nothing open but its outputs.

    What the last one could reach in all the system is prepared; it is used if that is the same now.
    """
    try:
        die_with_parent()
        os.setsid()
        prepared = None if expected is None else _prepared(expected)
        line, outputs, _, _ = socket.recv_fds(supervisor, 1 << 16, 3)
        request = json.loads(line if line.endswith(b"\n") else line + _line(supervisor))
        filtered = bytes.fromhex(request["filter"] or "")
        descriptors = {0: os.open(request["stdin"], os.O_RDONLY), 1: outputs[0], 2: outputs[1]}
        if request["wrapped"]:
            reading, writing = os.pipe()
            os.write(writing, filtered)  # some hundred bytes
            descriptors |= {3: reading, **dict(enumerate(outputs[2:], 4))}
            descriptors |= {number: os.open(path, os.O_RDONLY) for number, path in request["files"]}
        ruleset = -1
        if (confined := request["confine"]) is not None:
            ruleset = _prepared(confined) if prepared is None or not _as(confined, expected) else prepared
            allow(ruleset, confined["readable"], confined["writable"], ())
            ruleset = fcntl.fcntl(ruleset, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
        failure = fcntl.fcntl(failure, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
        _keep_only(descriptors)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        _limit(request["limits"])
        os.chdir(request["cwd"])
        if confined is not None:
            confine(ruleset, filtered)
        os.execve(request["program"], request["argv"], request["environment"])  # noqa: S606
    except BaseException as error:  # noqa: BLE001  told to who asked
        os.write(failure, f"{error}".encode(errors="replace")[:4096] or b"?")
    os._exit(127)


def _keep_only(descriptors: dict[int, int]) -> None:
    """Give descriptors the numbers that they are to have, and let a program have no other ones.

    Those that came through a socket would stay open, and so would what the process that asked had from its parent.
    """
    moved = {number: fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for number, each in descriptors.items()}
    for number, each in moved.items():
        os.dup2(each, number)
    for each in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        if each not in descriptors:
            with contextlib.suppress(OSError):  # that of the listing
                os.set_inheritable(each, False)


def _prepared(confined: dict[str, Any]) -> int:
    ruleset = new_ruleset(tcp=confined["tcp"])
    allow(ruleset, confined["directories"], (), confined["devices"])
    return ruleset


def _as(confined: dict[str, Any], expected: dict[str, Any] | None) -> bool:
    return expected is not None and all(confined[each] == expected[each] for each in _PREPARED)


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


def _disk_bytes(path: str) -> float:
    """Return the blocks of all files below a directory, in bytes; what cannot be read counts nothing.

    What is too deep to have a path that can be opened is more than any limit.
    """
    total, directories = 0.0, [path]
    while directories:
        try:
            with os.scandir(directories.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return math.inf
    return total  # what else cannot be opened was removed meanwhile, or is not the user's
