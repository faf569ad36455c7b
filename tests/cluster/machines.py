"""Machines on this one: each has a network, processes, a host name, mounts, ``/tmp`` and shared memory of its own.

They are Linux namespaces, which root can make, joined by cables to a switch. The test's process holds each machine by a
pipe, so the machines end with it, however it ends; nothing has a name outside of them.

What a machine has in common with this one is its disk: the checkout, the interpreter, and the directory of the
machines, where each has a part. So a test can hand over files, and processes of machines can note what they did.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Machine", "Network", "Started", "new_network"]

ROOT: Final = Path(__file__).parents[2]
_NET: Final = "10.77.0"
"""Addresses that exist in namespaces only."""
_CLONE_NEWNET: Final = 0x40000000
_SHM_SIZE: Final = "1g"
"""Of what is in memory: taken when it is used."""
_END_S: Final = 30.0
_INIT: Final = """
set -e
name=$1 directory=$2; shift 2
echo "$name" >/proc/sys/kernel/hostname
mount --bind "$directory/../hosts" /etc/hosts
mount -t tmpfs -o "size=$SHM_SIZE" tmpfs /dev/shm
mkdir -p "$directory/tmp"
mount -t tmpfs -o mode=1777 tmpfs "$directory/tmp"
for kept in "$@"; do
    case $kept in /tmp/*)
        mkdir -p "$directory$kept"
        mount --bind "$kept" "$directory$kept"
    esac
done
mount --rbind "$directory/tmp" /tmp
echo ready
while read -r _; do :; done
"""
"""The first process of a machine, in bash, which reaps processes whose parents have ended. It ends with its input."""
_libc = ctypes.CDLL(None, use_errno=True)


class Started:
    """A process that a test has started on a machine.

    Args:
        entering: the process outside, which ends as that of the machine does.
    """

    def __init__(self, entering: subprocess.Popen[str]) -> None:
        self._entering = entering
        self.pid = _child_of(entering)
        """Of the process, outside of the machine; 0 if it had ended before it was seen."""

    def kill(self) -> None:
        """Kill it with SIGKILL; harmless when it has ended."""
        if self.runs():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout_s: float = _END_S) -> int:
        """Wait until it has ended; return its exit code, or minus the signal."""
        return self._entering.wait(timeout_s)

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._entering.poll() is None


class Machine:
    """A machine, which is booted by `Network.add`.

    Args:
        network: what it is plugged in at.
        name: its host name, by which the others find it.
        number: of its port and its address.
    """

    def __init__(self, network: Network, name: str, number: int) -> None:
        self.name: Final = name
        self.address: Final = f"{_NET}.{number}"
        self.directory: Final = network.directory / name
        """Its part of the disk, which outlives its power."""
        self.environment: Final = {
            **{name: value for name, value in os.environ.items() if name not in {"RAY_ADDRESS", "TMPDIR"}},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.directory / "root"),
            "TMPDIR": "/tmp",
        }
        """Of its processes."""
        self._network = network
        self._number = number
        self._boots = 0
        self._first: subprocess.Popen[str] | None = None
        self._pid = 0
        self._started: list[Started] = []

    # -- power and cable ------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Give it power: it has no processes, and from its last life what was on its disk."""
        assert self._first is None
        self._boots += 1
        (self.directory / "root").mkdir(parents=True, exist_ok=True)
        kept = sorted({str(ROOT), sys.base_prefix, sys.prefix, str(self._network.directory)})
        self._first = _unshare(
            ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"],
            ["bash", "-c", _INIT, "init", self.name, str(self.directory), *kept],
        )
        self._pid = _child_of(self._first)
        assert self._pid, f"{self.name} does not boot"
        mac = f"02:00:00:00:00:{self._number:02x}"
        self._network.ip(f"link add {self._port} type veth peer name eth0 address {mac} netns {self._pid}")
        self._network.ip(f"link set {self._port} master br0 up")
        for each in ("link set lo up", f"addr add {self.address}/24 dev eth0", "link set eth0 up"):
            _ip(self._pid, each)

    def lose_power(self) -> None:
        """End all its processes at once; no packet tells the others. What was in memory is lost."""
        assert self._first is not None
        self.cut()  # the kernel, which goes on, would close connections
        os.kill(self._pid, signal.SIGKILL)
        self._first.wait(_END_S)
        for started in self._started:
            started.wait()
        self._started.clear()
        self._network.ip(f"link delete {self._port}", check=False)  # it may have gone with the machine
        for pipe in (self._first.stdin, self._first.stdout):
            assert pipe is not None
            pipe.close()
        self._first = None

    def cut(self) -> None:
        """Unplug its cable."""
        self._network.ip(f"link set {self._port} down")

    def mend(self) -> None:
        """Plug its cable in again."""
        self._network.ip(f"link set {self._port} up")

    @property
    def has_power(self) -> bool:
        return self._first is not None

    @property
    def _port(self) -> str:
        """The switch's end of its cable: another one in each life, as the kernel removes the one before by and by."""
        return f"p{self._number}-{self._boots}"

    # -- what runs there ------------------------------------------------------------------------------------------

    def start(
        self, *command: str | Path, log: str = "log", environment: Mapping[str, str] = MappingProxyType({})
    ) -> Started:
        """Start a process that is not waited for.

        Args:
            log: the file in its directory that its output is appended to.
            environment: besides the machine's.
        """
        with (self.directory / log).open("ab") as output:
            started = Started(self._popen(command, environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output))
        self._started.append(started)
        return started

    def run(
        self, *command: str | Path, check: bool = True, environment: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, until nothing has its output any more; it fails with what the command said."""
        process = self._popen(command, environment, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1)
        out, err = process.communicate()
        done = subprocess.CompletedProcess([str(each) for each in command], process.returncode, out, err)
        assert not check or not process.returncode, f"{self.name}: {done.args}: {process.returncode}\n{out}{err}"
        return done

    def _popen(self, command: Sequence[str | Path], environment: Mapping[str, str], **given: Any) -> Any:
        assert self._first is not None, f"{self.name} has no power"
        enter = ["nsenter", "-t", str(self._pid), "--net", "--mount", "--uts", "--ipc", "--pid"]
        return subprocess.Popen(
            [*enter, "env", "-C", str(ROOT), *map(str, command)],
            env={**self.environment, **environment},
            text=True,
            start_new_session=True,  # Ctrl-C is for the test
            **given,
        )

    def processes(self, text: str = "") -> list[int]:
        """Ids, as outside, of its processes whose command line has a text; the first process is none of them."""
        space = _namespace(self._pid, "pid")
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):  # it is no process, or has ended
                pid = int(entry.name)
                if pid != self._pid and _namespace(pid, "pid") == space and text in _command(pid):
                    found.append(pid)
        return found

    def kill(self, text: str) -> list[int]:
        """Kill all its processes whose command line has a text; return which were found."""
        found = self.processes(text)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """Have what this thread connects, and the processes that it starts, be in the machine's network meanwhile."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/proc/{self._pid}/ns/net", os.O_RDONLY)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(own)
        finally:
            os.close(own)
            os.close(there)


class Network:
    """A switch, and the machines at it.

    Args:
        directory: of the machines' disks.
        switch: the process whose network is the switch's.
    """

    def __init__(self, directory: Path, switch: subprocess.Popen[str]) -> None:
        self.directory = directory
        self.machines: dict[str, Machine] = {}
        self._switch = switch
        (directory / "hosts").write_text("127.0.0.1 localhost\n")
        self.ip("link add br0 type bridge")
        self.ip("link set br0 up")

    def add(self, *names: str) -> list[Machine]:
        """Boot machines."""
        added = []
        for name in names:
            machine = self.machines[name] = Machine(self, name, len(self.machines) + 10)
            with (self.directory / "hosts").open("a") as hosts:
                hosts.write(f"{machine.address} {name}\n")
            machine.boot()
            added.append(machine)
        return added

    def ip(self, command: str, *, check: bool = True) -> None:
        """Run ``ip`` in the switch."""
        _ip(self._switch.pid, command, check=check)


@contextlib.contextmanager
def new_network(directory: Path) -> Iterator[Network]:
    """Lend a switch without machines; all machines lose their power at the end.

    Args:
        directory: for their disks.
    """
    directory.mkdir(exist_ok=True)
    switch = _unshare(["--net"], ["bash", "-c", "echo ready; while read -r _; do :; done"])
    network = Network(directory, switch)
    try:
        yield network
    finally:
        for machine in network.machines.values():
            if machine.has_power:
                machine.lose_power()
        with switch:
            switch.kill()


def _unshare(options: Sequence[str], command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a process in namespaces of its own, which says ``ready`` and reads its input to its end."""
    process = subprocess.Popen(
        ["unshare", *options, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "SHM_SIZE": _SHM_SIZE},
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    if process.stdout.readline() != "ready\n":
        with process:
            problem = process.stderr.read().strip()
        raise AssertionError(f"machines are namespaces, which could not be made here; it takes root: {problem}")
    process.stderr.close()
    return process


def _ip(pid: int, command: str, *, check: bool = True) -> None:
    """Run ``ip`` in the network of a process."""
    enter = ["nsenter", "-t", str(pid), "--net", "ip", *command.split()]
    try:
        done = subprocess.run(enter, check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise AssertionError("the program nsenter is missing") from error
    assert not check or not done.returncode, f"ip {command} (of Debian's iproute2, see make setup-tests): {done.stderr}"


def _child_of(process: subprocess.Popen[str]) -> int:
    """The one child of a process that was just started; 0 if that has ended at once."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def found() -> list[int]:
        has_ended = process.poll() is not None
        return [0] if has_ended else [int(child) for child in children.read_text().split()]

    return wait_until(found)[0]


def _namespace(pid: int, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
