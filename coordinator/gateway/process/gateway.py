"""The process of the gateway: a client of the home's service that serves HTTP, from its start to its orderly end.

It loads the agent classes, starts the service if none runs, pins it and registers them; when the service dies, its link
starts another one and does the same again. At its end it accepts no further connections and ends the service in order,
during which the streams of running turns get their last frames. Then it closes the streams that are left: their clients
can resume them later.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import structlog
import uvicorn

from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError, InvalidInput
from chronicle.ids import IdSource
from coordinator.gateway.app import AppOptions, create_app
from coordinator.gateway.process.listener import url_of
from coordinator.gateway.process.serving import server_config
from coordinator.gateway_record import GatewayRecord, write_record
from coordinator.models.client import ModelClient
from coordinator.operations.agents import HomeAgents
from coordinator.registry.project import load_project
from coordinator.registry.reloading import reload_project
from coordinator.registry.resolve import resolve
from coordinator.responses.reading import SessionReader
from coordinator.responses.responses import HomeResponses
from coordinator.service.connecting import connect_elsewhere
from coordinator.service.link import ServiceLink
from coordinator.streams.home_streams import HomeStreams
from coordinator.telemetry.tracing import Tracing
from podium.errors import PodiumError
from podium.tasks import BackgroundTasks, joined_beside

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from coordinator.gateway.process.home_access import HomeAccess
    from coordinator.gateway.protection.rules import Rules
    from coordinator.home import Home
    from coordinator.registry.registry import Registry
    from coordinator.registry.reloading import Reloaded
    from coordinator.service.client import ServiceClient

__all__ = ["Gateway"]

_CLOSE_S: Final = 5
"""Timeout for the connections to close at the end, once the service has ended; then they are cut."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway, which `run` runs.

    Args:
        home: an existing home, whose gateway lock this process holds.
        listener: the listening socket; closed at the end.
        project_file: the project, whose agent classes are registered.
        joins: whether the service is one that runs elsewhere, for the same project: it is neither started, nor told of
            the classes, nor ended.
        stands_by: whether a service stands by on this machine: the gateway is one of that which serves, and tells it of
            the classes, and ends it, only if that is the one on this machine.
        follow_edits: have each message handled by the code and configuration as they are at its admission.
        access: authenticates callers; the caller closes it.
        rules: what the gateway accepts.
        stop_timeout_s: timeout of running turns at the end.
        on_progress: called repeatedly during the start and at the end, with a short description of the stage.
        page: whether to serve the page that talks to agents.
        error_texts: whether all callers get the texts of errors that agents' code makes.
        on_ready: called when the gateway serves, with the service's notice for the user, if there is one.
    """

    home: Home
    listener: socket.socket
    project_file: Path
    follow_edits: bool
    access: HomeAccess
    rules: Rules
    stop_timeout_s: float
    on_progress: Callable[[str], None]
    on_ready: Callable[[str | None], None]
    page: bool = False
    error_texts: bool = True
    joins: bool = False
    stands_by: bool = False

    async def run(self) -> None:
        """Serve until a signal; the service has ended on return, unless it was joined.

        Raises:
            ServiceError: the service did not start, or did not end.
            AgentLoadError, InvalidInput: the agent classes cannot be registered; nothing was started.
        """
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop, stopping)
        async with (
            _Classes(self.project_file, self.home.path, follow_edits=self.follow_edits) as classes,
            ServiceLink(
                self.home,
                start=not self.joins,
                stands_by=self.stands_by,
                registers=not self.joins,
                on_progress=self.on_progress,
            ) as link,
        ):
            await classes.check()
            if await self._start(link, classes, stopping):
                await self._serve(link, classes, stopping)
            else:
                await self._end_service(link)

    def _stop(self, stopping: asyncio.Event) -> None:
        """Begin the end; a second Ctrl-C ends the process at once."""
        stopping.set()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def _start(self, link: ServiceLink, classes: _Classes, stopping: asyncio.Event) -> bool:
        """Connect and register; return whether that was done before a signal came."""

        async def prepare(client: ServiceClient) -> None:
            if self.joins or (self.stands_by and not client.is_here):
                await classes.know()
            else:
                await classes.register(client)
                await client.pin()
            write_record(self.home, GatewayRecord(os.getpid(), url_of(self.listener, tls=self.rules.tls is not None)))

        link.on_connect(prepare)
        async with (
            joined_beside(link.client(), "connect") as connecting,
            joined_beside(stopping.wait(), "wait-for-signal") as stopped,
        ):
            await asyncio.wait((connecting, stopped), return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                _ = connecting.result()
            return not stopping.is_set()

    async def _serve(self, link: ServiceLink, classes: _Classes, stopping: asyncio.Event) -> None:
        self.access.make_local_key()
        agents = HomeAgents(self.home, link)
        streams = HomeStreams(link.client, agents)
        tracing = Tracing("gateway")
        clock = SystemClock()
        models = ModelClient(self.home.models_socket, partial(connect_elsewhere, self.home, "models"))
        responses = HomeResponses(
            agents.stores, partial(SessionReader, clock=clock), models, clock, IdSource(), agents.quotas.check_record
        )
        app = create_app(
            agents,
            self.access.access,
            streams,
            responses=responses,
            keys_of_home=self.access.administration,
            audit=self.access.audit,
            tracer=tracing.tracer,
            options=AppOptions(
                reload=(lambda: classes.reload(link)) if not self.joins else _refuse_to_reload,
                accepts_state=classes.accept_state,
                page=self.page,
                error_texts=self.error_texts,
                body_bytes=self.rules.body_bytes,
                upload_bytes=self.rules.upload_bytes,
            ),
        )
        server = _Server(server_config(app, self.rules, clock))
        try:
            async with streams, responses, asyncio.TaskGroup() as tasks:
                serving = tasks.create_task(server.serve(sockets=[self.listener]), name="http")
                started = tasks.create_task(server.is_serving.wait(), name="http-start")
                await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
                self.on_ready((await link.client()).notice)
                stopped = tasks.create_task(stopping.wait(), name="wait-for-signal")
                await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
                stopping.set()
                server.should_exit = True
                try:
                    await self._end_service(link)
                finally:
                    streams.close()
                    responses.close()
                    await self._close(server, serving)
                    await tracing.flush()
        finally:
            agents.close()

    async def _end_service(self, link: ServiceLink) -> None:
        if self.joins:
            return
        self.on_progress("ending the agents' turns")
        await link.end_service(self.stop_timeout_s)

    async def _close(self, server: _Server, serving: asyncio.Task[None]) -> None:
        """Wait for the connections to close, but not long: none can get anything any more."""
        await asyncio.wait({serving}, timeout=_CLOSE_S)
        if not serving.done():
            _log.warning("requests_cut_off", count=len(server.server_state.tasks))
            for task in list(server.server_state.tasks):
                task.cancel()
            server.force_exit = True


async def _refuse_to_reload() -> Reloaded:
    raise InvalidInput("this gateway has joined a service elsewhere: reload where that was started")


class _Classes:
    """The agent classes of the project, registered with each service that is connected.

    Args:
        file: the project file.
        home: the home's directory.
        follow_edits: see `ServiceClient.register`.
    """

    def __init__(self, file: Path, home: Path, *, follow_edits: bool) -> None:
        self._file = file
        self._home = home
        self._follow_edits = follow_edits
        self._tasks = BackgroundTasks()
        self._first = self._read()
        self._last: Registry | None = None
        self._updating: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Check that the classes can be registered.

        Raises:
            AgentLoadError, InvalidInput: the project is not valid.
        """
        await self._first

    async def register(self, client: ServiceClient) -> None:
        """Register the classes; at a later connection those of the last one, and soon after what was edited since.

        Raises:
            AgentLoadError, InvalidInput: the project is not valid, and there was no connection before.
        """
        if self._last is None:
            self._last = await self._first
            await client.register(self._last, follow_edits=self._follow_edits)
            return
        await client.register(self._last, follow_edits=self._follow_edits)
        if self._updating is not None:
            self._updating.cancel()
        self._updating = self._tasks.start(self._update(client), "register-edited")

    async def know(self) -> None:
        """Have the classes known here, without a service being told of them.

        Raises:
            AgentLoadError, InvalidInput: the project is not valid.
        """
        self._last = await self._first

    async def __aenter__(self) -> Self:
        """Return the classes, which are being read."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Register nothing more."""
        await self._tasks.close()

    def accept_state(self, agent_type: str) -> bool:
        """Return whether the class of a type accepts the state that a front end sends."""
        found = self._last.get(agent_type) if self._last is not None else None
        return found is not None and found.accepts_client_state

    def _read(self) -> asyncio.Task[Registry]:
        return self._tasks.start(asyncio.to_thread(self._resolve), "resolve-agents")

    def _resolve(self) -> Registry:
        return resolve(load_project(self._file))

    async def reload(self, link: ServiceLink) -> Reloaded:
        """Read the project again for the service; raises as `reload_project`."""
        done = await reload_project(await link.client(), self._file, self._home)
        self._last = done.registry
        return done

    async def _update(self, client: ServiceClient) -> None:
        try:
            registry = await self._read()
            if registry != self._last:
                await client.register(registry)
                self._last = registry
        except (PodiumError, ChronicleError) as error:  # ServiceError among them: the next connection registers again
            _log.warning("project_not_read_again", error=str(error), then="its agent classes stay as they were")


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: on a signal, the gateway ends more than the server."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_serving.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
