"""Events and commits in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chronicle.errors import BranchVersionConflict, ChronicleError, InvalidInput, NotFound
from chronicle.journal.chain import head_after
from chronicle.journal.memory.reminders import change_reminders
from chronicle.journal.memory.snapshots import check_snapshot, keep_snapshot
from chronicle.journal.memory.steps import Steps
from chronicle.journal.records import Head, InboxMessage, MessageStatus, Outcome, StepWrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BranchId, EventId, MessageId, SessionId
    from chronicle.journal.records import Commit, Event

__all__ = ["Events"]


class Events(Steps):
    """Read, append and erase events."""

    def events(
        self,
        branch_id: BranchId,
        after_seq: int = 0,
        to_seq: int | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """Yield events ``after_seq + 1 … to_seq`` in order, crossing into parents."""
        with self._open():
            found = self._read(branch_id, after_seq, to_seq)
        return iter([event for event in found if types is None or event.type in types])

    def find_event(self, event_id: EventId) -> Event | None:
        """Return an event by its id, ``None`` if it was never committed."""
        with self._open():
            return self._events.get(event_id)

    def commit(self, commit: Commit) -> Head:
        """Append events, settle messages, fill the outbox, change reminders and store the snapshot, all or nothing."""
        head = head_after(commit.expected, commit.events)
        with self._open():
            branch = self._branches.get(head.branch_id)
            session = self._session(commit.session_id)
            if branch is None or branch.record.session_id != commit.session_id:
                raise NotFound(f"no branch {head.branch_id} in session {commit.session_id}")
            session.check_epoch(commit.epoch)
            now = branch.record.head
            if (now.seq, now.hash) != (commit.expected.seq, commit.expected.hash):
                raise BranchVersionConflict(head.branch_id, now.seq, now.event_id)
            settled = [
                settle(
                    self._settleable(commit.session_id, settlement.message_id, settlement.outcome), settlement.outcome
                )
                for settlement in commit.settled
            ]
            if len({message.message_id for message in settled}) < len(settled):
                raise NotFound("a message of the commit is settled twice")
            ids = [event.event_id for event in commit.events]
            if len(set(ids)) < len(ids) or any(event_id in self._events for event_id in ids):
                raise InvalidInput("an event id of the commit was used before")
            sent = [message.message_id for message in commit.outbox]
            if len(set(sent)) < len(sent) or any(message_id in self._outbox for message_id in sent):
                raise InvalidInput("a message of the commit is in the outbox already")
            if commit.snapshot is not None:
                check_snapshot(commit.snapshot, head)
            # Nothing below can fail.
            branch.record = replace(branch.record, head=head)
            branch.events.extend(commit.events)
            self._events.update((event.event_id, event) for event in commit.events)
            session.inbox.update((message.position, message) for message in settled)
            for message in settled:
                if message.status in (MessageStatus.CONSUMED, MessageStatus.CANCELLED):
                    session.steps.pop(message.message_id, None)
            self._outbox.update((message.message_id, message) for message in commit.outbox)
            change_reminders(session, commit.reminders)
            if commit.snapshot is not None:
                keep_snapshot(branch, commit.snapshot)
            return head

    def commit_many(self, writes: Sequence[Commit | StepWrite]) -> list[Head | Exception | None]:
        """Apply several commits and steps; each succeeds or fails by itself."""
        outcomes: list[Head | Exception | None] = []
        for write in writes:
            try:
                if isinstance(write, StepWrite):
                    self.put_step(write.session_id, write.step, write.epoch)
                    outcomes.append(None)
                else:
                    outcomes.append(self.commit(write))
            except ChronicleError as error:
                outcomes.append(error)
        return outcomes

    def erase(self, event_ids: Sequence[EventId]) -> None:
        """Erase the payloads of events."""
        with self._open():
            for event_id in event_ids:
                if event_id not in self._events:
                    raise NotFound(f"no event {event_id}")
            for event_id in event_ids:
                event = self._events[event_id]
                branch = self._branch(event.branch_id)
                erased = replace(event, payload=None, erased=True)
                branch.events[event.seq - branch.base_seq - 1] = self._events[event_id] = erased

    def _settleable(self, session_id: SessionId, message_id: MessageId, outcome: Outcome) -> InboxMessage:
        found = self._messages.get(message_id)
        message = self._sessions[session_id].inbox[found[1]] if found and found[0] == session_id else None
        allowed = {MessageStatus.PENDING}
        if outcome is Outcome.CANCELLED:
            allowed.add(MessageStatus.PARKED)
        if message is None or message.status not in allowed:
            raise NotFound(f"message {message_id} does not wait in the inbox of session {session_id}")
        return message


def settle(message: InboxMessage, outcome: Outcome) -> InboxMessage:
    match outcome:
        case Outcome.CONSUMED:
            return replace(message, status=MessageStatus.CONSUMED, body=None)
        case Outcome.CANCELLED:
            return replace(message, status=MessageStatus.CANCELLED, body=None)
        case Outcome.FAILED:
            return replace(message, attempts=message.attempts + 1)
        case Outcome.PARKED:
            return replace(message, attempts=message.attempts + 1, status=MessageStatus.PARKED)
