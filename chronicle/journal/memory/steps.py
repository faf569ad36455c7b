"""Steps in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import Conflict, InvalidInput, NotFound
from chronicle.journal.memory.tables import Tables
from chronicle.journal.records import MessageStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.records import StoredStep

__all__ = ["Steps"]


class Steps(Tables):
    """The durable results of parts of messages' handling."""

    def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Store the result of a part of the handling of a pending message."""
        if step.number < 1:
            raise InvalidInput(f"step {step.number}: steps are numbered from 1")
        with self._open():
            session = self._session(session_id)
            session.check_epoch(epoch)
            found = self._messages.get(step.message_id)
            if found is None or found[0] != session_id or session.inbox[found[1]].status is not MessageStatus.PENDING:
                raise NotFound(f"message {step.message_id} is not pending in session {session_id}")
            steps = session.steps.setdefault(step.message_id, [])
            if any(other.number == step.number for other in steps):
                raise Conflict(f"message {step.message_id} has a step {step.number} already")
            steps.append(step)
            steps.sort(key=lambda each: each.number)

    def steps(self, message_id: MessageId) -> Sequence[StoredStep]:
        """Return the steps of a message, by number."""
        with self._open():
            found = self._messages.get(message_id)
            return list(self._sessions[found[0]].steps.get(message_id, ())) if found else []

    def steps_of_session(self, session_id: SessionId) -> Sequence[StoredStep]:
        """Return the steps of all messages of a session, by the position of the message, then number."""
        with self._open():
            if session_id not in self._sessions:
                return []
            steps = self._sessions[session_id].steps
            return [step for message_id in sorted(steps, key=self._messages.__getitem__) for step in steps[message_id]]

    def drop_steps(self, message_id: MessageId) -> None:
        """Drop the steps of a message."""
        with self._open():
            found = self._messages.get(message_id)
            if found is not None:
                self._sessions[found[0]].steps.pop(message_id, None)
