"""The command ``podium``, in processes that are forked from one that has imported it.

A command runs for less time than the import of what it needs takes, and the tests run hundreds of them. What is forked
runs the entry point of the installed script, with its own arguments, environment, working directory and standard
streams, and ends as an interpreter does. Gateways, and what runs on a terminal, are the script itself.
Programs that others start, as pages' commands are by a shell, are run so by `CommandServer.programs`.

Run as a program this module is the process that forks: ``python -m tests.e2e.command_server FD``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Command", "CommandServer"]

_REQUEST_BYTES: Final = 1 << 20
_IMPORTED: Final = (
    "asyncio",
    "chronicle.blobs.gc.collector",
    "chronicle.journal.sqlite",
    "coordinator.backup",
    "coordinator.client.async_client",
    "coordinator.gateway.process.detached",
    "coordinator.gateway.process.ending",
    "coordinator.home",
    "coordinator.homes.sqlite.calls",
    "coordinator.operations.archives",
    "coordinator.operations.artifacts",
    "coordinator.operations.branches",
    "coordinator.operations.dropping",
    "coordinator.operations.explaining",
    "coordinator.operations.files",
    "coordinator.operations.history",
    "coordinator.operations.listing",
    "coordinator.operations.messages",
    "coordinator.registry.reloading",
    "coordinator.service.connecting",
    "coordinator.verification",
    "podium.artifacts.artifacts",
    "podium.history.archive_import",
    "podium.history.branching",
    "podium.history.compare",
    "podium.history.transcript",
    "rich.console",
    "rich.status",
    "rich.table",
)
"""What commands import while they run; what is not here, each imports for itself."""


_PROGRAM: Final = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {bytes})
    server.connect({path!r})
    request = [sys.argv[1:], dict(os.environ), os.getcwd()]
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    sys.exit(int(server.recv(16) or 70))
"""
"""A program that has a command run with its arguments, environment, directory and output, and ends as that does."""


class Command:
    """A command that runs, and whose exit code nobody else waits for.

    Args:
        answers: what the process that forks writes of it; closed with the end of the wait for it.
    """

    def __init__(self, command: list[str], answers: BinaryIO) -> None:
        self.pid: Final = int(answers.readline())
        self._command = command
        self._answers = answers
        self._code: int | None = None

    def wait(self, timeout_s: float) -> int:
        """Return its exit code; negative: the signal that killed it.

        Raises:
            subprocess.TimeoutExpired: it runs still.
        """
        if self._code is None:
            if not select.select([self._answers], [], [], timeout_s)[0]:
                raise subprocess.TimeoutExpired(self._command, timeout_s)
            # Nothing: a signal to all, such as Ctrl-C, has ended the process that forks, and the command as well.
            self._code = int(self._answers.readline() or -signal.SIGTERM)
            self._answers.close()
        return self._code

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self._code is None and not select.select([self._answers], [], [], 0)[0]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class CommandServer:
    """Runs commands, several at a time if threads do; it is started for the first one."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with nothing to read from stdin.

        Raises:
            subprocess.TimeoutExpired: it took longer; it is killed.
        """
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as errors,
            Path(os.devnull).open("rb") as nothing,
        ):
            files = (nothing, out, errors)
            command = self.start(arguments, environment, str(Path.cwd()), [file.fileno() for file in files])
            code = _end_of(command, timeout_s)
            texts = []
            for file in (out, errors):
                _ = file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess([self._script, *arguments], code, *texts)

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], directory: str, streams: Sequence[int]
    ) -> Command:
        """Start a command.

        Args:
            streams: descriptors of its standard streams, which stay open here.
        """
        command = [self._script, *arguments]
        request = json.dumps({"command": command, "environment": dict(environment), "directory": directory})
        ours, theirs = os.pipe()
        with os.fdopen(theirs, "wb"), self._lock:
            _ = socket.send_fds(self._started(), [request.encode()], [*streams, theirs])
        return Command(command, os.fdopen(ours, "rb", 0))

    @contextlib.contextmanager
    def programs(self, timeout_s: float) -> Iterator[Path]:
        """Yield a directory with a program of the script's name, which is run so while the context lasts."""
        with (
            tempfile.TemporaryDirectory() as made,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
            ThreadPoolExecutor() as threads,
        ):
            path = f"{made}/commands.sock"
            program = Path(made, "bin", Path(self._script).name)
            program.parent.mkdir()
            program.write_text(_PROGRAM.format(python=sys.executable, path=path, bytes=_REQUEST_BYTES))
            program.chmod(0o700)
            listener.bind(path)
            listener.listen()
            accepting = threads.submit(self._accept, listener, threads, timeout_s)
            try:
                yield program.parent
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                accepting.result()

    def _accept(self, listener: socket.socket, threads: ThreadPoolExecutor, timeout_s: float) -> None:
        with contextlib.suppress(OSError):  # it is shut down
            while True:
                connection, _ = listener.accept()
                _ = threads.submit(self._run_for, connection, timeout_s)

    def _run_for(self, connection: socket.socket, timeout_s: float) -> None:
        """Run the command of a program; one that takes too long ends as one that was killed."""
        with connection:
            request, streams, *_ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
            arguments, environment, directory = json.loads(request)
            try:
                code = _end_of(self.start(arguments, environment, directory, streams), timeout_s)
            except subprocess.TimeoutExpired:
                code = 128 + signal.SIGKILL
            finally:
                for stream in streams:
                    os.close(stream)
            _ = connection.send(str(code).encode())

    def end(self) -> None:
        """End the process; commands have ended."""
        if self._process is not None and self._requests is not None:
            self._requests.close()
            _ = self._process.wait()
        self._process = self._requests = None

    def _started(self) -> socket.socket:
        if self._requests is None:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.e2e.command_server", str(theirs.fileno())],
                    cwd=Path(__file__).parents[2],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
        return self._requests


def _end_of(command: Command, timeout_s: float) -> int:
    """Return a command's exit code; kill it when its time is over."""
    try:
        return command.wait(timeout_s)
    except subprocess.TimeoutExpired:
        command.kill()
        raise


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork a process for each request.

    Returns:
        in a forked process, the command that it is to run; None at the end of the one that forks.
    """
    running: dict[int, int] = {}
    woken, wakes = os.pipe()
    for descriptor in (woken, wakes):
        os.set_blocking(descriptor, False)
    _ = signal.signal(signal.SIGCHLD, lambda *_: None)
    _ = signal.set_wakeup_fd(wakes)
    while True:
        ready = select.select([requests.fileno(), woken], [], [])[0]
        if woken in ready:
            _ = os.read(woken, 4096)
            _report_ended(running)
        if requests.fileno() in ready:
            request, descriptors, *_ = socket.recv_fds(requests, _REQUEST_BYTES, 4)
            if not request:
                return None
            *streams, answers = descriptors
            if not (pid := os.fork()):
                _ = signal.set_wakeup_fd(-1)
                _ = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (requests.detach(), woken, wakes, answers, *running.values()):
                    os.close(descriptor)
                return _become(json.loads(request), streams)
            _ = os.write(answers, f"{pid}\n".encode())
            for descriptor in streams:
                os.close(descriptor)
            running[pid] = answers


def _report_ended(running: dict[int, int]) -> None:
    """Tell the exit codes of the processes that have ended to those who wait for them."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        answers = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # it was killed, as its time was over
            _ = os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os.close(answers)


def _become(request: dict[str, object], streams: Sequence[int]) -> list[str]:
    """Give this process the environment, directory and streams of a command, and return the command."""
    environment, command = request["environment"], request["command"]
    assert isinstance(environment, dict)
    assert isinstance(command, list)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["directory"]))
    for target, descriptor in enumerate(streams):
        _ = os.dup2(descriptor, target)
        os.close(descriptor)
    sys.path[0] = str(Path(command[0]).parent)  # as the script has it, and not the directory of the tests
    return command


def _main() -> int:
    from coordinator.cli.main import COMMANDS, GROUPS, main

    for place, _ in (*COMMANDS.values(), *GROUPS.values()):
        _ = import_module(f"coordinator.cli.commands.{place.partition('.')[0]}")
    for name in _IMPORTED:
        _ = import_module(name)
    gc.freeze()
    command = _serve(socket.socket(fileno=int(sys.argv[1])))
    if command is None:
        return 0
    sys.argv = command
    return main()


if __name__ == "__main__":
    sys.exit(_main())
