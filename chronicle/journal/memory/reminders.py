"""Reminders in memory."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from chronicle.journal.memory.inboxes import Inboxes
from chronicle.journal.records import DropReminder, Reminder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.memory.tables import SessionTable
    from chronicle.journal.records import NewMessage, Receipt, SetReminder

__all__ = ["Reminders", "change_reminders"]


class Reminders(Inboxes):
    """Look-up and firing of reminders."""

    def reminders(self, session_id: SessionId) -> Sequence[Reminder]:
        """Return a session's reminders, by name."""
        with self._open():
            if session_id not in self._sessions:
                return []
            return sorted(self._sessions[session_id].reminders.values(), key=lambda each: each.name)

    def due_reminders(self, now_ms: int, limit: int) -> Sequence[Reminder]:
        """Return reminders of all sessions that are due at or before ``now_ms``, longest due first."""
        with self._open():
            due = [reminder for reminder in self._all_reminders() if reminder.due_ms <= now_ms]
        return sorted(due, key=lambda each: each.due_ms)[:limit]

    def next_reminder_ms(self, after_ms: int = -1) -> int | None:
        """Return the first time after ``after_ms`` at which a reminder of any session is due; ``None`` without one."""
        with self._open():
            times = (reminder.due_ms for reminder in self._all_reminders())
            return min((due_ms for due_ms in times if due_ms > after_ms), default=None)

    def cancel_reminder(self, session_id: SessionId, name: str) -> bool:
        """Drop a reminder outside of a commit; return whether there was one."""
        with self._open():
            session = self._sessions.get(session_id)
            return session is not None and session.reminders.pop(name, None) is not None

    def fire_reminder(
        self,
        session_id: SessionId,
        name: str,
        due_ms: int,
        message: NewMessage,
        next_due_ms: int | None,
        next_body: bytes | None = None,
    ) -> Receipt | None:
        """Admit the message of a due reminder, and move or drop the reminder."""
        with self._open():
            session = self._sessions.get(session_id)
            reminder = session.reminders.get(name) if session is not None else None
            if session is None or reminder is None or reminder.due_ms != due_ms:
                return None
            receipt = self.admit(session_id, message, sys.maxsize)
            if next_due_ms is None:
                del session.reminders[name]
            else:
                body = next_body if next_body is not None else reminder.body
                session.reminders[name] = replace(reminder, due_ms=next_due_ms, body=body)
            return receipt

    def _all_reminders(self) -> Iterable[Reminder]:
        return (reminder for session in self._sessions.values() for reminder in session.reminders.values())


def change_reminders(session: SessionTable, changes: Iterable[SetReminder | DropReminder]) -> None:
    for change in changes:
        if isinstance(change, DropReminder):
            session.reminders.pop(change.name, None)
        else:
            reminder = Reminder(session.record.session_id, change.name, change.due_ms, change.body)
            session.reminders[change.name] = reminder
