"""The part of the port of journal stores that is about reminders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import NewMessage, OutboxMessage, Receipt, Reminder

__all__ = ["ReminderRecords"]


class ReminderRecords(Protocol):
    """Reminders of sessions."""

    def now_ms(self, given_ms: int) -> int:
        """Return the time by which reminders and leases go, epoch milliseconds.

        It is the server's if the store is on one, else the given one.
        """

    def reminders(self, session_id: SessionId) -> Sequence[Reminder]:
        """Return a session's reminders, by name."""

    def due_reminders(self, now_ms: int, limit: int) -> Sequence[Reminder]:
        """Return reminders of all sessions that are due at or before ``now_ms``, longest due first."""

    def next_reminder_ms(self, after_ms: int = -1) -> int | None:
        """Return the first time after ``after_ms`` at which a reminder of any session is due; ``None`` without one."""

    def cancel_reminder(self, session_id: SessionId, name: str) -> bool:
        """Drop a reminder outside of a commit, durably; return whether there was one."""

    def fire_reminder(
        self,
        session_id: SessionId,
        name: str,
        due_ms: int,
        message: NewMessage,
        next_due_ms: int | None,
        next_body: bytes | None = None,
    ) -> Receipt | None:
        """Admit the message of a due reminder, and move or drop the reminder, in one durable transaction.

        The message is admitted whatever the number of pending ones.

        Args:
            due_ms: the time at which it is due. If the reminder is due at another time, or does not exist, nothing
                happens: it was fired already, replaced or cancelled.
            next_due_ms: when it is due again; ``None`` to drop it.
            next_body: its new body; ``None`` to keep the old one.

        Returns:
            the receipt; ``None`` if nothing happened.

        Raises:
            IdempotencyConflict: the message's key was used with another body.
        """

    def send_reminder(self, session_id: SessionId, name: str, due_ms: int, message: OutboxMessage) -> bool:
        """Drop a due reminder, and put a message into the outbox, in one durable transaction.

        Args:
            due_ms: as of `fire_reminder`.
            message: of the reminder's session to another one; its id is in the outbox at most once.

        Returns:
            whether that happened.
        """
