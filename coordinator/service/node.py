"""``podium node``: what a further machine of a home needs beside its Ray node. It has the credentials; Ray has none.

It holds, in this machine's directory of the home, which need not be of the user of Ray's processes
(`coordinator.home.host_places`):

* the store process, at `store.sock` of the run directory;
* `models.sock`, from where calls of models go through the door of the service to the model gateway beside it;
* a door, through which services reach the sockets of this machine's hosts.

The coordinator finds all of it by the document of the machine (`coordinator.fleet.nodes.machines`), and uses the Ray
nodes of this hostname then. Hosts do not notice the death of this process, but for calls of the store and of models,
which wait for the next one, or are tried again; that has the same paths and the same secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import secrets
import signal
import socket
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from chronicle.errors import ChronicleError, InvalidInput, UnsupportedFormat
from chronicle.system.permissions import let_group_connect, make_searchable
from coordinator.channel import pack
from coordinator.door import PATIENCE_S, connected_to, listening, options_of, pipe, piped_to, through_door
from coordinator.fleet.nodes.machines import TELL_S, Machine, publish_machine, published_machine, withdraw_machine
from coordinator.gateway_record import gateway_runs
from coordinator.home.host_places import host_places
from coordinator.homes.opening import open_records
from coordinator.host.delivery import DELIVERIES
from coordinator.host.node.process_marks import environment_without_mark
from coordinator.host.node.workspace_paths import WorkspacePaths
from coordinator.service.door import published_door
from coordinator.store.supervisor import StoreProcess
from podium.errors import HomeError
from podium.models.codec import error_to_json
from podium.models.errors import ModelError
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from coordinator.documents import Documents
    from coordinator.door import Door, DoorOptions, Serve
    from coordinator.home import Home
    from coordinator.home.host_places import HostPlaces
    from coordinator.settings import Settings

__all__ = ["NodeHealth", "serve_node"]

_HOST_ID: Final = re.compile(r"host_[0-9A-Za-z]{1,64}")
_BACKLOG: Final = 512
_NO_MODELS: Final = "no service runs, or it was started without PODIUM_SERVICE_LISTEN, its address for other machines"
_TOLD_S: Final = 3 * TELL_S
"""Age of what was told last from which the machine is not ready: the coordinator leaves it out after five intervals."""
_ALIVE_S: Final = 3.0
"""Timeout of the event loop's answer to a liveness probe."""
_POLL_S: Final = 0.1
"""Interval of looks at which hosts live still, at the end."""

_log = structlog.stdlib.get_logger(__name__)


class NodeHealth:
    """What a cluster's probes ask of ``podium node``; asked in other threads, from before it serves until its end."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: StoreProcess | None = None
        self._told_s = -math.inf

    def is_live(self) -> bool:
        """Whether the event loop answers, or is not there yet."""
        if self._loop is None:
            return True
        asked = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop)
        try:
            asked.result(_ALIVE_S)
        except TimeoutError:
            return False
        return True

    def is_ready(self) -> bool:
        """Whether agents may come: the store process runs, and the database has been told of this machine lately."""
        return self._store is not None and self._store.runs and time.monotonic() < self._told_s + _TOLD_S

    def begin(self, store: StoreProcess) -> None:
        """Note that this event loop serves, with a store process."""
        self._loop, self._store = asyncio.get_running_loop(), store

    def note_told(self) -> None:
        """Note that the database has just been told of this machine."""
        self._told_s = time.monotonic()

    def end(self) -> None:
        """Note that it serves no longer."""
        self._loop = self._store = None


async def serve_node(
    home: Home, settings: Settings, on_ready: Callable[[Machine], None], health: NodeHealth | None = None
) -> None:
    """Serve until a signal; then have the agents of this machine end after their turns, and withdraw it.

    Args:
        home: this machine's directory of the home.
        on_ready: called when the machine is published.
        health: is told how it goes.

    Raises:
        HomeError: the home is in a directory; or a service or another ``podium node`` runs on it, or another machine
            has this one's hostname.
        InvalidInput: a setting is missing, or cannot be used.
        Unavailable: the database cannot be reached.
    """
    if not home.is_shared:
        raise HomeError(
            f"the home {home.path} keeps its journal in a directory of this machine, which no other one reaches; move "
            "it to a database with `podium migrate`"
        )
    if not settings.service_listen:
        raise InvalidInput(
            "the service reaches the agents of this machine over the network: give PODIUM_SERVICE_LISTEN, HOST:PORT "
            "at which this process is to listen, such as 0.0.0.0:8702"
        )
    options = options_of(
        settings.service_listen, settings.service_host, settings.service_tls_cert, settings.service_tls_key
    )
    with home.node_lock() as held:
        if not held:
            raise HomeError(f"another podium node runs on {home.path}")
        if home.service_alive():
            raise HomeError(f"a service runs on {home.path}: its machine needs no podium node")
        places = host_places(home, settings.hosts_dir)
        # A directory of another user's hosts is of one home, and nothing of this user's is in it.
        workspaces = WorkspacePaths(settings.workspaces, home.id)
        with workspaces.claimed(home.path) if places.group is None else contextlib.nullcontext():
            documents = open_records(home).documents()
            before = await asyncio.to_thread(_before, documents)
            await _check_alone(before)
            if before is not None and before.home_identity != home.identity:
                before = None
            make_searchable(home.make_run_dir(), places.group)
            ending = _on_signals()
            store = StoreProcess(
                home,
                environment_without_mark(),
                settings.inbox_limit,
                before.store.secret if before else "",
                places.group,
            )
            secret = before.door.secret if before is not None else secrets.token_hex(32)
            async with (
                store,
                _models(home, documents, places.group),
                _door(options, secret, places) as door,
            ):
                machine = _machine(home, settings, places, store, door)
                health = health or NodeHealth()
                health.begin(store)
                try:
                    async with _Telling(documents, machine, health.note_told) as telling:
                        on_ready(machine)
                        await ending.wait()
                        await _end_agents(telling, places, settings.stop_timeout_s)
                finally:
                    health.end()
            if not gateway_runs(home):
                home.remove_run_dir()


def _machine(home: Home, settings: Settings, places: HostPlaces, store: StoreProcess, door: Door) -> Machine:
    return Machine(
        hostname=socket.gethostname(),
        podium=version("podium"),
        door=door,
        store=store.access,
        home=str(places.home),
        home_identity=home.identity,
        run_dir=str(places.run_dir),
        models=str(home.models_socket),
        logs=str(places.logs),
        workspaces=str(settings.workspaces),
        presentation=settings.presentation,
        fuse_transport=settings.fuse_transport,
        group=places.group,
    )


def _before(documents: Documents) -> Machine | None:
    """Return what was told of this machine, if it was of this version."""
    try:
        return published_machine(documents, socket.gethostname())
    except UnsupportedFormat:
        return None


async def _check_alone(before: Machine | None) -> None:
    """Raise `HomeError` if a machine of this hostname serves, which is another one, as this one's lock is held here."""
    if before is None:
        return
    try:
        _, writer = await through_door(before.door, "host", host="host_0")
    except FileNotFoundError:
        pass
    except (OSError, TimeoutError):
        return  # it was killed
    else:
        writer.close()
    raise HomeError(
        f"a podium node of this home runs with the hostname {before.hostname} already, at {before.door.address} with "
        f"the directory {before.home}: Ray nodes are told apart by their hostnames, so give this machine another one"
    )


def _on_signals() -> asyncio.Event:
    """Return what is set by a signal to end."""
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    return ending


class _Telling:
    """Tells of a machine while its context lasts: also again if the database has gone back, and that it is there still.

    At the end the machine is withdrawn.

    Args:
        on_told: called each time.
    """

    def __init__(self, documents: Documents, machine: Machine, on_told: Callable[[], None]) -> None:
        self._documents = documents
        self._machine = machine
        self._on_told = on_told
        self._ending = asyncio.Event()
        self._tasks = BackgroundTasks()

    async def __aenter__(self) -> Self:
        await self._tell()
        _log.info("machine_published", hostname=self._machine.hostname, door=self._machine.door.address)
        self._tasks.spawn(self._tell_again(), "tell")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._ending.set()
        await self._tasks.join()  # what is being written is not to come after the withdrawal
        try:
            await asyncio.to_thread(withdraw_machine, self._documents, self._machine.hostname)
            _log.info("machine_withdrawn", hostname=self._machine.hostname)
        except ChronicleError as error:  # the coordinator notices that it is silent
            _log.warning("machine_not_withdrawn", error=str(error))

    async def end_agents(self, timeout_s: float) -> None:
        """Tell from now on that the agents are to end, within a timeout."""
        self._machine = replace(self._machine, end_timeout_s=timeout_s)
        with contextlib.suppress(ChronicleError):  # it is told again
            await self._tell()

    async def _tell(self) -> None:
        told = replace(self._machine, told_ms=time.time_ns() // 1_000_000)
        await asyncio.to_thread(publish_machine, self._documents, told)
        self._on_told()

    async def _tell_again(self) -> None:
        problem: str | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TELL_S):
                    await self._ending.wait()
                    return
            try:
                await self._tell()
                problem = None
            except ChronicleError as error:  # its hosts wait for the database, too
                if str(error) != problem:
                    _log.warning("machine_not_told", error=str(error))
                problem = str(error)


async def _end_agents(telling: _Telling, places: HostPlaces, timeout_s: float) -> None:
    """Have the agents of this machine move to others, and wait for that."""
    if await _living(places):
        await telling.end_agents(timeout_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await _until_none_lives(places)


async def _until_none_lives(places: HostPlaces) -> None:
    while await _living(places):  # noqa: ASYNC110  they are processes of Ray's
        await asyncio.sleep(_POLL_S)


async def _living(places: HostPlaces) -> bool:
    """Whether a host of this machine is awake."""
    for path in (places.run_dir / DELIVERIES).glob("*"):
        try:
            _, writer = await connected_to(path, places.user())
        except OSError:
            continue
        writer.close()
        return True
    return False


def _door(options: DoorOptions, secret: str, places: HostPlaces) -> AbstractAsyncContextManager[Door]:
    """Return the door to the sockets of hosts."""

    async def find(asked: Mapping[str, Any]) -> Serve:
        match asked:
            case {"to": "host", "host": str(host)} if _HOST_ID.fullmatch(host):
                return await piped_to(places.run_dir / DELIVERIES / host, places.user())
            case _:
                raise InvalidInput(f"the caller wants to {asked.get('to')!r} {asked.get('host', '')!r}")

    return listening(options, secret, find, patience_s=PATIENCE_S)


@asynccontextmanager
async def _models(home: Home, documents: Documents, group: int | None) -> AsyncIterator[None]:
    """Pass calls of models on to the service's door while the context lasts."""
    tasks = BackgroundTasks()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            door = await asyncio.to_thread(published_door, documents)
            if door is None:
                raise FileNotFoundError(_NO_MODELS)
            await pipe((reader, writer), await through_door(door, "models"))
        except (ChronicleError, OSError, TimeoutError) as error:
            why = f"the model gateway, on the machine of the service, cannot be reached from here: {error}"
            writer.write(pack({"error": error_to_json(ModelError(why, "unavailable"))}))
        finally:
            writer.close()

    path = home.models_socket
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    let_group_connect(path, group)  # nobody can connect before it listens
    server = await asyncio.start_unix_server(
        lambda reader, writer: tasks.start_logged(tunnel(reader, writer), "models"), sock=listener, backlog=_BACKLOG
    )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        server.close()
        await tasks.close()
