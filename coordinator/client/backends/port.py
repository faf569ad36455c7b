"""The port of the client: what it needs of a home, wherever that is.

Most operations are one request: a row, `Request`, says how a gateway is asked for it, and which operation of a home it
is. So a backend has one method for all of them, and methods of their own for streams and for bytes. Implementations
raise `coordinator.client.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coordinator.operations.objects import Directory, Receipt
    from coordinator.operations.objects.result import Result
    from coordinator.telemetry.recorder import Series, Value
    from podium.address import Address

__all__ = ["Backend", "Chunks", "Frames", "Request", "Wire"]

_R = TypeVar("_R", bound="Result")
Wire: TypeAlias = dict[str, Any]
"""A JSON object."""
Frames: TypeAlias = AsyncGenerator[tuple[str, Wire]]
"""A message's frames, each with the position after it, empty if it has none; ``agent_end`` is the last one. Losses of
the connection are hidden while they are shorter than the client's time limit."""
Chunks: TypeAlias = AsyncGenerator[bytes]
"""The bytes of a file, in pieces of any size."""


@dataclass(frozen=True, slots=True)
class Request(Generic[_R]):
    """A row of the client's table: one operation."""

    method: str
    """Of HTTP. A ``GET`` is repeated after a lost connection; its arguments are a query, those of a ``POST`` a body."""
    path: str
    """Below the agent's, or from the API's root if it begins with ``/``; names in braces are arguments."""
    operation: str
    """The method of `coordinator.operations.agents.HomeAgents`; with a dot the function, in a module of
    `coordinator.operations`, that reads the stores."""
    result: Callable[[], type[_R]]
    """Returns the result's type, which is imported for it."""
    names: Mapping[str, str] = field(default_factory=dict)
    """HTTP's names of arguments that have other names in the operation."""


class Backend(Protocol):
    """A home's operations. A reader that leaves an async generator early closes it."""

    async def close(self) -> None:
        """Close all connections; streams that are open end."""

    async def call(self, request: Request[_R], agent: Address | None = None, **arguments: object) -> _R:
        """Make a request, and return its result.

        Args:
            agent: whose operation it is, if it is one of an agent.
            arguments: of the operation; those that are ``None`` have its defaults. ``content`` is bytes, whole or in
                pieces.
        """

    async def metrics(self) -> dict[Series, Value]:
        """Return the metrics of the home."""

    async def send(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Receipt:
        """Admit a message; return its receipt."""

    def submit(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Frames:
        """Admit a message and yield its frames, ``accepted`` first."""

    def follow(self, agent: Address, message_id: str, after: str) -> Frames:
        """Yield the frames of a message after a position; from the beginning if that is empty."""

    def tail(self, agent: Address, after: int) -> AsyncGenerator[Wire]:
        """Yield the recorded events after a ``seq``, and new ones as they are recorded, without an end."""

    async def directory(self, agent: Address, path: str, turn: int | None) -> Directory:
        """Return a directory of the workspace."""

    def read_file(self, agent: Address, path: str, turn: int | None, iteration: int | None) -> Chunks:
        """Yield the content of a file."""

    def read_artifact(self, agent: Address, artifact_id: str) -> Chunks:
        """Yield the content of an artifact."""

    def export(self, agent: Address) -> Chunks:
        """Yield the archive of an agent."""
