"""What a host may do in the journal: read and write the sessions whose leases it has, under their epochs.

A lease names its holder, and an epoch has one holder for ever. So what was read of a lease once stays true, and the
store itself fences writes under an epoch that is over. What the host says of itself is not asked.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import InvalidInput, NotFound, StaleEpoch
from chronicle.ids import is_id
from chronicle.journal.records import Commit, MessageStatus, Outcome, SetReminder, Settlement
from chronicle.journal.remote import MAX_EVENTS
from podium.address import Address
from podium.answer_message import ANSWER_PREFIX
from podium.messages.headers import ask_in, caller_in, failed_in, reminder_in
from podium.reminders.delayed import DelayedMessage, is_delayed
from podium.reminders.expiries import EXPIRY, expiry_of
from podium.reminders.plans import agent_of, caller_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.ids import BranchId, EventId, MessageId, SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event, InboxMessage, NewMessage, Session, StepWrite, StoredStep
    from coordinator.store.renewals import Renewals
    from podium.caller import Caller

__all__ = ["HostPermits"]

_MAX_TTL_MS: Final = 3_600_000
"""For how long a host may extend its leases; from when on, the database's clock says."""


class HostPermits:
    """The permits of one host. Its methods block, and may be called from any thread.

    Args:
        store: the journal.
        host_id: the name of the host, as leases have it.
        renewals: renew its leases, with those of others.
    """

    def __init__(self, store: JournalStore, host_id: str, renewals: Renewals) -> None:
        self._store = store
        self._renewals = renewals
        self._host_id = host_id
        self._epochs: dict[SessionId, int] = {}
        """The newest epoch of each session of which it is known that the host has it."""
        self._branches: dict[BranchId, SessionId] = {}
        """Sessions of branches that were read."""
        self._sessions: dict[SessionId, Session] = {}
        """Sessions that send messages."""
        self._reads: Final[dict[str, Callable[..., object]]] = {
            "branch": self._branch,
            "events": self._events,
            "find_event": self._find_event,
            "head": self._head,
            "lease": self._of_session(store.lease),
            "message": self._message,
            "messages": self._messages,
            "paused_message": self._of_session(store.paused_message),
            "pending": self._of_session(store.pending),
            "reminders": self._of_session(store.reminders),
            "release_leases": self._release_leases,
            "renew_leases": self._renew_leases,
            "session": self._session,
            "snapshot": self._snapshot,
            "steps": self._steps,
            "steps_of_session": self._of_session(store.steps_of_session),
        }

    def call(self, method: str, arguments: Sequence[Any], named: dict[str, Any]) -> object:
        """Call a method of the journal, other than those that commit.

        Raises:
            InvalidInput: no host may call it.
            NotFound: it is about a session of which the host has no lease.
            ChronicleError: as the method.
        """
        try:
            allowed = self._reads[method]
        except KeyError:
            raise InvalidInput(f"a host may not call {method} of the journal") from None
        return allowed(*arguments, **named)

    def knows(self, write: Commit | StepWrite) -> bool:
        """Whether `check_write` answers at once: the host is known to have the epoch."""
        return write.epoch is not None and self._epochs.get(write.session_id) == write.epoch

    def check_write(self, write: Commit | StepWrite) -> None:
        """Let the host make a commit, or store a step.

        Raises:
            StaleEpoch: it does not have that epoch of the session's lease.
            InvalidInput: it sends a message, or sets a reminder, in another's name, as if another had passed it on or
                waited for its answer, to another tenant, or under what is no id; or it ends the pause of a message that
                it does not pause.
        """
        if not self.knows(write):
            self._check_epoch(write.session_id, write.epoch)
        if isinstance(write, Commit) and (write.outbox or write.reminders):
            agent = Address.of(self._session_of(write.session_id))
            for sent in write.outbox:
                if sent.namespace != agent.tenant or sent.sender != str(agent):
                    raise InvalidInput(f"{agent} may not send {sent.message_id} as {sent.sender} to {sent.namespace}")
                if not is_id(sent.message_id, "msg_") and not is_id(sent.message_id, ANSWER_PREFIX):
                    raise InvalidInput(f"{agent} may not send a message under the id {sent.message_id!r}")
                _check_headers(agent, sent.headers)
                if failed_in(sent.headers) is not None and sent.target != agent.name:
                    raise InvalidInput(f"{agent} may not tell {sent.target} of a message that was parked")
            for change in write.reminders:
                if isinstance(change, SetReminder):
                    _check_reminder(agent, change, write)

    def check_question(self, asker: Address, receiver: Address, question: NewMessage) -> None:
        """Let the host ask a question for an agent.

        Raises:
            NotFound: it does not have the asker's lease.
            InvalidInput: it asks in another's name, as if another had passed the question on or waited for the answer,
                or another tenant.
        """
        self._session(asker.name, asker.tenant)
        if receiver.tenant != asker.tenant or question.sender != str(asker):
            raise InvalidInput(f"{asker} may not ask {receiver} as {question.sender}")
        if failed_in(question.headers) is not None:
            raise InvalidInput(f"{asker} may not tell {receiver} of a message that was parked")
        _check_headers(asker, question.headers)

    # -- what it knows --------------------------------------------------------------------------------------------

    def _check_epoch(self, session_id: SessionId, epoch: int | None) -> None:
        lease = self._store.lease(session_id)
        if lease is None or lease.holder != self._host_id or lease.epoch != epoch:
            raise StaleEpoch(epoch or 0, lease.epoch if lease is not None else 0)
        self._epochs[session_id] = lease.epoch

    def _check_session(self, session_id: SessionId) -> None:
        if session_id in self._epochs:
            return
        lease = self._store.lease(session_id)
        if lease is None or lease.holder != self._host_id:
            raise NotFound(f"no session {session_id} whose lease {self._host_id} has")
        self._epochs[session_id] = lease.epoch

    def _check_branch(self, branch_id: BranchId) -> None:
        if branch_id not in self._branches:
            self._branches[branch_id] = self._store.branch(branch_id).session_id
        self._check_session(self._branches[branch_id])

    def _session_of(self, session_id: SessionId) -> Session:
        if session_id not in self._sessions:
            self._sessions[session_id] = self._store.session_of_id(session_id)
        return self._sessions[session_id]

    def _forget(self, session_id: SessionId) -> None:
        self._epochs.pop(session_id, None)
        self._sessions.pop(session_id, None)
        for branch_id, session in list(self._branches.items()):  # a copy: other threads add to it
            if session == session_id:
                self._branches.pop(branch_id, None)

    # -- methods --------------------------------------------------------------------------------------------------

    def _of_session(self, method: Callable[..., object]) -> Callable[..., object]:
        def call(session_id: SessionId, *arguments: Any, **named: Any) -> object:
            self._check_session(session_id)
            return method(session_id, *arguments, **named)

        return call

    def _branch(self, branch_id: BranchId) -> object:
        self._check_branch(branch_id)
        return self._store.branch(branch_id)

    def _head(self, branch_id: BranchId) -> object:
        self._check_branch(branch_id)
        return self._store.head(branch_id)

    def _snapshot(self, branch_id: BranchId, at_seq: int | None = None) -> object:
        self._check_branch(branch_id)
        return self._store.snapshot(branch_id, at_seq)

    def _events(
        self, branch_id: BranchId, after_seq: int = 0, to_seq: int | None = None, types: Sequence[str] | None = None
    ) -> list[Event]:
        self._check_branch(branch_id)
        return list(islice(self._store.events(branch_id, after_seq, to_seq, types), MAX_EVENTS))

    def _find_event(self, event_id: EventId) -> Event | None:
        event = self._store.find_event(event_id)
        if event is not None:
            self._check_branch(event.branch_id)
        return event

    def _session(self, name: str, namespace: str) -> Session:
        session = self._store.session(name, namespace)
        self._check_session(session.session_id)
        return session

    def _message(self, message_id: MessageId) -> InboxMessage:
        message = self._store.message(message_id)
        self._check_session(message.session_id)
        return message

    def _messages(self, session_id: SessionId, status: str) -> object:
        self._check_session(session_id)
        return self._store.messages(session_id, MessageStatus(status))

    def _steps(self, message_id: MessageId) -> Sequence[StoredStep]:
        self._message(message_id)
        return self._store.steps(message_id)

    def _renew_leases(self, leases: Sequence[tuple[SessionId, int]], now_ms: int, ttl_ms: int) -> list[SessionId]:
        if type(now_ms) is not int or type(ttl_ms) is not int or ttl_ms <= 0:  # it is renewed with those of others
            raise InvalidInput(f"leases are not renewed at {now_ms!r} for {ttl_ms!r} ms")
        ours = self._ours(leases)
        lost = [session_id for session_id, epoch in leases if (session_id, epoch) not in ours]
        return [*lost, *self._renewals.renew(self._host_id, ours, now_ms, min(ttl_ms, _MAX_TTL_MS))]

    def _release_leases(self, leases: Sequence[tuple[SessionId, int]]) -> None:
        ours = self._ours(leases)
        self._renewals.forget(self._host_id, [session_id for session_id, _ in ours])
        self._store.release_leases(ours)
        for session_id, _ in ours:
            self._forget(session_id)

    def _ours(self, leases: Sequence[tuple[SessionId, int]]) -> list[tuple[SessionId, int]]:
        """Return those of some leases that the host has, or had, under these epochs."""
        ours = []
        for session_id, epoch in leases:
            try:
                if self._epochs.get(session_id) != epoch:
                    self._check_epoch(session_id, epoch)
            except StaleEpoch:
                continue
            ours.append((session_id, self._epochs[session_id]))  # an int, whatever the host's equals it
        return ours


def _check_headers(agent: Address, headers: JsonObject | None) -> None:
    """Check that what an agent sends came through it last, is waited for by it if at all, and is of no reminder."""
    _check_chain(agent, caller_in(headers))
    asked = ask_in(headers)
    if asked is not None and asked.path[-1:] != (str(agent),):
        raise InvalidInput(f"{agent} may not ask as if {asked.path} waited")
    if reminder_in(headers) is not None:
        raise InvalidInput(f"{agent} may not send a message as if a reminder had")


def _check_reminder(agent: Address, change: SetReminder, commit: Commit) -> None:
    """Check that a reminder wakes the agent that sets it, and ends only the pause that its commit begins."""
    if agent_of(change.body) not in {None, str(agent)}:
        raise InvalidInput(f"{agent} may not set the reminder {change.name!r} of another agent")
    if is_delayed(change.name) and not is_id(DelayedMessage.from_reminder(change).message_id, "msg_"):
        raise InvalidInput(f"{agent} may not send a message later under the id in {change.name!r}")
    if change.name != EXPIRY:
        _check_chain(agent, caller_of(change.body))
    elif Settlement(expiry_of(change.body)[1], Outcome.PAUSED) not in commit.settled:
        raise InvalidInput(f"{agent} may not set an end of the pause of a message that it does not pause")


def _check_chain(agent: Address, caller: Caller | None) -> None:
    """Check that the caller of what an agent sends, now or later, came through that agent last."""
    if caller is not None and caller.agents[-1:] != (str(agent),):
        raise InvalidInput(f"{agent} may not send a message as if it came through {caller.agents}")
