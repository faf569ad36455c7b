"""Inboxes and the outbox in memory."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from chronicle.errors import ChronicleError, IdempotencyConflict, InboxFull, InvalidInput, NotFound
from chronicle.journal.memory.tables import Tables
from chronicle.journal.records import Backlog, InboxMessage, MessageStatus, OutboxEnvelope, Receipt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.records import InboxWrite, NewMessage, OutboxMessage, Session

__all__ = ["Inboxes"]


class Inboxes(Tables):
    """Admission, look-up and delivery of messages."""

    def admit(self, session_id: SessionId, message: NewMessage, limit: int = 1000) -> Receipt:
        """Admit a message."""
        digest = sha256(message.body).digest()
        with self._open():
            session = self._session(session_id)
            key = message.idempotency_key
            if key is not None and key in session.keys:
                position, first_digest = session.keys[key]
                if digest != first_digest:
                    raise IdempotencyConflict(key)
                return Receipt(session_id, session.inbox[position].message_id, position, repeated=True)
            if message.message_id in self._messages:
                raise InvalidInput(f"message id {message.message_id} was used before")
            if sum(other.status is MessageStatus.PENDING for other in session.inbox.values()) >= limit:
                raise InboxFull(limit)
            session.last_position += 1
            position = session.last_position
            session.inbox[position] = InboxMessage(
                session_id,
                position,
                message.message_id,
                key,
                message.sender,
                message.body,
                message.admitted_ms,
                0,
                MessageStatus.PENDING,
                message.headers,
            )
            self._messages[message.message_id] = (session_id, position)
            if key is not None:
                session.keys[key] = (position, digest)
            return Receipt(session_id, message.message_id, position, repeated=False)

    def admit_many(self, admissions: Sequence[InboxWrite]) -> list[Receipt | Exception]:
        """Admit several messages; each is admitted or refused by itself."""
        outcomes: list[Receipt | Exception] = []
        for each in admissions:
            try:
                outcomes.append(self.admit(each.session_id, each.message, each.limit))
            except ChronicleError as error:
                outcomes.append(error)
        return outcomes

    def pending(self, session_id: SessionId, limit: int = 100) -> Sequence[InboxMessage]:
        """Return the pending messages, in order of position."""
        return self.messages(session_id, MessageStatus.PENDING)[:limit]

    def message(self, message_id: MessageId) -> InboxMessage:
        """Return one message, whatever its status."""
        with self._open():
            if message_id not in self._messages:
                raise NotFound(f"no message {message_id}")
            session_id, position = self._messages[message_id]
            return self._sessions[session_id].inbox[position]

    def message_of_key(self, session_id: SessionId, idempotency_key: str) -> InboxMessage | None:
        """Return the message that was admitted to a session under an idempotency key."""
        with self._open():
            session = self._sessions.get(session_id)
            place = session.keys.get(idempotency_key) if session is not None else None
            return session.inbox[place[0]] if session is not None and place is not None else None

    def messages(self, session_id: SessionId, status: MessageStatus) -> Sequence[InboxMessage]:
        """Return a session's messages of one status, in order of position."""
        with self._open():
            if session_id not in self._sessions:
                return []
            inbox = self._sessions[session_id].inbox
            return [inbox[position] for position in sorted(inbox) if inbox[position].status is status]

    def retry_message(self, session_id: SessionId, message_id: MessageId) -> InboxMessage:
        """Make a parked message pending again, at its old position."""
        with self._open():
            found = self._messages.get(message_id)
            if found is None or found[0] != session_id or self.message(message_id).status is not MessageStatus.PARKED:
                raise NotFound(f"no parked message {message_id} in session {session_id}")
            message = replace(self.message(message_id), status=MessageStatus.PENDING, attempts=0)
            self._sessions[session_id].inbox[message.position] = message
            return message

    def waiting_before(self, message_id: MessageId) -> int:
        """Return the number of pending messages before one."""
        with self._open():
            message = self.message(message_id)
            pending = self.messages(message.session_id, MessageStatus.PENDING)
            return sum(other.position < message.position for other in pending)

    def sessions_with_pending(self, prefix: str = "") -> Sequence[Session]:
        """Return the sessions that have pending messages and whose name starts with ``prefix``, the oldest first."""
        with self._open():
            named = [each.record for each in self._sessions.values() if each.record.name.startswith(prefix)]
            return [session for session in named if self.messages(session.session_id, MessageStatus.PENDING)]

    def backlog(self) -> Backlog:
        """Count what waits in all sessions."""
        with self._open():
            waiting = [message for each in self._sessions.values() for message in each.inbox.values()]
            pending = [message.admitted_ms for message in waiting if message.status is MessageStatus.PENDING]
            outbox = [message.created_ms for message in self._outbox.values()]
            return Backlog(
                sessions=sum(each.record.name != each.record.session_id for each in self._sessions.values()),
                pending=len(pending),
                oldest_pending_ms=min(pending, default=None),
                parked=sum(message.status is MessageStatus.PARKED for message in waiting),
                outbox=len(outbox),
                oldest_outbox_ms=min(outbox, default=None),
            )

    def outbox(self, limit: int = 100, among: Sequence[MessageId] | None = None) -> Sequence[OutboxMessage]:
        """Return messages that were committed and not yet delivered, oldest first."""
        with self._open():
            wanted = set(among) if among is not None else self._outbox.keys()
            return [message for message in self._outbox.values() if message.message_id in wanted][:limit]

    def outbox_envelopes(self) -> Sequence[OutboxEnvelope]:
        """Return the envelopes of all messages in the outbox, oldest first."""
        with self._open():
            return [
                OutboxEnvelope(message.message_id, message.target, message.created_ms, message.namespace)
                for message in self._outbox.values()
            ]

    def outbox_delivered(self, message_id: MessageId) -> None:
        """Drop a delivered message from the outbox."""
        with self._open():
            self._outbox.pop(message_id, None)
