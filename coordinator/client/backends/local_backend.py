"""The home on this machine: its stores are read and written here, and its running service does the rest.

No gateway takes part. A service is not started: `podium up` does that, and registers the agents' classes.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from chronicle.canonical import encode_input
from chronicle.errors import ChronicleError
from coordinator.access.caller import ANYONE
from coordinator.client.errors import ClientError, Unreachable, error_of_wire, no_content, not_a
from coordinator.home import Home
from coordinator.operations import objects
from coordinator.operations.agents import HomeAgents
from coordinator.operations.objects.result import Result
from podium.errors import PodiumError
from podium.tasks import BackgroundTasks
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from coordinator.client.backends.port import Chunks, Frames, Request, Wire
    from coordinator.operations.files import FileContent
    from coordinator.operations.fleet import Fleet, FleetLink
    from coordinator.operations.objects import Directory, Receipt, Symlink
    from coordinator.service.link import ServiceLink
    from coordinator.streams.message_streams import MessageStreams
    from coordinator.streams.position import Position
    from coordinator.telemetry.recorder import Series, Value
    from podium.address import Address

__all__ = ["LocalBackend"]

_R = TypeVar("_R", bound=Result)
_OPERATIONS: Final = "coordinator.operations"
_PIECE_BYTES: Final = 256 * 1024
_LOOK_S: Final = 0.2
"""Interval at which a tail looks for new events."""


class LocalBackend:
    """A `coordinator.client.backends.port.Backend` over the stores and the service of a home.

    What a call needs is imported and opened for the first one that needs it: a list of agents takes no service.

    Args:
        home: its directory.
        reconnect_s: time after the loss of the service at which retries end; by default that of the settings.
        link: the connection to the service, which its owner closes; a new one by default.
    """

    def __init__(self, home: Path, reconnect_s: float | None = None, link: FleetLink | None = None) -> None:
        self._home = Home(home)
        self._reconnect_s = reconnect_s
        self._link = link
        self._own_link: ServiceLink | None = None
        self._opened: HomeAgents | None = None
        self._ending = asyncio.Event()
        self._streams: asyncio.Future[MessageStreams] | None = None
        self._tasks = BackgroundTasks()
        self._keeper: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Close the stores and the connection to the service; streams that are open end."""
        self._ending.set()
        if self._keeper is not None:
            await self._keeper
        if self._own_link is not None:
            await self._own_link.__aexit__(None, None, None)
        if self._opened is not None:
            self._opened.close()

    async def client(self) -> Fleet:
        """Return a live client of the home's service; see `FleetLink`, which the operations take this for."""
        if self._link is None:
            from coordinator.service.link import ServiceLink  # noqa: PLC0415

            self._link = self._own_link = ServiceLink(self._home, start=False)
        return await self._link.client()

    async def call(self, request: Request[_R], agent: Address | None = None, **arguments: object) -> _R:
        """Call the operation of a request, and return its result."""
        given = {name: value for name, value in arguments.items() if value is not None}
        if isinstance(content := given.get("content"), bytes):
            given["content"] = _one(content)
        of = () if agent is None else (agent,)
        module, _, name = request.operation.rpartition(".")
        with _translated():
            agents = await self._agents()
            if not module:
                return cast("_R", await getattr(agents, name)(*of, **given))
            return cast("_R", await agents.read(getattr(import_module(f"{_OPERATIONS}.{module}"), name), *of, **given))

    async def metrics(self) -> dict[Series, Value]:
        """Return the metrics of the home."""
        with _translated():
            return await (await self._agents()).metrics()

    # -- messages -------------------------------------------------------------------------------------------------

    async def send(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Receipt:
        """Admit a message; return its receipt."""
        with _translated():
            encode_input(message)  # or what JSON cannot represent would be sent as something else
            agents = await self._agents()
            return await agents.send(
                agent,
                dict(message),
                idempotency_key=idempotency_key,
                when_busy=BusyPolicy(when_busy),
                caller=ANYONE.of_message,
            )

    async def submit(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Frames:
        """Admit a message and yield its frames, ``accepted`` first."""
        receipt = await self.send(agent, message, idempotency_key, when_busy)
        accepted = _accepted(receipt)
        with _translated():
            async for each in self._frames(agent, receipt.message_id, None, accepted):
                yield each

    async def follow(self, agent: Address, message_id: str, after: str) -> Frames:
        """Yield the frames of a message after a position; from the beginning if that is empty."""
        from coordinator.streams.position import Position  # noqa: PLC0415

        with _translated():
            position = Position.parse(after, message_id) if after else None
            accepted = _accepted(await (await self._agents()).receipt(agent, message_id))
            async for each in self._frames(agent, message_id, position, accepted):
                yield each

    # -- history --------------------------------------------------------------------------------------------------

    async def tail(self, agent: Address, after: int) -> AsyncGenerator[Wire]:
        """Yield the recorded events after a ``seq``, and new ones as they are recorded, without an end."""
        with _translated():
            agents = await self._agents()
            while True:
                if await agents.version(agent) > after:
                    for event in (await agents.events(agent, after_seq=after)).items:
                        after = event.seq
                        yield event.as_json()
                else:
                    await asyncio.sleep(_LOOK_S)

    async def export(self, agent: Address) -> Chunks:
        """Yield the archive of an agent."""
        with _translated():
            async with (await self._agents()).exported(agent) as found:
                async for piece in _pieces(await asyncio.to_thread(found.path.open, "rb")):
                    yield piece

    # -- files and artifacts --------------------------------------------------------------------------------------

    async def read_file(self, agent: Address, path: str, turn: int | None, iteration: int | None) -> Chunks:
        """Yield the content of a file."""
        with _translated():
            found = await self._at(agent, path, turn, iteration)
            if isinstance(found, Result):
                raise no_content(found.as_json())
            async for piece in _pieces(await asyncio.to_thread(found.open)):
                yield piece

    async def directory(self, agent: Address, path: str, turn: int | None) -> Directory:
        """Return a directory of the workspace."""
        with _translated():
            found = await self._at(agent, path, turn)
        if not isinstance(found, objects.Directory):
            raise not_a(path, "directory")
        return found

    async def read_artifact(self, agent: Address, artifact_id: str) -> Chunks:
        """Yield the content of an artifact."""
        from coordinator.operations.artifacts import artifact_of_agent  # noqa: PLC0415

        with _translated():
            agents = await self._agents()
            found = await agents.read(artifact_of_agent, agent, artifact_id)
            async for piece in _pieces(await asyncio.to_thread(agents.open_artifact, found)):
                yield piece

    # -- inside ---------------------------------------------------------------------------------------------------

    async def _agents(self) -> HomeAgents:
        if self._opened is None:
            self._opened = HomeAgents(self._home.open(), self)
        return self._opened

    async def _at(
        self, agent: Address, path: str, turn: int | None, iteration: int | None = None
    ) -> FileContent | Directory | Symlink:
        from coordinator.operations.files import find_file  # noqa: PLC0415

        return await (await self._agents()).read(find_file, agent, path, turn, iteration)

    async def _streams_of_messages(self) -> MessageStreams:
        """Open the streams at their first use, in a task that closes them where it opened them."""
        if self._streams is None:
            lost_s = self._lost_s()
            self._streams = asyncio.get_running_loop().create_future()
            self._keeper = self._tasks.start(self._keep(self._streams, lost_s), "local streams")
        return await asyncio.shield(self._streams)

    async def _keep(self, opened: asyncio.Future[MessageStreams], lost_s: float) -> None:
        from coordinator.streams.message_streams import MessageStreams  # noqa: PLC0415

        async with MessageStreams(self.client, lost_s=lost_s) as streams:
            opened.set_result(streams)
            await self._ending.wait()

    def _lost_s(self) -> float:
        if self._reconnect_s is None:
            from coordinator.settings import read_settings  # noqa: PLC0415

            self._reconnect_s = read_settings().reconnect_s
        return self._reconnect_s

    async def _frames(
        self, agent: Address, message_id: str, position: Position | None, accepted: Wire
    ) -> AsyncGenerator[tuple[str, Wire]]:
        if position is not None and position.is_end:
            return
        streams = await self._streams_of_messages()
        with streams.open(agent, message_id, position, accepted) as reader:
            while batch := await reader.next():
                for streamed in batch:
                    yield streamed.position or "", streamed.frame
            if not reader.is_complete:
                raise Unreachable(
                    f"the service of {self._home.path} was lost; retries ended after {self._lost_s():g} s",
                    message_id=message_id,
                )


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the errors of a home as those of the client, by the table that HTTP has."""
    try:
        yield
    except ClientError:
        raise
    except (PodiumError, ChronicleError) as error:
        from coordinator.operations.problems import Problem, more_of, problem_of, type_of  # noqa: PLC0415

        problem = problem_of(error) or Problem(500, "internal_error")
        told = {
            "message": str(error),
            "type": type_of(problem.status),
            "code": problem.code,
            "param": getattr(error, "param", None),
            **more_of(error),
        }
        raise error_of_wire(problem.status, told, retry_after_s=problem.retry_after_s) from error


def _accepted(receipt: Receipt) -> Wire:
    return {
        "type": "accepted",
        "message_id": receipt.message_id,
        "position": receipt.position,
        "before": receipt.before,
    }


async def _pieces(file: BinaryIO) -> AsyncGenerator[bytes]:
    try:
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece
    finally:
        await asyncio.to_thread(file.close)


async def _one(content: bytes) -> AsyncGenerator[bytes]:
    yield content
