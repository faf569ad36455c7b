"""Branches of agents: forking one at any turn, and taking one back to an earlier turn.

Both only append. A fork is an agent of its own whose branch continues another one's; it costs the same whatever the
length of the history and the size of the state and files, and writes nothing to what it continues, which may be
running meanwhile. Going back is a turn like any other, so it can be undone by going to a later turn.

Use cases over the ports; time and ids are arguments. docs/internals/branches.md has the order of writes and what a
crash leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chronicle.errors import Conflict, StaleEpoch
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft
from podium.errors import AgentExists
from podium.events import AGENT_FORKED
from podium.record import find_session, turn_end_seq

if TYPE_CHECKING:
    from chronicle.ids import BranchId, IdSource
    from chronicle.journal.records import Branch, Head, Session
    from chronicle.journal.store import JournalStore
    from podium.address import Address

__all__ = ["Forked", "fork_agent", "owner_of"]


@dataclass(frozen=True, slots=True)
class Forked:
    """A fork, as it was made."""

    session: Session
    head: Head
    """Of the fork's branch, `agent.forked` included."""
    parent_branch_id: BranchId
    """The branch that has the event it continues among its own."""
    turn: int
    """The turn that it continues."""
    seq: int
    """Of the event that ended this turn."""


def fork_agent(
    store: JournalStore, source: Address, turn: int | None, target: Address, ids: IdSource, now_ms: int
) -> Forked:
    """Make an agent that has the state, files and history which another one had at the end of a turn.

    Messages that wait in the source's inbox are not the fork's. A call that died half-way is completed by the same
    call; until then the fork works and only lacks its first event.

    Args:
        turn: the source's last one if ``None``. A try that failed after it is not part of it.
        target: of the same type, as the same code will run it.

    Raises:
        UnknownAgent: there is no such source, or it never started.
        UnknownMoment: the source has not committed that turn.
        AgentExists: there is an agent of the target's address already.
    """
    head = store.head(find_session(store, source).main_branch_id)
    at = head.turn if turn is None else turn
    seq = turn_end_seq(store, source, head, at)
    parent = owner_of(store, head.branch_id, seq)
    session = _fork_session(store, parent, seq, target, ids, now_ms)
    draft = Draft(
        ids.event(now_ms),
        AGENT_FORKED,
        {
            "agent": str(target),
            "from": {"agent": str(source), "branch": parent.branch_id, "turn": at, "seq": seq},
        },
        at,
        now_ms,
    )
    start = store.head(session.main_branch_id)
    if start.seq != seq:  # it was completed, and perhaps woken, between our two calls
        raise _exists(target)
    try:
        made = store.commit(Commit(session.session_id, start, seal(start, [draft]), epoch=None))
    except (Conflict, StaleEpoch) as error:
        raise _exists(target) from error
    return Forked(session, made, parent.branch_id, at, seq)


def owner_of(store: JournalStore, branch_id: BranchId, seq: int) -> Branch:
    """Return the branch that has an event among its own: this one, or the ancestor that it is read from."""
    branch = store.branch(branch_id)
    while branch.parent_branch_id is not None and seq <= branch.parent_seq:
        branch = store.branch(branch.parent_branch_id)
    return branch


def _fork_session(
    store: JournalStore, parent: Branch, seq: int, target: Address, ids: IdSource, now_ms: int
) -> Session:
    """Make the fork's session, or return the one that a call like this made before it died."""
    try:
        return store.fork_session(parent.branch_id, seq, str(target), ids.session(now_ms), ids.branch(now_ms), now_ms)
    except Conflict as error:
        session = store.session(str(target))
        branch = store.branch(session.main_branch_id)
        if (branch.parent_branch_id, branch.parent_seq, branch.head.seq) != (parent.branch_id, seq, seq):
            raise _exists(target) from error
        return session


def _exists(target: Address) -> AgentExists:
    return AgentExists(f"there is an agent {target} already; take another key for the fork")
