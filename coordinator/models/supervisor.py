"""`ModelProcess`: the service's side of the model gateway: its socket, and its process.

The service listens at the socket and accepts nothing: it starts the process, which inherits the listening socket and
accepts what waits there; of a home without profiles, at the first connection. When the process has died, the next
connection starts another one. So clients need the path only, connections of a moment of no process wait, and there is
no race between two starts.

The process ends when the pipe at its standard input ends, which it does with the service, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import structlog

from coordinator.channel import pack
from coordinator.models.client import ModelClient
from coordinator.models.config_file import read_config
from coordinator.telemetry.snapshots import from_wire
from podium.models.codec import error_to_json
from podium.models.errors import ModelError
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from coordinator.documents import Documents
    from coordinator.home import Home
    from coordinator.telemetry.recorder import Series, Value

__all__ = ["ModelProcess"]

_BACKLOG: Final = 512
"""Connections that wait while the process starts; further ones are refused."""
_BACK_OFF_S: Final = (0.0, 0.2, 1.0, 5.0)
"""Pauses before a start, by the number of processes before it that died at once; the last one repeats."""
_AT_ONCE_S: Final = 5.0
_MAX_AT_ONCE: Final = 3
"""After so many processes in a row that died at once those who wait are told so."""
_END_S: Final = 5.0
"""Timeout of an orderly end; then the process is killed."""
_METRICS_S: Final = 2.0
_LOG: Final = "models.log"

_log = structlog.stdlib.get_logger("coordinator.models")


class ModelProcess:
    """The model gateway of a home, while its context lasts. The caller is the home's service.

    Args:
        home: the home; its run directory exists.
        variables: the environment of the process; it has the keys.
    """

    def __init__(self, home: Home, documents: Documents, variables: Mapping[str, str]) -> None:
        self._home = home
        self._documents = documents
        self._variables = dict(variables)
        self._path = home.models_socket
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._tasks = BackgroundTasks()
        self._died_at_once = 0
        self._metrics: dict[Series, Value] = {}

    async def __aenter__(self) -> Self:
        """Listen, and start the process if the home has profiles: the first call does not wait for it."""
        self._path.unlink(missing_ok=True)
        listener = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._path))
        self._path.chmod(0o600)  # nobody can connect before it listens
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        if read_config(self._documents).profiles:
            self._begin()
        else:
            self._await_connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: running calls fail with an error."""
        assert self._socket is not None
        self._path.unlink(missing_ok=True)
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        await self._tasks.close()
        self._socket.close()

    async def metrics(self) -> dict[Series, Value]:
        """Return what the process measured; the last that is known, if it does not run."""
        if self._process is not None:
            with suppress(ModelError, TimeoutError):
                async with asyncio.timeout(_METRICS_S):
                    self._metrics = from_wire(await ModelClient(self._path).metrics())
        return self._metrics

    def _await_connection(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._on_connection)

    def _on_connection(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._begin()

    def _begin(self) -> None:
        _ = self._tasks.start(self._run(), "model-gateway")

    async def _run(self) -> None:
        """Run one process to its end, and wait for the next connection."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(_BACK_OFF_S[min(self._died_at_once, len(_BACK_OFF_S) - 1)])
        began_s = loop.time()
        try:
            process = self._process = await self._start()
        except OSError as error:
            _log.error("model_gateway_not_started", error=str(error))
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
            _log.warning("model_gateway_died", exit_code=code, lived_s=round(lived_s, 1))
        if self._died_at_once >= _MAX_AT_ONCE:
            self._refuse_waiting()
        self._await_connection()

    def _refuse_waiting(self) -> None:
        """Answer the connections that no process has accepted with an error, as the process does."""
        assert self._socket is not None
        why = (
            f"the model gateway cannot be started: {self._died_at_once} processes in a row ended at once; "
            f"logs/{_LOG} of the home has the reason. It is tried again with the next call"
        )
        packet = pack({"error": error_to_json(ModelError(why, "unavailable"))})
        with suppress(BlockingIOError):
            while True:
                connection, _ = self._socket.accept()
                with connection, suppress(OSError):  # the client left
                    connection.setblocking(False)
                    connection.send(packet)

    async def _start(self) -> asyncio.subprocess.Process:
        assert self._socket is not None
        log_fd = os.open(self._home.logs / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "coordinator.models.process",
                "--home",
                str(self._home.path),
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
