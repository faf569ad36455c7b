"""Deletion of agents, with optional detachment of their forks.

Deletion leaves the store's tombstone. Blobs are removed by the next gc (:mod:`podium.history.reachability`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chronicle.errors import BranchInUse, LeaseHeld
from chronicle.journal.payloads import seal_durably
from chronicle.journal.records import Commit, Draft
from podium.address import Address, label
from podium.agent_record import find_session, read_agent
from podium.errors import AgentInUse
from podium.events import AGENT_DETACHED
from podium.history.archive_import import HOLDER_PREFIX
from podium.history.branching import agent_awake, forks_of, rolled_back_trees, sleeping_lease
from podium.history.fold import full_state_payload

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.blobs.port import BlobStore
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.sessions import SessionRecords
    from chronicle.journal.records import Session, Tombstone

__all__ = ["Deleted", "delete_agent", "detach_agent"]


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result of a deletion."""

    tombstone: Tombstone
    detached: tuple[str, ...]
    """Addresses of the forks that were detached."""


def delete_agent(
    store: JournalStore,
    blobs: BlobStore,
    address: Address,
    ids: IdSource,
    now_ms: int,
    *,
    detach: bool = False,
    before_delete: Callable[[], None] | None = None,
) -> Deleted:
    """Delete a sleeping agent, with its events, snapshots and inbox.

    Args:
        blobs: where large payloads are.
        detach: detach forks that read its history first; they lose their inherited history.
        before_delete: called after all checks; removes the agent's data elsewhere.

    Raises:
        UnknownAgent: there is none.
        AgentInUse: forks read its history; nothing was changed.
        AgentAwake: it is awake, or a fork to be detached is. Forks before that one are detached.
    """
    session = find_session(store, address)
    with sleeping_lease(store, session, now_ms):
        forks = forks_of(store, session)
    if forks and not detach:
        names = tuple(label(fork) for fork in forks)
        raise AgentInUse(
            f"{address} is read by its forks {', '.join(names)}; detach them, which drops the history that they "
            "share, or delete them first",
            names,
            str(address),
        )
    detached: list[str] = []
    for fork in forks:
        _detach_tree(store, blobs, fork, ids, now_ms, detached)
    parents = _holders(store, session)
    if before_delete is not None:
        before_delete()
    try:
        tombstone = store.delete_session(session.session_id, now_ms)
    except LeaseHeld as error:
        raise agent_awake(label(session), "was woken at this moment") from error
    except BranchInUse as error:
        raise AgentInUse(f"{address} was forked at this moment; look at the fork and try again", ()) from error
    _drop_holders(store, parents, now_ms)
    return Deleted(tombstone, tuple(detached))


def detach_agent(store: JournalStore, blobs: BlobStore, session: Session, ids: IdSource, now_ms: int) -> None:
    """Detach a sleeping fork from its parent: append a turn with its whole state, and drop the events before it.

    Raises:
        AgentAwake: it is awake; nothing was changed.
        BranchInUse: forks of its own read the events to be dropped. The turn was written.
    """
    with sleeping_lease(store, session, now_ms) as lease:
        record = read_agent(store, blobs, Address.of(session))
        payload = full_state_payload(record, rolled_back_trees(store, blobs, record), lease.epoch)
        draft = Draft(ids.event(now_ms), AGENT_DETACHED, payload, record.head.turn + 1, now_ms)
        events = seal_durably(blobs, record.head, [draft])
        head = store.commit(Commit(session.session_id, record.head, events, lease.epoch))
        store.fold(head.branch_id, head.seq, now_ms)


def _detach_tree(
    store: JournalStore, blobs: BlobStore, fork: Session, ids: IdSource, now_ms: int, detached: list[str]
) -> None:
    """Detach the forks of a fork, which read through it, and then the fork."""
    for deeper in forks_of(store, fork):
        _detach_tree(store, blobs, deeper, ids, now_ms, detached)
    detach_agent(store, blobs, fork, ids, now_ms)
    detached.append(label(fork))


def _holders(store: JournalStore, session: Session) -> list[Session]:
    """Return the sessions, nearest first, that only hold the inherited history of an imported agent."""
    by_id = {other.session_id: other for other in store.sessions(HOLDER_PREFIX)}
    found = []
    branch = store.branch(session.main_branch_id)
    while branch.parent_branch_id is not None and not branch.folded_seq:
        branch = store.branch(branch.parent_branch_id)
        if branch.session_id in by_id:
            found.append(by_id[branch.session_id])
    return found


def _drop_holders(store: SessionRecords, holders: list[Session], now_ms: int) -> None:
    for holder in holders:
        try:
            store.delete_session(holder.session_id, now_ms)
        except BranchInUse:
            return
