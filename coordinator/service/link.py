"""A long-lived client's link to a home's service: it connects again, and starts the service again, after a loss.

When a service has handed the home over to another one, the link connects to that one; the connection before it stays
open for the streams of turns that end there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final, Self

import structlog

from coordinator.service.client import ServiceClient, ServiceError
from coordinator.service.connecting import (
    START_TIMEOUT_S,
    end_of_log,
    open_or_start,
    open_running,
    start_standby,
    wait_ended,
)
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from coordinator.home import Home

__all__ = ["ServiceLink"]

_BACK_OFF_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Pauses before an attempt to connect, by the number of attempts that failed before; the last one repeats."""
_HOLD_S: Final = 10.0
"""How long requests wait for the next service after the one before was lost, or has handed the home over."""
_HOLD_POLL_S: Final = 0.1
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
        stands_by: whether to have a service stand by on this machine: the link is to the one that serves the home,
            here or elsewhere.
        registers: whether a callback registers agent classes: messages that other clients send to a service that the
            link has started wait for it.
        on_progress: called repeatedly while the service starts, with a short description of the current stage.
    """

    def __init__(
        self,
        home: Home,
        *,
        start: bool,
        stands_by: bool = False,
        registers: bool = False,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._home = home
        self._start = start
        self._stands_by = stands_by
        self._registers = registers
        self._on_progress = on_progress
        self._callbacks: list[Callable[[ServiceClient], Awaitable[None]]] = []
        self._client: ServiceClient | None = None
        self._tasks = BackgroundTasks()
        self._connecting: asyncio.Task[ServiceClient] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._failures = 0
        self._closed = False
        self._held_until_s = 0.0
        """Until when a service that is not there yet is waited for."""
        self._left: set[ServiceClient] = set()
        """Connections to services that have handed the home over."""
        self._own: subprocess.Popen[bytes] | None = None
        """The service that stands by, or serves, and that this link has started."""

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
        for client in (*self._left, *((self._client,) if self._client is not None else ())):
            await client.close()

    @property
    def connected(self) -> ServiceClient | None:
        """The live client; ``None`` while there is no connection."""
        return self._client if self._client is not None and not self._client.has_left else None

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
        if self._stands_by:
            await self._end_own(timeout_s)
            return
        client = self.connected or await open_running(self._home, elsewhere=False)
        if client is not None:
            with contextlib.suppress(ServiceError):  # it ended by itself meanwhile
                await client.down(timeout_s)
        try:
            await wait_ended(self._home, timeout_s + _END_MARGIN_S)
        finally:
            if client is not None:
                await client.close()

    async def _end_own(self, timeout_s: float) -> None:
        """End the service that this link has started, in order; what serves elsewhere is left alone."""
        if self._own is not None and self._own.poll() is None:
            self._own.terminate()
        await wait_ended(self._home, timeout_s + _END_MARGIN_S)

    async def _stop_reconnecting(self) -> None:
        self._closed = True
        await self._tasks.close()

    async def _connect(self) -> ServiceClient:
        await asyncio.sleep(_BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)])
        if self._client is not None:
            self._held_until_s = asyncio.get_running_loop().time() + _HOLD_S
            if self._client.is_lost:
                await self._client.close()
            else:  # streams of turns that end there go on
                self._left.add(self._client)
                self._tasks.spawn(self._close_lost(self._client), "service-left")
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

    async def _close_lost(self, client: ServiceClient) -> None:
        await client.wait_lost()
        self._left.discard(client)
        await client.close()

    async def _open(self) -> ServiceClient:
        if self._stands_by:
            return await self._open_beside_standby()
        if not self._start:
            while (client := await open_running(self._home)) is None:
                if asyncio.get_running_loop().time() > self._held_until_s:
                    break
                await asyncio.sleep(_HOLD_POLL_S)
            if client is None:
                raise ServiceError(f"no service runs on the home {self._home.path}; podium up starts one")
            return client
        client, process = await open_or_start(self._home, self._on_progress, registers=self._registers)
        if process is not None:  # its exit status is collected when it ends, lest it stays as a zombie
            threading.Thread(target=process.wait, name="service-reaper", daemon=True).start()
        return client

    async def _open_beside_standby(self) -> ServiceClient:
        """Connect to the service of the home, here or elsewhere, and keep one on this machine that stands by.

        Raises:
            ServiceError: that one does not start, and there is no other; or none serves in time.
        """
        if self._own is None:
            self._own = await asyncio.to_thread(start_standby, self._home)
            self._tasks.spawn(self._keep_own(), "standby")
        deadline_s = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while (client := await open_running(self._home, wait=False)) is None:
            if asyncio.get_running_loop().time() > deadline_s:
                raise ServiceError(f"no service serves the home {self._home.path}; {end_of_log(self._home)}")
            if self._own.poll():  # not 0, as when it has handed the home over
                raise ServiceError(f"the service did not start; {end_of_log(self._home)}")
            self._on_progress("waiting for the service of this home")
            await asyncio.sleep(_HOLD_POLL_S)
        return client

    async def _keep_own(self) -> None:
        """Start the service that stands by again whenever it has ended."""
        failures = 0
        while not self._closed:
            assert self._own is not None
            begun_s = asyncio.get_running_loop().time()
            code = await asyncio.to_thread(self._own.wait)
            failures = 0 if asyncio.get_running_loop().time() > begun_s + START_TIMEOUT_S or not code else failures + 1
            await asyncio.sleep(_BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)])
            try:
                self._own = await asyncio.to_thread(start_standby, self._home)
            except Exception as error:  # noqa: BLE001  whatever it is, one is to stand by
                _log.warning("standby_not_started", home=str(self._home.path), error=str(error))
                await asyncio.sleep(_BACK_OFF_S[-1])

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
            await client.wait_left()
            if client.is_lost and not self._closed:
                _log.warning("service_lost", home=str(self._home.path), then="connecting again")
