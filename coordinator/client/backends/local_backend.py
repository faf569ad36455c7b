"""The home on this machine: its stores are read and written here, and its running service does the rest.

No gateway takes part. A service is not started: `podium up` does that, and registers the agents' classes.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.canonical import encode_input
from chronicle.errors import ChronicleError
from coordinator.client.errors import ClientError, Unreachable, error_of_wire, not_a
from coordinator.home import Home
from coordinator.operations.agents import HomeAgents
from coordinator.streams.position import Position
from podium.address import DEFAULT_TENANT
from podium.errors import PodiumError
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from coordinator.client.backends.port import Chunks, Frames, Wire
    from coordinator.operations.fleet import Fleet, FleetLink
    from coordinator.service.link import ServiceLink
    from coordinator.streams.message_streams import MessageStreams
    from coordinator.telemetry.recorder import Series, Value
    from podium.address import Address
    from podium.events import Part

__all__ = ["LocalBackend"]

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

    async def agents(
        self, agent_type: str | None, tenant: str | None, limit: int, cursor: str | None, *, awake: bool
    ) -> Wire:
        """Return a page of the home's agents, by address."""
        with _translated():
            agents = await self._agents()
            return _wire(await agents.agents(agent_type, limit, cursor, awake=awake, tenant=tenant or DEFAULT_TENANT))

    async def agent(self, agent: Address) -> Wire:
        """Return one agent."""
        with _translated():
            return _wire(await (await self._agents()).agent(agent))

    async def why(self, agent: Address) -> Wire:
        """Return what an agent waits for."""
        with _translated():
            return _wire(await (await self._agents()).why(agent))

    async def nodes(self) -> Wire:
        """Return the nodes of the home's service."""
        with _translated():
            return _wire(await (await self._agents()).nodes())

    async def delete(self, agent: Address, *, detach: bool) -> Wire:
        """Delete an agent."""
        with _translated():
            return _wire(await (await self._agents()).delete(agent, detach=detach))

    async def metrics(self) -> dict[Series, Value]:
        """Return the metrics of the home."""
        with _translated():
            return await (await self._agents()).metrics()

    # -- messages -------------------------------------------------------------------------------------------------

    async def send(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Wire:
        """Admit a message; return its receipt."""
        with _translated():
            encode_input(message)  # or what JSON cannot represent would be sent as something else
            agents = await self._agents()
            return _wire(
                await agents.send(
                    agent, dict(message), idempotency_key=idempotency_key, when_busy=BusyPolicy(when_busy)
                )
            )

    async def submit(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Frames:
        """Admit a message and yield its frames, ``accepted`` first."""
        receipt = await self.send(agent, message, idempotency_key, when_busy)
        accepted = _accepted(receipt)
        with _translated():
            async for each in self._frames(agent, receipt["message_id"], None, accepted):
                yield each

    async def follow(self, agent: Address, message_id: str, after: str) -> Frames:
        """Yield the frames of a message after a position; from the beginning if that is empty."""
        with _translated():
            position = Position.parse(after, message_id) if after else None
            accepted = _accepted(await (await self._agents()).receipt(agent, message_id))
            async for each in self._frames(agent, message_id, position, accepted):
                yield each

    async def message(self, agent: Address, message_id: str) -> Wire:
        """Return a message and its outcome."""
        with _translated():
            return _wire(await (await self._agents()).message(agent, message_id))

    async def cancel(self, agent: Address, message_id: str) -> None:
        """Cancel a pending, running or parked message."""
        with _translated():
            await (await self._agents()).cancel(agent, message_id)

    async def retry(self, agent: Address, message_id: str, *, drop_steps: bool) -> None:
        """Make a parked message pending, and drop its steps if so asked."""
        with _translated():
            await (await self._agents()).retry(agent, message_id, drop_steps=drop_steps)

    async def drop(self, agent: Address, message_id: str) -> None:
        """Remove a pending or parked message."""
        with _translated():
            await (await self._agents()).drop(agent, message_id)

    async def inbox(self, agent: Address, limit: int, cursor: str | None) -> Wire:
        """Return a page of the pending and parked messages, by position."""
        with _translated():
            return _wire(await (await self._agents()).inbox(agent, limit, cursor))

    async def reminders(self, agent: Address, limit: int, cursor: str | None) -> Wire:
        """Return a page of the reminders, by name."""
        with _translated():
            return _wire(await (await self._agents()).reminders(agent, limit, cursor))

    async def cancel_reminder(self, agent: Address, name: str) -> None:
        """Cancel a reminder."""
        with _translated():
            await (await self._agents()).cancel_reminder(agent, name)

    # -- history --------------------------------------------------------------------------------------------------

    async def events(self, agent: Address, after: int, types: Sequence[str], cursor: str | None) -> Wire:
        """Return a page of the recorded events after a ``seq``, oldest first."""
        with _translated():
            return _wire(await (await self._agents()).events(agent, after_seq=after, types=types, cursor=cursor))

    async def tail(self, agent: Address, after: int) -> AsyncGenerator[Wire]:
        """Yield the recorded events after a ``seq``, and new ones as they are recorded, without an end."""
        while True:
            if (await self.agent(agent))["version"] > after:
                for event in (await self.events(agent, after, (), None))["items"]:
                    after = event["seq"]
                    yield event
            else:
                await asyncio.sleep(_LOOK_S)

    async def state(self, agent: Address, at: int | None) -> Wire:
        """Return the state at the end of a turn."""
        with _translated():
            return _wire(await (await self._agents()).state(agent, at))

    async def difference(self, agent: Address, before: int | None, after: int | None, other: Address | None) -> Wire:
        """Return the differences between two turns, of an agent or of two."""
        with _translated():
            return _wire(await (await self._agents()).diff((agent, before), (other or agent, after)))

    async def fold(self, agent: Address, keep_turns: int | None, keep_days: float | None, *, dry_run: bool) -> Wire:
        """Drop the older history of an agent."""
        with _translated():
            agents = await self._agents()
            return _wire(await agents.fold(agent, keep_turns=keep_turns, keep_days=keep_days, dry_run=dry_run))

    async def erase(self, agent: Address, events: Sequence[str]) -> Wire:
        """Erase the content of events of an agent."""
        with _translated():
            return _wire(await (await self._agents()).erase(agent, events))

    async def export(self, agent: Address) -> Chunks:
        """Yield the archive of an agent."""
        with _translated():
            async with (await self._agents()).exported(agent) as found:
                async for piece in _pieces(await asyncio.to_thread(found.path.open, "rb")):
                    yield piece

    async def import_archive(self, agent: Address, content: bytes | AsyncIterator[bytes]) -> Wire:
        """Create an agent from an archive."""
        pieces = _one(content) if isinstance(content, bytes) else content
        with _translated():
            return _wire(await (await self._agents()).import_agent(agent, pieces))

    async def fork(self, agent: Address, key: str, at: int | None) -> Wire:
        """Make an agent that continues another one."""
        with _translated():
            return _wire(await (await self._agents()).fork(agent, key, at))

    async def rewind(self, agent: Address, turn: int, only: Sequence[str]) -> Wire:
        """Return an agent to an earlier turn."""
        with _translated():
            parts = cast("Sequence[Part]", only)
            return _wire(await (await self._agents()).rewind(agent, turn, parts or None))

    async def passivate(self, agent: Address) -> None:
        """Put an agent to sleep after its running turn."""
        with _translated():
            await (await self._agents()).passivate(agent)

    async def verify(self, agent: Address) -> Wire:
        """Check an agent's stored data."""
        with _translated():
            return _wire(await (await self._agents()).verify(agent))

    # -- files and artifacts --------------------------------------------------------------------------------------

    async def read_file(self, agent: Address, path: str, turn: int | None, iteration: int | None) -> Chunks:
        """Yield the content of a file."""
        with _translated():
            found = await (await self._agents()).file(agent, path, turn, iteration)
            if isinstance(found, dict):
                raise not_a(path, "file")
            async for piece in _pieces(await asyncio.to_thread(found.open)):
                yield piece

    async def directory(self, agent: Address, path: str, turn: int | None) -> Wire:
        """Return a directory of the workspace."""
        with _translated():
            found = await (await self._agents()).file(agent, path, turn)
        if not isinstance(found, dict) or found["type"] != "directory":
            raise not_a(path, "directory")
        return _wire(found)

    async def file_history(self, agent: Address, path: str, turn: int | None, limit: int, cursor: str | None) -> Wire:
        """Return a page of the versions of a path, oldest first."""
        with _translated():
            return _wire(await (await self._agents()).file_history(agent, path, turn, limit, cursor))

    async def upload(self, agent: Address, path: str, content: bytes | AsyncIterator[bytes]) -> Wire:
        """Write a file, as a turn of its own."""
        pieces = _one(content) if isinstance(content, bytes) else content
        with _translated():
            return _wire(await (await self._agents()).put_file(agent, path, pieces))

    async def delete_file(self, agent: Address, path: str) -> Wire:
        """Delete a file, as a turn of its own."""
        with _translated():
            return _wire(await (await self._agents()).delete_file(agent, path))

    async def artifacts(self, agent: Address, turn: int | None, limit: int, cursor: str | None) -> Wire:
        """Return a page of the artifacts, oldest first."""
        with _translated():
            return _wire(await (await self._agents()).artifacts(agent, turn, limit, cursor))

    async def read_artifact(self, agent: Address, artifact_id: str) -> Chunks:
        """Yield the content of an artifact."""
        with _translated():
            agents = await self._agents()
            found = await agents.artifact(agent, artifact_id)
            async for piece in _pieces(await asyncio.to_thread(agents.open_artifact, found)):
                yield piece

    async def find_artifact(self, artifact_id: str) -> Wire:
        """Return an artifact by its id, and an agent that has it."""
        with _translated():
            return _wire(await (await self._agents()).find_artifact(artifact_id))

    # -- inside ---------------------------------------------------------------------------------------------------

    async def _agents(self) -> HomeAgents:
        if self._opened is None:
            self._opened = HomeAgents(self._home.open(), self)
        return self._opened

    async def _streams_of_messages(self) -> MessageStreams:
        """Open the streams at their first use, in a task that closes them where it opened them."""
        if self._streams is None:
            lost_s = self._lost_s()
            self._streams = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.get_running_loop().create_task(
                self._keep(self._streams, lost_s), name="local streams"
            )
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
        from coordinator.operations.problems import TYPES, Problem, more_of, problem_of  # noqa: PLC0415

        problem = problem_of(error) or Problem(500, "internal_error")
        told = {
            "message": str(error),
            "type": TYPES[problem.status],
            "code": problem.code,
            "param": getattr(error, "param", None),
            **more_of(error),
        }
        raise error_of_wire(problem.status, told, retry_after_s=problem.retry_after_s) from error


def _accepted(receipt: Mapping[str, Any]) -> Wire:
    return {"type": "accepted", **{key: receipt[key] for key in ("message_id", "position", "before")}}


def _wire(value: Mapping[str, Any]) -> Wire:
    return cast("Wire", value)


async def _pieces(file: BinaryIO) -> AsyncGenerator[bytes]:
    try:
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece
    finally:
        await asyncio.to_thread(file.close)


async def _one(content: bytes) -> AsyncGenerator[bytes]:
    yield content
