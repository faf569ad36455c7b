"""The port of the client: what it needs of a home, wherever that is.

Arguments and results are those of the HTTP interface: results are its JSON objects (`coordinator.operations.objects`).
Implementations raise `coordinator.client.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from coordinator.telemetry.recorder import Series, Value
    from podium.address import Address

__all__ = ["Backend", "Chunks", "Frames", "Wire"]

Wire: TypeAlias = dict[str, Any]
"""A JSON object."""
Frames: TypeAlias = AsyncGenerator[tuple[str, Wire]]
"""A message's frames, each with the position after it, empty if it has none; ``agent_end`` is the last one. Losses of
the connection are hidden while they are shorter than the client's time limit."""
Chunks: TypeAlias = AsyncGenerator[bytes]
"""The bytes of a file, in pieces of any size."""


class Backend(Protocol):
    """A home's operations. A reader that leaves an async generator early closes it.

    A page of a list is ``{items, next_cursor}``, most have ``remaining``; the cursor is ``None`` at the end.
    """

    async def close(self) -> None:
        """Close all connections; streams that are open end."""

    async def agents(
        self, agent_type: str | None, tenant: str | None, limit: int, cursor: str | None, *, awake: bool
    ) -> Wire:
        """Return a page of the home's agents, by address."""

    async def agent(self, agent: Address) -> Wire:
        """Return one agent."""

    async def why(self, agent: Address) -> Wire:
        """Return what an agent waits for."""

    async def nodes(self) -> Wire:
        """Return the nodes of the home's service."""

    async def delete(self, agent: Address, *, detach: bool) -> Wire:
        """Delete an agent."""

    async def metrics(self) -> dict[Series, Value]:
        """Return the metrics of the home."""

    # -- messages -------------------------------------------------------------------------------------------------

    async def send(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Wire:
        """Admit a message; return its receipt."""

    def submit(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Frames:
        """Admit a message and yield its frames, ``accepted`` first."""

    def follow(self, agent: Address, message_id: str, after: str) -> Frames:
        """Yield the frames of a message after a position; from the beginning if that is empty."""

    async def message(self, agent: Address, message_id: str) -> Wire:
        """Return a message and its outcome."""

    async def cancel(self, agent: Address, message_id: str) -> None:
        """Cancel a pending, running or parked message."""

    async def retry(self, agent: Address, message_id: str, *, drop_steps: bool) -> None:
        """Make a parked message pending, and drop its steps if so asked."""

    async def drop(self, agent: Address, message_id: str) -> None:
        """Remove a pending or parked message."""

    async def inbox(self, agent: Address, limit: int, cursor: str | None) -> Wire:
        """Return a page of the pending and parked messages, by position."""

    async def reminders(self, agent: Address, limit: int, cursor: str | None) -> Wire:
        """Return a page of the reminders, by name."""

    async def cancel_reminder(self, agent: Address, name: str) -> None:
        """Cancel a reminder."""

    # -- history --------------------------------------------------------------------------------------------------

    async def events(self, agent: Address, after: int, types: Sequence[str], cursor: str | None) -> Wire:
        """Return a page of the recorded events after a ``seq``, oldest first."""

    def tail(self, agent: Address, after: int) -> AsyncGenerator[Wire]:
        """Yield the recorded events after a ``seq``, and new ones as they are recorded, without an end."""

    async def state(self, agent: Address, at: int | None) -> Wire:
        """Return the state at the end of a turn."""

    async def difference(self, agent: Address, before: int | None, after: int | None, other: Address | None) -> Wire:
        """Return the differences between two turns, of an agent or of two."""

    async def fork(self, agent: Address, key: str, at: int | None) -> Wire:
        """Make an agent that continues another one."""

    async def rewind(self, agent: Address, turn: int, only: Sequence[str]) -> Wire:
        """Return an agent to an earlier turn."""

    async def passivate(self, agent: Address) -> None:
        """Put an agent to sleep after its running turn."""

    async def verify(self, agent: Address) -> Wire:
        """Check an agent's stored data."""

    async def fold(self, agent: Address, keep_turns: int | None, keep_days: float | None, *, dry_run: bool) -> Wire:
        """Drop the older history of an agent."""

    async def erase(self, agent: Address, events: Sequence[str]) -> Wire:
        """Erase the content of events of an agent."""

    def export(self, agent: Address) -> Chunks:
        """Yield the archive of an agent."""

    async def import_archive(self, agent: Address, content: bytes | AsyncIterator[bytes]) -> Wire:
        """Create an agent from an archive."""

    # -- files and artifacts --------------------------------------------------------------------------------------

    def read_file(self, agent: Address, path: str, turn: int | None, iteration: int | None) -> Chunks:
        """Yield the content of a file."""

    async def directory(self, agent: Address, path: str, turn: int | None) -> Wire:
        """Return a directory of the workspace."""

    async def file_history(self, agent: Address, path: str, turn: int | None, limit: int, cursor: str | None) -> Wire:
        """Return a page of the versions of a path, oldest first."""

    async def upload(self, agent: Address, path: str, content: bytes | AsyncIterator[bytes]) -> Wire:
        """Write a file, as a turn of its own."""

    async def delete_file(self, agent: Address, path: str) -> Wire:
        """Delete a file, as a turn of its own."""

    async def artifacts(self, agent: Address, turn: int | None, limit: int, cursor: str | None) -> Wire:
        """Return a page of the artifacts, oldest first."""

    def read_artifact(self, agent: Address, artifact_id: str) -> Chunks:
        """Yield the content of an artifact."""

    async def find_artifact(self, artifact_id: str) -> Wire:
        """Return an artifact by its id, and an agent that has it."""
