"""`SocketProcess`: a process that serves a Unix socket which its owner listens at.

The owner listens at the socket and accepts nothing: it starts the process, which inherits the listening socket and
accepts what waits there. When the process has died, another one is started, at once or by the next connection. So
clients need the path only, connections of a moment of no process wait, and there is no race between two starts.

The process ends when the pipe at its standard input ends, which it does with the owner, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import structlog

from chronicle.system.permissions import let_group_connect
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = ["SocketProcess"]

_BACKLOG: Final = 512
"""Connections that wait while the process starts; further ones are refused."""
_BACK_OFF_S: Final = (0.0, 0.2, 1.0, 5.0)
"""Pauses before a start, by the number of processes before it that died at once; the last one repeats."""
_AT_ONCE_S: Final = 5.0
_MAX_AT_ONCE: Final = 3
"""After so many processes in a row that died at once those who wait are told so."""
_END_S: Final = 5.0
"""Timeout of an orderly end; then the process is killed."""

_log = structlog.stdlib.get_logger("coordinator.socket_process")


class SocketProcess:
    """A process of a module of ours, while its context lasts.

    Args:
        name: what it is, for messages, such as ``model gateway``.
        path: of the socket.
        program: a module, which is run as ``python -m``, and its arguments; the descriptor of the socket comes last.
        log: the file that the process's output is appended to.
        variables: its environment.
        refusal: returns an answer to those who wait, as the process would give it, from the text of an error.
        first: written to its standard input, for what no other process should see.
        group: of other users that may connect; ``None`` for none.
        at_once: start it at the beginning, and again when it has died: not only when somebody connects.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        program: Sequence[str],
        log: Path,
        variables: Mapping[str, str],
        refusal: Callable[[str], bytes],
        *,
        first: bytes = b"",
        group: int | None = None,
        at_once: bool,
    ) -> None:
        self._name = name
        self._path = path
        self._command = (sys.executable, "-m", *program)
        self._output = log
        self._variables = dict(variables)
        self._refusal = refusal
        self._first = first
        self._group = group
        self._at_once = at_once
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._tasks = BackgroundTasks()
        self._died_at_once = 0

    async def __aenter__(self) -> Self:
        """Listen, and start the process if it is to run at once."""
        self._path.unlink(missing_ok=True)
        listener = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._path))
        let_group_connect(self._path, self._group)  # nobody can connect before it listens
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        if self._at_once:
            self._begin()
        else:
            self._await_connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: what it does fails with an error."""
        assert self._socket is not None
        self._path.unlink(missing_ok=True)
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        await self._tasks.close()
        self._socket.close()

    @property
    def runs(self) -> bool:
        """Whether there is a process now."""
        return self._process is not None

    def _await_connection(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._on_connection)

    def _on_connection(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._begin()

    def _begin(self) -> None:
        _ = self._tasks.start(self._run(), self._name)

    async def _run(self) -> None:
        """Run one process to its end, and have the next one follow: after a pause, or with the next connection."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(_BACK_OFF_S[min(self._died_at_once, len(_BACK_OFF_S) - 1)])
        began_s = loop.time()
        try:
            process = self._process = await self._start()
        except OSError as error:
            _log.error("process_not_started", process=self._name, error=str(error))
            self._died_at_once += 1
        else:
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                await self._end(process)
                raise
            finally:
                self._process = None
            lived_s = loop.time() - began_s
            self._died_at_once = self._died_at_once + 1 if lived_s < _AT_ONCE_S else 0
            _log.warning("process_died", process=self._name, exit_code=code, lived_s=round(lived_s, 1))
        if self._died_at_once >= _MAX_AT_ONCE:
            self._refuse_waiting()
        self._begin() if self._at_once else self._await_connection()

    def _refuse_waiting(self) -> None:
        """Answer the connections that no process has accepted with an error, as the process does."""
        assert self._socket is not None
        answer = self._refusal(
            f"the {self._name} cannot be started: {self._died_at_once} processes in a row ended at once; "
            f"logs/{self._output.name} of the home has the reason. It is tried again with the next call"
        )
        with suppress(BlockingIOError):
            while True:
                connection, _ = self._socket.accept()
                with connection, suppress(OSError):  # the client left
                    connection.setblocking(False)
                    connection.send(answer)

    async def _start(self) -> asyncio.subprocess.Process:
        assert self._socket is not None
        log_fd = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--listener",
                str(self._socket.fileno()),
                stdin=asyncio.subprocess.PIPE,
                stdout=log_fd,
                stderr=log_fd,
                pass_fds=(self._socket.fileno(),),
                start_new_session=True,
                env=self._variables,
            )
        finally:
            os.close(log_fd)
        assert process.stdin is not None
        process.stdin.write(self._first)
        return process

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """End the process in order, else kill it."""
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
