"""The part of the port of journal stores that is about inboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.records import Backlog, InboxMessage, InboxWrite, MessageStatus, NewMessage, Receipt, Session

__all__ = ["InboxRecords"]


class InboxRecords(Protocol):
    """Messages that were admitted to sessions."""

    def admit(self, session_id: SessionId, message: NewMessage, limit: int = 1000) -> Receipt:
        """Admit a message, durably.

        A repeat of an idempotency key with the same body returns the first receipt, whatever the message's status.

        Raises:
            IdempotencyConflict: the key was used with another body.
            InboxFull: ``limit`` messages are pending or paused.
            NotFound: no such session.
        """

    def admit_many(self, admissions: Sequence[InboxWrite]) -> list[Receipt | Exception]:
        """Admit several messages with one sync to disk; each is admitted or refused by itself, as by `admit`.

        Those of one session get their positions in the given order.

        Returns:
            for each, in order, its receipt or the error that `admit` would raise.

        Raises:
            Unavailable: it is unknown whether any of them was admitted.
        """

    def pending(self, session_id: SessionId, limit: int = 100) -> Sequence[InboxMessage]:
        """Return the pending messages, in order of position; none behind a paused one (`PauseRecords`)."""

    def message(self, message_id: MessageId) -> InboxMessage:
        """Return one message, whatever its status.

        Raises:
            NotFound: it was never admitted, or its record was pruned.
        """

    def message_of_key(self, session_id: SessionId, idempotency_key: str) -> InboxMessage | None:
        """Return the message that was admitted to a session under an idempotency key, whatever its status.

        ``None`` if there is none, or its record was pruned.
        """

    def messages(self, session_id: SessionId, status: MessageStatus) -> Sequence[InboxMessage]:
        """Return a session's messages of one status, in order of position."""

    def waiting_before(self, message_id: MessageId) -> int:
        """Return the number of pending and paused messages before a message in its inbox, whatever its own status.

        Raises:
            NotFound: it was never admitted, or its record was pruned.
        """

    def retry_message(self, session_id: SessionId, message_id: MessageId) -> InboxMessage:
        """Make a parked message pending again, at its old position and with its attempts reset.

        Raises:
            NotFound: no such message, or it is not parked.
        """

    def sessions_with_pending(
        self, prefix: str = "", among: Collection[tuple[str, str]] | None = None
    ) -> Sequence[Session]:
        """Return the sessions that have pending messages, and no paused one.

        Args:
            prefix: only those whose name starts with it, the oldest first.
            among: only those with one of these names and namespaces; in any order.
        """

    def backlog(self) -> Backlog:
        """Count what waits in all sessions. It reads an entry of each session, and those of waiting messages."""
