"""The part of the port of journal stores that is about branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chronicle.journal.records import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import BranchId, SessionId
    from chronicle.journal.records import Branch, Head, Session

__all__ = ["BranchRecords"]


class BranchRecords(Protocol):
    """Branches of events, and how they continue one another."""

    def branch(self, branch_id: BranchId) -> Branch:
        """Return a branch with its current head.

        Raises:
            NotFound: no such branch.
        """

    def branches(self, session_id: SessionId) -> Sequence[Branch]:
        """Return a session's branches, oldest first."""

    def fork_branch(self, parent_branch_id: BranchId, parent_seq: int, branch_id: BranchId, now_ms: int) -> Branch:
        """Create a branch in the same session that continues another one after ``parent_seq``; O(1), nothing is copied.

        Nothing is written to the parent.

        Raises:
            NotFound: no such parent.
            InvalidInput: the parent does not reach ``parent_seq``.
            Conflict: the id is taken.
        """

    def fork_session(
        self,
        parent_branch_id: BranchId,
        parent_seq: int,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        now_ms: int,
    ) -> Session:
        """Create a session whose main branch continues a branch of another session after ``parent_seq``; O(1).

        It gets the namespace of the parent's session.

        Raises:
            NotFound: no such parent.
            InvalidInput: the parent does not reach ``parent_seq``.
            Conflict: the name or one of the ids is taken.
        """

    def import_session(
        self,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        base: Head,
        now_ms: int,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Session:
        """Create a session whose main branch starts after an event that was folded in another store.

        The branch equals one that was folded here, up to and including that event, and has no events yet.

        Args:
            base: ``seq``, ``hash`` and ``turn`` of that event.

        Raises:
            InvalidInput: ``base`` is not the place of an event.
            Conflict: the name or one of the ids is taken.
        """

    def delete_branch(self, branch_id: BranchId, now_ms: int) -> None:
        """Delete a branch, its events and snapshots; the session's catalogue records the deletion.

        Raises:
            NotFound: no such branch.
            InvalidInput: it is the session's main branch.
            BranchInUse: forks read from it.
        """

    def fold(self, branch_id: BranchId, before_seq: int, now_ms: int) -> Branch:
        """Drop all history before one of the branch's own events: its older events and snapshots, and a parent's.

        The chain verifies from there on, because the session's catalogue keeps the hash before it. The event should
        hold the state that the dropped history produced; the store does not check that. Folding is idempotent.

        Raises:
            NotFound: no such branch.
            InvalidInput: the event is not one of the branch's own.
            BranchInUse: forks read events that would be dropped.
        """
