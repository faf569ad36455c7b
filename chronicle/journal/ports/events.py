"""The part of the port of journal stores that is about events, their commits and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BranchId, EventId
    from chronicle.journal.records import Commit, Event, Head, Snapshot, StepWrite

__all__ = ["EventRecords"]


class EventRecords(Protocol):
    """Events of branches, and the snapshots beside them."""

    def events(
        self,
        branch_id: BranchId,
        after_seq: int = 0,
        to_seq: int | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """Yield events ``after_seq + 1 … to_seq`` in order, crossing into parents; to the head without ``to_seq``.

        Folded events are left out.

        Args:
            types: yield only these types; by default all.

        Raises:
            NotFound: no such branch.
        """

    def find_event(self, event_id: EventId) -> Event | None:
        """Return an event by its id, ``None`` if it was never committed."""

    def head(self, branch_id: BranchId) -> Head:
        """Return a branch's head.

        Raises:
            NotFound: no such branch.
        """

    def commit(self, commit: Commit) -> Head:
        """Append events, settle messages, fill the outbox, change reminders and store the snapshot, durably.

        All of it is one transaction. The steps of messages that are consumed or cancelled are dropped in it.

        Returns:
            the branch's new head.

        Raises:
            BranchVersionConflict: the head is not ``commit.expected``; nothing was written.
            StaleEpoch: the epoch is not the one in force; nothing was written.
            NotFound: a message to settle is not in this session's inbox, or is settled already; nothing was written.
            InvalidInput: the events were not sealed on top of ``commit.expected``, or an id was used before.
            Unavailable: it is unknown whether the commit was written.
        """

    def commit_many(self, writes: Sequence[Commit | StepWrite]) -> list[Head | Exception | None]:
        """Apply several commits and steps with one sync to disk; each succeeds or fails by itself.

        Returns:
            for each, the result or the error of `commit` or `put_step`.

        Raises:
            Unavailable: it is unknown whether any of them was written.
        """

    def erase(self, event_ids: Sequence[EventId]) -> None:
        """Erase the payloads of events; their bytes are removed from the store, and the chain verifies as before.

        Out-of-line payloads are marked as erased: the events no longer reference their blobs. Snapshots are not
        changed; `fold` drops those before an event.

        Raises:
            NotFound: one of the events does not exist; nothing was erased.
        """

    def snapshot(self, branch_id: BranchId, at_seq: int | None = None) -> Snapshot | None:
        """Return the newest snapshot at or before ``at_seq`` (by default the head), crossing into parents."""
