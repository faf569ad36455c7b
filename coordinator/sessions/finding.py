"""Looking up sessions and branches of a tenant, of clients and of agents."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from chronicle.errors import NotFound
from chronicle.ids import BranchId, SessionId
from coordinator.operations.errors import SessionReadOnly, UnknownBranch, UnknownSession
from podium.agent_record import is_agent

if TYPE_CHECKING:
    from chronicle.journal.ports.branches import BranchRecords
    from chronicle.journal.ports.sessions import SessionRecords
    from chronicle.journal.records import Branch, Session

__all__ = ["SESSION", "find_branch", "find_session", "is_of_client", "writable"]

SESSION = "session"
"""The kind of the object that a session of a client has: what it pins, and its metadata."""


def is_of_client(session: Session) -> bool:
    """Whether a session was opened by a client: its name is its id."""
    return session.name == session.session_id


def find_session(store: SessionRecords, tenant: str, session_id: str, agent: str | None = None) -> Session:
    """Return a session of a tenant.

    Args:
        agent: the only agent whose session the caller may see, as ``type/key``; ``None`` for all sessions.

    Raises:
        UnknownSession: the tenant has none of that id, or the caller may not see it.
    """
    with suppress(NotFound):
        session = store.session_of_id(SessionId(session_id))
        if (
            session.namespace == tenant
            and (is_of_client(session) or is_agent(session))
            and agent in {None, session.name}
        ):
            return session
    raise UnknownSession(f"no session {session_id}")


def writable(session: Session) -> Session:
    """Return a session that clients may change.

    Raises:
        SessionReadOnly: it is an agent's.
    """
    if not is_of_client(session):
        raise SessionReadOnly(
            f"session {session.session_id} is that of the agent {session.name}, which alone writes it"
        )
    return session


def find_branch(store: BranchRecords, session: Session, branch_id: str, param: str | None = None) -> Branch:
    """Return a branch of a session.

    Args:
        param: the field of the request that names it.

    Raises:
        UnknownBranch: the session has none of that id.
    """
    with suppress(NotFound):
        branch = store.branch(BranchId(branch_id))
        if branch.session_id == session.session_id:
            return branch
    raise UnknownBranch(f"session {session.session_id} has no branch {branch_id}", param)
