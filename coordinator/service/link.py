"""A long-lived client's link to a home's service: it connects again, and starts the service again, after a loss."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final, Self

import structlog

from coordinator.service.client import ServiceClient, ServiceError
from coordinator.service.connecting import open_or_start, open_running, wait_ended
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from coordinator.home import Home

__all__ = ["ServiceLink"]

_BACK_OFF_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Pauses before an attempt to connect, by the number of attempts that failed before; the last one repeats."""
_END_MARGIN_S: Final = 60.0
"""Margin of a service's end beyond the timeout of its agents: processes, mounts and Ray."""

_log = structlog.stdlib.get_logger(__name__)


class ServiceLink:
    """A link to a home's service, open while its context lasts.

    After the first connection, a link that starts the service also keeps it up: when the connection is lost, it starts
    the service again without being asked.

    Args:
        home: the home.
        start: whether to start the service if none runs.
        registers: whether a callback registers agent classes: messages that other clients send to a service that the
            link has started wait for it.
        on_progress: called repeatedly while the service starts, with a short description of the current stage.
    """

    def __init__(
        self,
        home: Home,
        *,
        start: bool,
        registers: bool = False,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._home = home
        self._start = start
        self._registers = registers
        self._on_progress = on_progress
        self._callbacks: list[Callable[[ServiceClient], Awaitable[None]]] = []
        self._client: ServiceClient | None = None
        self._tasks = BackgroundTasks()
        self._connecting: asyncio.Task[ServiceClient] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._failures = 0
        self._closed = False

    def on_connect(self, callback: Callable[[ServiceClient], Awaitable[None]]) -> None:
        """Have a callback awaited after each connection that is made from now on, before the client is used.

        If it raises, the connection is closed, and the attempt to connect has failed with its exception.
        """
        self._callbacks.append(callback)

    async def __aenter__(self) -> Self:
        """Return the link; nothing is connected yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection; the service goes on if it is pinned or has other clients."""
        await self._stop_reconnecting()
        if self._client is not None:
            await self._client.close()

    @property
    def connected(self) -> ServiceClient | None:
        """The live client; ``None`` while there is no connection."""
        return self._client if self._client is not None and not self._client.is_lost else None

    async def client(self) -> ServiceClient:
        """Return a live client, connecting if necessary; concurrent calls share one attempt.

        A client may be lost at any time: its requests then raise `ServiceError`, and the next call here returns another
        one. Cancellation does not end the attempt.

        Raises:
            ServiceError: no service runs and none is to be started; or it did not start, or does not answer.
            HomeError: the home cannot be used.
        """
        if (client := self.connected) is not None:
            return client
        if self._closed:
            raise ServiceError("the link to the service is closed")
        if self._connecting is None:
            self._connecting = self._tasks.start(self._connect(), "service-link")
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    async def end_service(self, timeout_s: float) -> None:
        """End the service in order, and do not start it again; return when its processes have ended.

        Streams of turns that end within the timeout get their last frames; others end with the connection.

        Args:
            timeout_s: timeout of running turns, which are taken back after it.

        Raises:
            ServiceError: it did not end in time.
        """
        await self._stop_reconnecting()
        client = self.connected or await open_running(self._home, elsewhere=False)
        if client is not None:
            with contextlib.suppress(ServiceError):  # it ended by itself meanwhile
                await client.down(timeout_s)
        try:
            await wait_ended(self._home, timeout_s + _END_MARGIN_S)
        finally:
            if client is not None:
                await client.close()

    async def _stop_reconnecting(self) -> None:
        self._closed = True
        await self._tasks.close()

    async def _connect(self) -> ServiceClient:
        await asyncio.sleep(_BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)])
        if self._client is not None:
            await self._client.close()
            self._client = None
        client = await self._open()
        try:
            for callback in self._callbacks:
                await callback(client)
        except BaseException:
            await client.close()
            raise
        self._client = client
        return client

    async def _open(self) -> ServiceClient:
        if not self._start:
            client = await open_running(self._home)
            if client is None:
                raise ServiceError(f"no service runs on the home {self._home.path}; podium up starts one")
            return client
        client, process = await open_or_start(self._home, self._on_progress, registers=self._registers)
        if process is not None:  # its exit status is collected when it ends, lest it stays as a zombie
            threading.Thread(target=process.wait, name="service-reaper", daemon=True).start()
        return client

    def _connected(self, connecting: asyncio.Task[ServiceClient]) -> None:
        self._connecting = None
        if connecting.cancelled():
            return
        self._failures = 0 if connecting.exception() is None else self._failures + 1
        if self._start and self._keeping is None and connecting.exception() is None:
            self._keeping = self._tasks.start(self._keep(), "service-link-keeper")

    async def _keep(self) -> None:
        """Connect again after each loss."""
        while not self._closed:
            try:
                client = await self.client()
            except Exception as error:  # noqa: BLE001  whatever it is, the service is to come back
                _log.warning("service_not_reached", home=str(self._home.path), error=str(error))
                continue
            await client.wait_lost()
            if not self._closed:
                _log.warning("service_lost", home=str(self._home.path), then="connecting again")
