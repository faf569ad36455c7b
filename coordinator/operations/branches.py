"""Forks, rewinds, deletion and verification of agents, as JSON objects."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.host.node.layers import remove_workspace
from coordinator.operations import objects
from coordinator.verification import Verifier
from podium.address import Address
from podium.agent_record import find_session
from podium.history.branching import fork_agent, plan_rewind, rewind_agent
from podium.history.delete import delete_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from coordinator.home import Home
    from coordinator.verification import SessionCheck
    from podium.events import Part
    from podium.history.branching import Rewind

__all__ = [
    "Rewinding",
    "delete",
    "fork",
    "rewind",
    "rewound_by_service",
    "rewound_object",
    "verification_object",
    "verify",
]


@dataclass(frozen=True, slots=True)
class Rewinding:
    """A rewind that was made."""

    plan: Rewind
    """Its changes."""
    made: int | None
    """The new turn; ``None`` if nothing had to change."""


def fork(
    store: JournalStore, source: Address, turn: int | None, key: str, ids: IdSource, now_ms: int
) -> tuple[objects.Forked, str]:
    """Make an agent of the same type that continues another one after a turn, the last one if ``None``.

    Returns:
        the new agent, and the branch that owns the event after which it continues.

    Raises:
        InvalidAddress: the key cannot be used.
        UnknownAgent: there is no such source, or it never started.
        UnknownMoment: the source has not committed that turn.
        AgentExists: there is an agent with that key.
    """
    target = Address(source.agent_type, key, source.tenant)
    made = fork_agent(store, source, turn, target, ids, now_ms)
    forked = objects.Forked(
        agent=target.name,
        turn=made.turn,
        version=made.head.seq,
        source=objects.ForkPoint(agent=source.name, turn=made.turn, seq=made.seq),
    )
    return forked, made.parent_branch_id


def rewind(
    store: JournalStore,
    blobs: BlobStore,
    address: Address,
    turn: int,
    only: Collection[Part] | None,
    ids: IdSource,
    now_ms: int,
) -> Rewinding:
    """Return a sleeping agent to a turn, as a turn of its own.

    Args:
        only: the parts to restore; all if ``None``.

    Raises:
        AgentAwake: it is awake: its service rewinds it, and `rewound_by_service` tells what that did.
        UnknownAgent: there is no such agent, or it never started.
        UnknownMoment: it has not committed that turn.
    """
    plan, head = rewind_agent(store, blobs, address, turn, only, ids, now_ms)
    return Rewinding(plan, head.turn if head is not None else None)


def rewound_by_service(
    store: JournalStore,
    blobs: BlobReader,
    address: Address,
    turn: int,
    only: Collection[Part] | None,
    done: tuple[int, int | None],
) -> Rewinding:
    """Return what the service did to an agent that was awake.

    Args:
        done: the turn before the rewind, and the new one, as the service answered.
    """
    before, made = done
    return Rewinding(plan_rewind(store, blobs, address, turn, only, at=before), made)


def rewound_object(plan: Rewind, made: int | None) -> objects.Rewound:
    """Return a rewind as a JSON object.

    Args:
        plan: what it changed.
        made: the new turn; ``None`` if nothing had to change.
    """
    return objects.Rewound(
        agent=plan.now.address.name,
        before=plan.now.turn,
        to=plan.then.turn,
        only=tuple(plan.parts),
        turn=made,
    )


def delete(
    home: Home,
    store: JournalStore,
    blobs: BlobStore,
    address: Address,
    ids: IdSource,
    now_ms: int,
    *,
    detach: bool,
    forget: Callable[[], None] = lambda: None,
) -> objects.Deleted:
    """Delete a sleeping agent permanently: events, state, files, messages, and what nodes keep of it.

    Args:
        forget: has nodes of other machines remove what they keep of it.
        detach: detach its forks first; they lose the history that they inherited.

    Raises:
        UnknownAgent: there is none.
        AgentInUse: forks read its history.
        AgentAwake: it is awake, or a fork to be detached is.
    """

    def remove() -> None:
        for node in home.path.glob("nodes/*"):
            remove_workspace(node / "layers", home.logs, address.workspace_id)
        forget()

    deleted = delete_agent(store, blobs, address, ids, now_ms, detach=detach, before_delete=remove)
    return objects.Deleted(agent=address.name, events=deleted.tombstone.events, detached=tuple(deleted.detached))


def verify(home: Home, store: JournalStore, address: Address) -> objects.Verification:
    """Check an agent's stored data against its hashes, as it is on the disk or at its URL, past all caches.

    Raises:
        UnknownAgent: there is none.
        Unavailable: a store could not be read.
    """
    session = find_session(store, address)
    with closing(home.blobs(kept=False)) as blobs:
        return verification_object(Verifier(store, blobs).check(session))


def verification_object(check: SessionCheck) -> objects.Verification:
    """Return the result of a check as a JSON object."""
    return objects.Verification(
        agent=check.name,
        ok=check.problem is None,
        events=check.events,
        blobs=check.blobs,
        problem=check.problem,
    )
