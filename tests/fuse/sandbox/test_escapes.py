"""What a command tries on each rung of the sandbox: it ends as the table of ``docs/internals/sandbox.md`` says.

The cells *reached* are attempts that work there, so what is refused elsewhere is refused by the rung.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from chronicle.repository import Repository, mounts
from podium.sandbox.policy import RUNGS
from tests.leftovers import new_directory
from tests.users import as_user

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "internals" / "sandbox.md"
NOBODY: Final = 65534
USERS: Final = ["root", "plain"] if os.geteuid() == 0 else ["plain"]
CASES: Final = [
    (user, rung) for user in USERS for rung in RUNGS if (user, rung) != ("plain", "none") or len(USERS) == 1
]
PYTHON: Final = [*{Path(sys.base_prefix), Path(sys.prefix), ROOT / "podium"}]
SMALL: Final = {"processes": 30, "memory_bytes": 150 << 20, "output_bytes": 1 << 20, "disk_bytes": 8 << 20}
"""Limits that take a moment to reach, and leave room for a Python on a busy machine."""
SECRET: Final = "sk-of-the-host"

NUMBERS: Final = {
    "x86_64": {
        "clone": 56,
        "ioprio_set": 251,
        "perf_event_open": 298,
        "sched_setattr": 314,
        "bpf": 321,
        "userfaultfd": 323,
        "clone3": 435,
    },
    "aarch64": {
        "ioprio_set": 30,
        "clone": 220,
        "perf_event_open": 241,
        "sched_setattr": 274,
        "bpf": 280,
        "userfaultfd": 282,
        "clone3": 435,
    },
}[os.uname().machine]

Outcome = Literal["reached", "refused", "contained"]


@dataclass
class Host:
    """A process that runs commands for a user, and what its commands try to reach."""

    directory: Path
    process: subprocess.Popen[str]
    user: int | None
    stack: ExitStack
    workspace: Path
    limits: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outside = self.make("outside/file", "theirs")
        self.sibling = self.make("sibling/secret", "of a sibling")
        self.declared = self.directory / "declared"
        self.declared.mkdir()
        self.tcp = self.stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
        self.udp = self.stack.enter_context(closing(socket.socket(type=socket.SOCK_DGRAM)))
        self.udp.bind(("127.0.0.1", 0))
        self.abstract = self.stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        self.abstract.bind(f"\0podium-test-{self.process.pid}")
        self.abstract.listen()
        self.unix = self.stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        self.unix.bind(str(self.declared / "socket"))
        (self.declared / "socket").chmod(0o777)
        self.unix.listen()
        for each in (self.tcp, self.udp, self.abstract, self.unix):
            each.setblocking(False)

    @contextmanager
    def bystander(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run another process of its user."""
        identity: dict[str, Any] = {} if self.user is None else {"user": self.user, "group": self.user}
        with subprocess.Popen(["sleep", "1000"], **identity) as other:
            try:
                yield other
            finally:
                other.kill()

    def make(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for each in (path.parent, path):
            self.own(each)
        return path

    def own(self, path: Path) -> None:
        if self.user is not None:
            os.chown(path, self.user, self.user, follow_symlinks=False)

    def run(self, rung: str | None, argv: list[str], **policy: Any) -> dict[str, Any]:
        """Run a command in a sandbox, and return how it ended."""
        asked = {
            "writable": [str(self.workspace)],
            "readable": [str(self.declared), *map(str, PYTHON)],
            "limits": {"time_s": 60, **self.limits},
            "at_least": "none",
            **policy,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"rung": rung, "argv": argv, "policy": asked}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def python(self, rung: str, code: str, **policy: Any) -> dict[str, Any]:
        return self.run(rung, [sys.executable, "-I", "-S", "-c", code], **policy)


@contextmanager
def running_host(user: str, workspace: Path | None = None) -> Iterator[Host]:
    with new_directory("podium-sandbox-test-") as directory, ExitStack() as stack:
        directory.chmod(0o711)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            left_open = fcntl.fcntl(nothing, fcntl.F_DUPFD_CLOEXEC, 250)
        stack.callback(os.close, left_open)
        uid = NOBODY if user == "plain" and os.geteuid() == 0 else None
        process = stack.enter_context(
            subprocess.Popen(
                [*([] if uid is None else as_user(uid, uid)), sys.executable, "-m", "tests.fuse.sandbox.host"],
                cwd=ROOT,
                env={**os.environ, "API_KEY": SECRET, "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(stack.enter_context((directory / "of-the-parent").open("w")).fileno(), left_open),
                text=True,
            )
        )
        host = Host(directory, process, uid, stack, workspace or directory / "workspace")
        host.workspace.mkdir(exist_ok=True)
        host.own(host.workspace)
        yield host
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Host]]:
    with ExitStack() as stack:
        yield {user: stack.enter_context(running_host(user)) for user in USERS}


@pytest.fixture(scope="module")
def on_mount() -> Iterator[Host]:
    """A host whose workspace is a mount."""
    with new_directory("podium-sandbox-mount-") as directory:
        store, mountpoint = Repository(directory / "store"), directory / "mount"
        mountpoint.mkdir()
        mounts.mount(store, "workspace", mountpoint, with_caller=True)
        try:
            with running_host(USERS[0] if len(USERS) > 1 else "plain", mountpoint) as host:
                yield host
        finally:
            mounts.unmount(store, mountpoint)


# -- attempts ----------------------------------------------------------------------------------------------------------

Attempt = Callable[[Host, str], Outcome]
ATTEMPTS: Final[dict[str, Attempt]] = {}
OF_FILES: Final = (
    "write a file outside",
    "read a file of another agent",
    "write in the workspace through a link to outside",
    "fill the disk",
    "leave a hook of git",
    "put another repository in place of the one there",
)
"""Made from a mount, too."""


def attempt(title: str) -> Callable[[Attempt], Attempt]:
    def add(function: Attempt) -> Attempt:
        ATTEMPTS[title] = function
        return function

    return add


def reached(ended: dict[str, Any]) -> Outcome:
    """Judge a script that prints a word when it has what it wants, and raises OSError when it is refused."""
    if ended["status"] == 0 and ended["output"].strip() == "reached":
        return "reached"
    assert ended["status"] == 1, ended
    assert re.search(
        r"(PermissionError|FileNotFoundError|OSError|ConnectionRefusedError|ProcessLookupError|KeyError)",
        ended["output"],
    ), ended
    return "refused"


def contained(ended: dict[str, Any], limit: str) -> Outcome:
    assert ended["limit"] == limit, ended
    return "contained"


@attempt("write a file outside")
def _(host: Host, rung: str) -> Outcome:
    path = host.outside.parent / f"made-by-{rung}"
    path.unlink(missing_ok=True)
    outcome = reached(host.python(rung, f"open({str(path)!r}, 'w'); print('reached')"))
    assert path.exists() == (outcome == "reached")
    return outcome


@attempt("read a file of another agent")
def _(host: Host, rung: str) -> Outcome:
    return reached(host.python(rung, f"open({str(host.sibling)!r}).read(); print('reached')"))


@attempt("remove a file of another agent")
def _(host: Host, rung: str) -> Outcome:
    path = host.make("sibling/kept", "kept")
    outcome = reached(host.python(rung, f"import os; os.unlink({str(path)!r}); print('reached')"))
    assert path.exists() == (outcome == "refused")
    return outcome


@attempt("write in the workspace through a link to outside")
def _(host: Host, rung: str) -> Outcome:
    path = host.make("outside/linked", "as it was")
    code = f"import os; os.symlink({str(path)!r}, 'link-{rung}'); open('link-{rung}', 'w').write('-'); print('reached')"
    outcome = reached(host.python(rung, code))
    assert (path.read_text() == "as it was") == (outcome == "refused")
    return outcome


@attempt("change the mode of a file outside")
def _(host: Host, rung: str) -> Outcome:
    path = host.make("outside/mode", "")
    path.chmod(0o644)
    outcome = reached(host.python(rung, f"import os; os.chmod({str(path)!r}, 0o777); print('reached')"))
    assert (path.stat().st_mode & 0o777 == 0o777) == (outcome == "reached")
    return outcome


@attempt("learn whether a file outside exists")
def _(host: Host, rung: str) -> Outcome:
    return reached(host.python(rung, f"import os; os.stat({str(host.sibling)!r}); print('reached')"))


@attempt("read a key from its environment")
def _(host: Host, rung: str) -> Outcome:
    return reached(host.python(rung, "import os; os.environ['API_KEY']; print('reached')"))


@attempt("read a key from the environment of the host in /proc")
def _(host: Host, rung: str) -> Outcome:
    path = f"/proc/{host.process.pid}/environ"
    return reached(host.python(rung, f"assert {SECRET!r} in open({path!r}).read(); print('reached')"))


@attempt("read the command line of the host in /proc")
def _(host: Host, rung: str) -> Outcome:
    path = f"/proc/{host.process.pid}/cmdline"
    return reached(host.python(rung, f"assert 'sandbox' in open({path!r}).read(); print('reached')"))


@attempt("read a System V shared memory segment of the host")
def _(host: Host, rung: str) -> Outcome:
    libc, key = ctypes.CDLL(None, use_errno=True), 0x706F6400 + os.getpid() % 256
    segment = libc.shmget(key, 4096, 0o1666)  # IPC_CREAT
    assert segment >= 0, os.strerror(ctypes.get_errno())
    try:
        code = f"""if 1:
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.shmget({key}, 4096, 0) < 0:
                raise OSError(ctypes.get_errno(), "shmget")
            print("reached")"""
        return reached(host.python(rung, code))
    finally:
        libc.shmctl(segment, 0, None)  # IPC_RMID


@attempt("use a descriptor that the host has open")
def _(host: Host, rung: str) -> Outcome:
    code = """if 1:
        import errno, os
        for number in range(3, 1024):
            try:
                os.fstat(number)
            except OSError:
                continue
            print("reached")
            raise SystemExit
        raise OSError(errno.EBADF, "none")"""
    return reached(host.python(rung, code))


@attempt("send a signal to the host")
def _(host: Host, rung: str) -> Outcome:
    with host.bystander() as other:
        outcome = reached(host.python(rung, f"import os; os.kill({other.pid}, 15); print('reached')"))
        if outcome == "refused":
            assert other.poll() is None
            other.kill()
        assert other.wait(60) == (-signal.SIGTERM if outcome == "reached" else -signal.SIGKILL)
    return outcome


def all_of(*lines: str, enough: int | None = None) -> str:
    """Return a script that is refused if each of these lines is, and says which ones were not if some were.

    Args:
        enough: how many count as all.
    """
    return f"""if 1:
        import ctypes, os, resource, struct
        libc = ctypes.CDLL(None, use_errno=True)
        def checked(result):
            if result < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            return result
        done = []
        for line in {lines!r}:
            try:
                exec(line)
            except OSError as error:
                refused = error
            else:
                done.append(line)
        if not done:
            raise refused
        print("reached" if len(done) >= {enough or len(lines)} else done)"""


@attempt("change limits, priority or processors of another process of the user")
def _(host: Host, rung: str) -> Outcome:
    with host.bystander() as other:
        group = os.getpgid(other.pid)
        code = all_of(
            f"resource.prlimit({other.pid}, resource.RLIMIT_NOFILE, (5, 5))",
            f"os.setpriority(os.PRIO_PROCESS, {other.pid}, 10)",
            f"os.setpriority(os.PRIO_PGRP, {group}, os.getpriority(os.PRIO_PGRP, {group}))",
            f"os.sched_setaffinity({other.pid}, {{min(os.sched_getaffinity(0))}})",
            f"os.sched_setscheduler({other.pid}, os.SCHED_BATCH, os.sched_param(0))",
            f"os.sched_setparam({other.pid}, os.sched_param(0))",
            "attributes = struct.pack('IIQiIQQQ', 48, 0, 0, 11, 0, 0, 0, 0); "
            f"checked(libc.syscall({NUMBERS['sched_setattr']}, {other.pid}, attributes, 0))",
            f"checked(libc.syscall({NUMBERS['ioprio_set']}, 1, {other.pid}, (2 << 13) | 7))",
        )
        return reached(host.python(rung, code))


@attempt("read or write the memory of the host")
def _(host: Host, rung: str) -> Outcome:
    with host.bystander() as other:
        where = re.search(
            r"^([0-9a-f]+)-.* rw-p .*\[stack\]$", Path(f"/proc/{other.pid}/maps").read_text(), re.MULTILINE
        )
        assert where is not None
        code = all_of(
            *(
                f"buffer = ctypes.create_string_buffer(8); "
                f"checked(libc.{call}({other.pid}, struct.pack('PN', ctypes.addressof(buffer), 8), 1, "
                f"struct.pack('PN', {int(where[1], 16)}, 8), 1, 0))"
                for call in ("process_vm_readv", "process_vm_writev")
            ),
            f"os.pwrite(os.open('/proc/{other.pid}/mem', os.O_RDWR), b'-', {int(where[1], 16)})",
        )
        return reached(host.python(rung, code))


@attempt("write to a terminal of the user, or type into it")
def _(host: Host, rung: str) -> Outcome:
    controller, terminal = os.openpty()
    host.stack.callback(os.close, controller)
    host.stack.callback(os.close, terminal)
    path = os.ttyname(terminal)
    host.own(Path(path))
    return reached(host.python(rung, f"import os; os.open({path!r}, os.O_RDWR); print('reached')"))


@attempt("gain privileges by a setuid program")
def _(host: Host, rung: str) -> Outcome:
    code = """if 1:
        if "NoNewPrivs:\\t1" in open("/proc/self/status").read():
            raise PermissionError("without effect")
        print("reached")"""
    return reached(host.python(rung, code))


@attempt("make a user namespace")
def _(host: Host, rung: str) -> Outcome:
    flags = 0x1000_0000  # CLONE_NEWUSER
    code = all_of(
        f"checked(libc.syscall({NUMBERS['clone']}, {flags} | 17, 0, 0, 0, 0)) or os._exit(0)",
        f"arguments = struct.pack('8Q', {flags}, 0, 0, 0, 17, 0, 0, 0); "
        f"checked(libc.syscall({NUMBERS['clone3']}, arguments, len(arguments))) or os._exit(0)",
        f"checked(libc.unshare({flags}))",  # last: the user is nobody there
    )
    return reached(host.python(rung, code))


@attempt("leave a System V object or a POSIX queue")
def _(host: Host, rung: str) -> Outcome:
    libc, key = ctypes.CDLL(None, use_errno=True), 0x706F6500 + os.getpid() % 256
    queue = f"/podium-test-{os.getpid()}"
    code = all_of(
        f"checked(libc.shmget({key}, 4096, 0o1666))",
        f"checked(libc.semget({key}, 1, 0o1666))",
        f"checked(libc.msgget({key}, 0o1666))",
        f"checked(libc.mq_open({queue.encode()!r}, os.O_CREAT | os.O_RDWR, 0o666, None))",
    )
    outcome = reached(host.python(rung, code))
    left = [libc.shmget(key, 0, 0), libc.semget(key, 0, 0), libc.msgget(key, 0)]
    for each, remove in zip(left, (libc.shmctl, libc.semctl, libc.msgctl), strict=True):
        remove(each, 0, None)  # IPC_RMID; of semctl the number is not looked at
    left.append(libc.mq_unlink(queue.encode()))
    assert len({each >= 0 for each in left}) == 1, left
    return "contained" if outcome == "reached" and left[0] < 0 else outcome


@attempt("leave a file in /dev/shm")
def _(host: Host, rung: str) -> Outcome:
    path = Path(f"/dev/shm/podium-test-{os.getpid()}")
    outcome = reached(host.python(rung, f"open({str(path)!r}, 'w'); print('reached')"))
    if not path.exists():
        return "contained" if outcome == "reached" else outcome
    path.unlink()
    return outcome


@attempt("watch a directory outside (inotify)")
def _(host: Host, rung: str) -> Outcome:
    path = os.fsencode(host.outside.parent)
    return reached(host.python(rung, all_of(f"checked(libc.inotify_add_watch(libc.inotify_init(), {path!r}, 0x100))")))


@attempt("trace the kernel, or handle its own page faults (bpf, perf_event_open, userfaultfd)")
def _(host: Host, rung: str) -> Outcome:
    # What each lacks to work is another error than that of a filter, and a kernel may keep some from plain users.
    calls = {
        "bpf": "0, None, 0",
        "userfaultfd": "1",
        "perf_event_open": "ctypes.create_string_buffer(128), 0, -1, -1, 0",
    }
    lines = (
        f"libc.syscall({NUMBERS[name]}, {arguments}) < 0 and ctypes.get_errno() == 1 and checked(-1)"
        for name, arguments in calls.items()
    )
    return reached(host.python(rung, all_of(*lines, enough=1)))


def came(listener: socket.socket) -> bool:
    """Whether somebody has connected, or sent something; it is taken."""
    try:
        if listener.type == socket.SOCK_DGRAM:
            listener.recv(100)
        else:
            listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def connecting(host: Host, rung: str, listener: socket.socket, family: str, address: object) -> Outcome:
    code = f"import socket; s = socket.socket(socket.{family}); s.connect({address!r}); print('reached')"
    outcome = reached(host.python(rung, code))
    assert came(listener) == (outcome == "reached")
    return outcome


@attempt("connect by TCP")
def _(host: Host, rung: str) -> Outcome:
    return connecting(host, rung, host.tcp, "AF_INET", host.tcp.getsockname())


@attempt("send by UDP, as DNS does")
def _(host: Host, rung: str) -> Outcome:
    # In a network namespace it can be sent, to nobody: what counts is what comes.
    address = host.udp.getsockname()
    code = f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'?', {address!r}); print('reached')"
    ended = host.python(rung, code)
    if came(host.udp):
        return reached(ended)
    assert rung != "none"
    return "refused"


@attempt("connect to an abstract Unix socket")
def _(host: Host, rung: str) -> Outcome:
    return connecting(host, rung, host.abstract, "AF_UNIX", f"\0podium-test-{host.process.pid}")


@attempt("connect to a Unix socket in a readable directory")
def _(host: Host, rung: str) -> Outcome:
    return connecting(host, rung, host.unix, "AF_UNIX", str(host.declared / "socket"))


def calling(number: str) -> str:
    """Return a script that makes a system call."""
    return f"""if 1:
        import ctypes, errno
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall({number}) < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            raise PermissionError(ctypes.get_errno(), "refused")
        print("reached")"""


@attempt("make a ring of io_uring")
def _(host: Host, rung: str) -> Outcome:
    return reached(host.python(rung, calling("425, 8, ctypes.create_string_buffer(120)")))


@attempt("use the keyring of the user")
def _(host: Host, rung: str) -> Outcome:
    number = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
    return reached(host.python(rung, calling(f"{number}, 0, -4, 1")))  # KEYCTL_GET_KEYRING_ID


@attempt("start processes without end")
def _(host: Host, rung: str) -> Outcome:
    code = """if 1:
        import os, time
        while True:
            try:
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(1000)
            except BlockingIOError:
                time.sleep(0.01)"""
    return contained(host.python(rung, code), "processes")


@attempt("fill memory")
def _(host: Host, rung: str) -> Outcome:
    return contained(host.python(rung, "kept = []\nwhile True: kept.append(bytearray(b'x' * 1_000_000))"), "memory")


@attempt("fill the disk")
def _(host: Host, rung: str) -> Outcome:
    # Small files below the limit of each, and not faster than the kernel of a busy machine writes them.
    code = """if 1:
        import os, time
        for number in range(100_000):
            with open(f"filling-{number}", "wb") as file:
                file.write(os.urandom(500_000))
            time.sleep(0.002)"""
    outcome = contained(host.python(rung, code), "disk")
    for each in host.workspace.glob("filling-*"):
        each.unlink()
    return outcome


@attempt("write without end")
def _(host: Host, rung: str) -> Outcome:
    ended = host.run(rung, ["/usr/bin/yes"])
    assert len(ended["output"]) == SMALL["output_bytes"]
    return contained(ended, "output")


@attempt("ignore SIGTERM")
def _(host: Host, rung: str) -> Outcome:
    code = """if 1:
        import signal, time
        signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
        print("up", flush=True)
        while True:
            time.sleep(1)"""
    ended = host.python(rung, code, limits={"time_s": 1.0})
    assert ended["output"].split() in (["up", "asked"], [], ["up"]), "it may not have been up"
    return contained(ended, "time")


@attempt("leave a process in a session of its own")
def _(host: Host, rung: str) -> Outcome:
    mark = f"left-{os.getpid()}-{rung}"
    ended = host.run(
        rung, ["/bin/sh", "-c", f"setsid sh -c ': {mark}; sleep 1000' & setsid setsid sleep 1000 & exit 3"]
    )
    assert (ended["status"], ended["limit"]) == (3, None)
    assert not [each for each in Path("/proc").glob("[0-9]*/cmdline") if mark in text_of(each)]
    return "contained"


def text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # it has ended


def repository(host: Host) -> dict[Path, str]:
    """Make a repository as it is before each attempt, and return what is to stay as it is."""
    git = host.workspace / ".git"
    subprocess.run(["rm", "-rf", git, host.workspace / "moved"], check=True)
    kept = {git / "hooks" / "pre-commit": "theirs", git / "config": "[user]\n"}
    (git / "hooks").mkdir(parents=True)
    for path, text in kept.items():
        path.write_text(text)
    for path in (git, git / "hooks", *kept):
        host.own(path)
    return kept


@attempt("leave a hook of git")
def _(host: Host, rung: str) -> Outcome:
    kept = repository(host)
    ended = host.run(
        rung,
        [
            "/bin/sh",
            "-ec",
            "echo mine > .git/hooks/pre-commit; echo mine > .git/hooks/post-commit; echo mine > .git/config",
        ],
    )
    assert {path: path.read_text() for path in kept} == kept
    assert not (host.workspace / ".git" / "hooks" / "post-commit").exists()
    return "contained" if ended["restored"] and ended["status"] == 0 else "refused"


@attempt("put another repository in place of the one there")
def _(host: Host, rung: str) -> Outcome:
    kept = repository(host)
    ended = host.run(
        rung,
        ["/bin/sh", "-ec", "mv .git moved; mkdir -p evil/hooks; echo mine > evil/hooks/pre-commit; ln -sn evil .git"],
    )
    assert not (host.workspace / ".git").is_symlink()
    assert {path: path.read_text() for path in kept} == kept
    return "contained" if ended["restored"] and ended["status"] == 0 else "refused"


def git_status_runs(host: Host, rung: str, script: str) -> Outcome:
    """Run a script that makes repositories, and then git outside of the sandbox; whether that ran what they say."""
    subprocess.run(["rm", "-rf", host.workspace / ".git"], check=True)
    place = host.workspace / "place"
    environment = {"GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin"}
    ended = host.run(rung, ["/bin/sh", "-ec", f"rm -rf ran place; mkdir place; {script}"], environment=environment)
    assert ended["status"] == 0, ended
    identity: dict[str, Any] = {} if host.user is None else {"user": host.user, "group": host.user}
    subprocess.run(["git", "status"], cwd=place.parent, env=environment, capture_output=True, check=False, **identity)
    subprocess.run(["rm", "-rf", host.workspace / ".git", place], check=True)
    return "reached" if (host.workspace / "ran").exists() else "refused"


@attempt("leave a submodule whose configuration runs a program")
def _(host: Host, rung: str) -> Outcome:
    return git_status_runs(
        host,
        rung,
        "git init -q .; git init -q place; cd place; git -c user.name=a -c user.email=a commit -q --allow-empty -m a; "
        f"git config core.fsmonitor 'touch {host.workspace}/ran; false'; cd ..; git add place; rm -rf .git/hooks",
    )


@attempt("leave a start file of a shell")
def _(host: Host, rung: str) -> Outcome:
    ended = host.run(
        rung, ["/bin/sh", "-c", "echo mine > .bashrc; ln -s /etc/passwd .profile; mkdir .zshrc; chmod 0 ."]
    )
    assert ended["status"] == 0
    names = {".bashrc", ".profile", ".zshrc"}
    assert {Path(each).name for each in ended["restored"]} == names
    assert not names & {each.name for each in host.workspace.iterdir()}
    return "contained"


# -- the table ---------------------------------------------------------------------------------------------------------


def table() -> dict[str, dict[str, str]]:
    """Return the outcomes that the page tells of each attempt, by rung."""
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8")
        .partition("| attempt |")[2]
        .partition("\n\n")[0]
        .join(("| attempt |", ""))
        .splitlines()
    )
    assert head[1:] == [*RUNGS]
    return {row[0]: dict(zip(RUNGS, row[1:], strict=True)) for row in rows}


def test_each_row_is_an_attempt() -> None:
    assert [*table()] == [*ATTEMPTS]


@pytest.mark.parametrize(("user", "rung"), CASES)
@pytest.mark.parametrize("title", ATTEMPTS)
def test_an_attempt_ends_as_the_page_says(hosts: dict[str, Host], title: str, user: str, rung: str) -> None:
    host = hosts[user]
    host.limits = dict(SMALL) if "fill" in title or "without end" in title else {}
    assert ATTEMPTS[title](host, rung) == table()[title][rung]


@pytest.mark.parametrize("rung", RUNGS[1:])
@pytest.mark.parametrize("title", OF_FILES)
def test_so_it_does_on_a_mount(on_mount: Host, title: str, rung: str) -> None:
    on_mount.limits = dict(SMALL) if "fill" in title else {}
    assert ATTEMPTS[title](on_mount, rung) == table()[title][rung]


@pytest.mark.parametrize("rung", RUNGS[1:])
@pytest.mark.parametrize("user", USERS)
def test_no_setting_of_the_kernel_is_changed(hosts: dict[str, Host], user: str, rung: str) -> None:
    """Not even by root, who owns them in each namespace, and to whom a core_pattern would give the machine."""
    script = "for each in kernel/core_pattern vm/swappiness; do : >> /proc/sys/$each && echo opened; done; exit 5"
    ended = hosts[user].run(rung, ["/bin/bash", "-c", script])
    assert ended["status"] == 5
    assert "opened" not in ended["output"]
