"""The environment of an activation: the ports, and the choices that differ between a host and a simulation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from podium.turn.journal.snapshot_policy import MAX_TURNS
from podium.turn.telemetry import NO_METER, NO_TRACER, Meter, Tracer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
    from contextlib import AbstractContextManager

    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import Json, JsonObject
    from chronicle.clock import Clock
    from chronicle.ids import IdSource, MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import NewMessage
    from chronicle.workspace.port import Opened, TreeRef, Workspace
    from podium.address import Address
    from podium.blocking import BlockingRunner
    from podium.models.port import LLMMessage, LLMStreamChunk
    from podium.models.quality import QualityOfService
    from podium.turn.journal.ledger import Committer, LeaseWatch
    from podium.turn.stream import Frame

__all__ = [
    "Asker",
    "Environment",
    "ForkOpener",
    "Frames",
    "ModelCall",
    "Models",
    "Reader",
    "WorkspaceOpener",
    "WorkspaceRequest",
]


@dataclass(frozen=True, slots=True)
class WorkspaceRequest:
    """The workspace that an activation opens."""

    address: Address
    base: TreeRef | None
    epoch: int
    turn: int


if TYPE_CHECKING:
    WorkspaceOpener = Callable[[WorkspaceRequest], Awaitable[Opened]]
    ForkOpener = Callable[[WorkspaceRequest], AbstractContextManager[Workspace]]
    Reader = Callable[[Address, JsonObject], Awaitable[Json]]
    Frames = Callable[[Address, MessageId], AsyncGenerator[Sequence[Frame], None]]


class Asker(Protocol):
    """Asks other agents."""

    async def ask(
        self,
        asker: Address,
        receiver: Address,
        question: NewMessage,
        noticed: Callable[[Sequence[str]], None],
        admitted: Callable[[MessageId], None] = ...,
    ) -> tuple[str, Sequence[Frame]]:
        """Send a question at once, and wait until it is settled.

        Args:
            admitted: called with the question's id once it is in the inbox; several times, if the way there was lost.
            noticed: called with a circle of agents that wait for each other, the receiver first and last, if the
                receiver waits for the asker in another turn.
            question: under an idempotency key: one that was sent before is not sent again.

        Returns:
            the question's id in the inbox of the receiver, and its frames, the terminal one last.

        Raises:
            ChronicleError: the journal cannot be reached, or refuses the question.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call of a model, on behalf of an agent's turn."""

    address: Address
    turn: int
    profile: str
    """The name of a profile of the project."""
    messages: Sequence[LLMMessage]
    tools: Sequence[JsonObject] | None
    temperature: float | None
    max_output_tokens: int | None
    qos: QualityOfService
    traceparent: str | None
    """Of the turn."""


class Models(Protocol):
    """Makes calls of models."""

    def stream(self, call: ModelCall) -> AsyncGenerator[LLMStreamChunk, None]:
        """Make a call, and yield what the model says. Closing the iterator ends the call.

        Raises:
            ModelError: the call failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """The ports of an activation."""

    store: JournalStore
    blobs: BlobStore
    """Stores payloads that are too large for the journal, and contents of artifacts."""
    committer: Committer
    clock: Clock
    ids: IdSource
    open_workspace: WorkspaceOpener
    on_sent: Callable[[], None] = lambda: None
    """Called after a commit that sent messages to other agents, which are in the outbox, or that changed reminders."""
    run_blocking: BlockingRunner = asyncio.to_thread
    """Makes blocking calls of the workspace and the blob store."""
    run_store: BlockingRunner = asyncio.to_thread
    """Makes calls of the journal store, except commits, which the committer makes."""
    config: JsonObject = field(default_factory=dict)
    """The agent's configuration, the same for the whole activation."""
    known_types: Callable[[], Collection[str] | None] = lambda: None
    """Returns the agent types that a turn may send messages to; ``None`` for any. Cheap; called for each message."""
    leases: LeaseWatch | None = None
    """Asked before a message is handled and before a step runs; ``None`` where no other process acquires leases."""
    asker: Asker | None = None
    """Asks other agents; ``None`` where no service runs them."""
    frames: Frames | None = None
    """Yields the frames of a message of another agent as its turn makes them, until it is closed: again from the
    beginning of the current attempt after an interruption, and not necessarily all. ``None`` where nothing can."""
    read: Reader | None = None
    """Calls a read-only handler of another agent, which exists, and returns its result; ``None`` where nothing can."""
    open_fork: ForkOpener | None = None
    """Opens a second workspace on the base of an agent's open one, at a path and in a layer of its own, which go when
    the context ends. It blocks. ``None`` where nothing can."""
    models: Models | None = None
    """Calls models; ``None`` where nothing does."""
    meter: Meter = NO_METER
    """Takes the measurements of turns."""
    tracer: Tracer = NO_TRACER
    """Opens the spans of turns."""
    most_replayed_turns: int = MAX_TURNS
    """Turns after which a commit carries a snapshot; few in a simulation, so that short runs have snapshots."""
