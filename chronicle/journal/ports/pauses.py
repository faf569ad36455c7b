"""The part of the port of journal stores that is about paused messages.

A commit pauses a message (`Outcome.PAUSED`). While it is paused, no message of its session is pending, so nobody
handles one, and nothing wakes the session's agent. Admissions go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import InboxMessage, PausedMessage, PauseEnd

__all__ = ["PauseRecords"]


class PauseRecords(Protocol):
    """Paused messages."""

    def paused_message(self, session_id: SessionId) -> InboxMessage | None:
        """Return the paused message of a session; ``None`` without one."""

    def paused_messages(
        self, namespace: str | None = None, prefix: str = "", *, after: int = -1, limit: int = 100
    ) -> Sequence[PausedMessage]:
        """Return paused messages of all sessions, by place.

        Args:
            namespace: only of sessions in it.
            prefix: only of sessions whose name starts with it.
            after: only those behind this place.
        """

    def count_paused(self, namespace: str | None = None, prefix: str = "", *, after: int = -1, limit: int) -> int:
        """Return the number of messages that `paused_messages` returns with this limit; it costs that many rows."""

    def end_pause(self, session_id: SessionId, end: PauseEnd, now_ms: int) -> bool:
        """Give a paused message what it waits for, and make it pending again at its position, durably.

        Args:
            now_ms: the time, if the journal has no clock of its own; see `ReminderRecords.now_ms`.

        Returns:
            whether that happened. If not, nothing was written: the message is not paused in that session, its step has
            another body, or it is too early or too late.
        """
