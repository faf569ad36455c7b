"""What an activation is given to work with: the ports, and the choices that differ between a host and a simulation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium.turn.snapshot_policy import MOST_TURNS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.blobs.port import BlobStore
    from chronicle.clock import Clock
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from chronicle.workspace.port import Opened, TreeRef
    from podium.address import Address
    from podium.blocking import BlockingRunner
    from podium.turn.ledger import Committer

__all__ = ["Environment", "WorkspaceOpener", "WorkspaceRequest"]


@dataclass(frozen=True, slots=True)
class WorkspaceRequest:
    """Which workspace an activation wants opened."""

    address: Address
    base: TreeRef | None
    epoch: int
    turn: int


if TYPE_CHECKING:
    WorkspaceOpener = Callable[[WorkspaceRequest], Awaitable[Opened]]


@dataclass(frozen=True, slots=True)
class Environment:
    """What an activation is given to work with."""

    store: JournalStore
    blobs: BlobStore
    """Where payloads too large for the journal go."""
    committer: Committer
    clock: Clock
    ids: IdSource
    open_workspace: WorkspaceOpener
    on_sent: Callable[[], None] = lambda: None
    """Told after a commit that sent messages to other agents: they are in the outbox, to be delivered."""
    run_blocking: BlockingRunner = asyncio.to_thread
    """Makes blocking calls of the workspace and the blob store."""
    run_store: BlockingRunner = asyncio.to_thread
    """Makes calls of the journal's store but commits, which are the committer's."""
    make_room: Callable[[], bool] = lambda: False
    """Frees space that was put by if the disk is full; says whether there may be room now. Callable from any thread."""
    put_by: Callable[[], None] = lambda: None
    """Puts space by again, if there is some. Callable from any thread."""
    most_replayed_turns: int = MOST_TURNS
    """Turns after which a snapshot is kept; few in a simulation, so that short ones have snapshots."""
