"""Admission of clients' messages into inboxes, and the state of an admitted message for those who follow it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.errors import InboxFull, NotFound
from chronicle.journal.records import InboxMessage, InboxWrite, MessageStatus, NewMessage, Receipt
from podium.agent_record import find_session
from podium.caller import NOBODY, Caller
from podium.errors import PodiumError
from podium.messages.admission import admit_message, limit_of, refusal
from podium.messages.headers import Headers
from podium.messages.inbox import message_of
from podium.turn.busy import BusyPolicy
from podium.turn.journal.frames import retry_frames, settled_frames
from podium.turn.journal.ledger import Offer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.clock import Clock
    from chronicle.ids import IdSource, MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Head, Session
    from podium.address import Address
    from podium.turn.stream import Frame

__all__ = ["Admission", "Admitted", "Arrival", "position_of"]

_MAX_SESSIONS: Final = 10_000
"""Agents whose sessions are kept; one takes half a kilobyte."""
_SMALL_BYTES: Final = 16 * 1024
"""Messages up to this size are handed to their agents' hosts, which read larger ones from the inbox."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A message that is durably in its inbox."""

    receipt: Receipt
    when_busy: BusyPolicy
    before: int
    """Messages ahead of it in the inbox when this was read, the one being handled included."""
    _store: JournalStore
    _blobs: BlobReader
    _session: Session
    offer: Offer | None = None
    """It, for the activation that was under way before it was admitted, if that is known and it is small."""

    @property
    def message_id(self) -> MessageId:
        """The id of the message."""
        return self.receipt.message_id

    async def settled(self) -> list[Frame]:
        """Return its terminal frames, read from the journal, also if it is paused; none while it is pending.

        Raises:
            NotFound: its record was pruned.
        """
        return await asyncio.to_thread(self._settled)

    async def failed_tries(self) -> list[Frame]:
        """Return a ``turn_retry`` frame for each failed attempt that is or will be retried.

        Raises:
            NotFound: its record was pruned.
        """
        return await asyncio.to_thread(self._failed_tries)

    async def count_before(self) -> int:
        """Return the number of messages ahead of it in the inbox now.

        Raises:
            NotFound: its record was pruned.
        """
        return await asyncio.to_thread(self._store.waiting_before, self.message_id)

    async def is_held_up(self) -> bool:
        """Return whether it is pending behind a paused message, so that its agent has nothing to do.

        Raises:
            NotFound: its record was pruned.
        """
        return await asyncio.to_thread(self._is_held_up)

    def _is_held_up(self) -> bool:
        head = self._store.paused_message(self._session.session_id)
        if head is None or head.position >= self.receipt.position:
            return False
        return self._store.message(self.message_id).status is MessageStatus.PENDING

    def _settled(self) -> list[Frame]:
        return settled_frames(self._store, self._blobs, self._session.main_branch_id, self.message_id)

    def _failed_tries(self) -> list[Frame]:
        return retry_frames(self._store, self._blobs, self._head(), self._store.message(self.message_id))

    def _head(self) -> Head:
        return self._store.head(self._session.main_branch_id)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A client's message that is to be admitted; see `Admission.admit`."""

    address: Address
    body: bytes
    idempotency_key: str | None
    when_busy: BusyPolicy
    trace: str | None = None
    epoch: int | None = None
    """Of the lease under which its agent is awake, if that is known."""
    caller: Caller = NOBODY


class Admission:
    """Admits messages.

    Args:
        inbox_limit: messages that may be pending for one agent.
        check: raises if the tenant of an agent may not have another message of a size; ``None``: each may.
    """

    def __init__(
        self,
        store: JournalStore,
        blobs: BlobReader,
        ids: IdSource,
        clock: Clock,
        inbox_limit: int,
        check: Callable[[Address, int], None] | None = None,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._ids = ids
        self._clock = clock
        self._inbox_limit = inbox_limit
        self._check = check
        self._sessions: dict[Address, Session] = {}
        """Sessions of agents that had messages. A session never changes; one that was deleted admits nothing."""

    def admit(
        self,
        address: Address,
        body: bytes,
        idempotency_key: str | None,
        when_busy: BusyPolicy,
        trace: str | None = None,
        caller: Caller = NOBODY,
    ) -> Admitted:
        """Append a message durably to its agent's inbox; the agent need not exist yet.

        A repeated idempotency key with the same body returns the first receipt, whatever the policy and the quota.

        Args:
            body: canonical JSON.
            trace: the ``traceparent`` of what sends it.
            caller: who asks, as the edge has authenticated them.

        Raises:
            AgentBusy: the policy is ``REJECT``, and a message is pending or being handled; nothing was stored.
            InboxFull: too many messages are pending.
            IdempotencyConflict: the key was used with another body.
            QuotaExceeded: the agent's tenant has as much as it may have.
        """
        message = self._message(Arrival(address, body, idempotency_key, when_busy, trace, caller=caller))
        try:
            if self._check is not None:
                self._check(address, len(body))
        except PodiumError:
            first = self._first(address, message)
            if first is None:
                raise
            session, receipt = first
        else:
            session, receipt = self._write(address, message, when_busy)
        return self._admitted(session, receipt, when_busy)

    def _write(self, address: Address, message: NewMessage, when_busy: BusyPolicy) -> tuple[Session, Receipt]:
        is_known = address in self._sessions
        session = self._session(address, message.admitted_ms)
        try:
            return session, admit_message(self._store, session, message, when_busy, self._inbox_limit)
        except NotFound:
            if not is_known:
                raise
        self._sessions.pop(address, None)  # the agent was deleted since its last message
        session = self._session(address, message.admitted_ms)
        return session, admit_message(self._store, session, message, when_busy, self._inbox_limit)

    def admit_many(self, arrivals: Sequence[Arrival]) -> list[Admitted | Exception]:
        """Admit several messages with one sync to disk and no check of quotas; each is admitted or refused by itself.

        Returns:
            for each, in order, what `admit` returns or raises.

        Raises:
            Unavailable: it is unknown whether any of them was admitted.
        """
        outcomes: dict[int, Admitted | Exception] = {}
        writes: dict[int, tuple[Session, InboxWrite]] = {}
        known = {arrival.address for arrival in arrivals if arrival.address in self._sessions}
        again: list[int] = []
        for index, arrival in enumerate(arrivals):
            try:
                writes[index] = self._write_of(arrival)
            except Exception as error:  # noqa: BLE001 - such as of a name that cannot be stored: others are admitted
                outcomes[index] = error
        stored = self._store.admit_many([write for _, write in writes.values()])
        for (index, (session, write)), receipt in zip(writes.items(), stored, strict=True):
            outcomes[index] = self._outcome(session, arrivals[index], receipt, write.message)
            if isinstance(receipt, NotFound) and arrivals[index].address in known:
                again.append(index)  # the agent was deleted since its last message
        if again:
            for index in again:
                self._sessions.pop(arrivals[index].address, None)
            outcomes.update(zip(again, self.admit_many([arrivals[index] for index in again]), strict=True))
        return [outcomes[index] for index in range(len(arrivals))]

    def _write_of(self, arrival: Arrival) -> tuple[Session, InboxWrite]:
        message = self._message(arrival)
        session = self._session(arrival.address, message.admitted_ms)
        return session, InboxWrite(session.session_id, message, limit_of(arrival.when_busy, self._inbox_limit))

    def _outcome(
        self, session: Session, arrival: Arrival, stored: Receipt | Exception, message: NewMessage
    ) -> Admitted | Exception:
        if not isinstance(stored, Receipt):
            return refusal(session, arrival.when_busy, stored)
        try:
            return self._admitted(session, stored, arrival.when_busy, _offer(arrival, stored, message))
        except Exception as error:  # noqa: BLE001 - such as of an agent that was deleted meanwhile
            return error

    def _message(self, arrival: Arrival) -> NewMessage:
        now_ms = self._clock.now_ms()
        return NewMessage(
            message_id=self._ids.message(now_ms),
            body=arrival.body,
            admitted_ms=now_ms,
            idempotency_key=arrival.idempotency_key,
            headers=Headers(trace=arrival.trace, caller=arrival.caller).to_json(),
        )

    def _session(self, address: Address, now_ms: int) -> Session:
        """Return an agent's session, which is made if there is none, and kept for the next message."""
        session = self._sessions.get(address)
        if session is None:
            session = self._store.ensure_session(
                address.name, self._ids.session(now_ms), self._ids.branch(now_ms), now_ms, address.tenant
            )
            if len(self._sessions) >= _MAX_SESSIONS:
                self._sessions.clear()
            self._sessions[address] = session
        return session

    def _admitted(
        self, session: Session, receipt: Receipt, when_busy: BusyPolicy, offer: Offer | None = None
    ) -> Admitted:
        before = receipt.before
        if before is None:
            before = self._store.waiting_before(receipt.message_id)
        return Admitted(receipt, when_busy, before, self._store, self._blobs, session, offer)

    def repeated(self, arrival: Arrival) -> Admitted | None:
        """Return the message that one repeats under its idempotency key; ``None`` if it is a new one.

        Raises:
            IdempotencyConflict: the key was used with another body.
        """
        first = self._first(arrival.address, self._message(arrival))
        return self._admitted(*first, arrival.when_busy) if first is not None else None

    def _first(self, address: Address, message: NewMessage) -> tuple[Session, Receipt] | None:
        """Return the receipt of the message that a message repeats, with its session; ``None`` if it is a new one."""
        if message.idempotency_key is None:
            return None
        try:
            session = self._store.session(address.name, address.tenant)
            return session, self._store.admit(session.session_id, message, limit=0)  # so a new one is refused
        except (NotFound, InboxFull):
            return None

    def find(self, address: Address, message_id: MessageId) -> Admitted:
        """Return a message that was admitted earlier. It preempts nothing: its policy was for its admission.

        Raises:
            UnknownAgent: there is no such agent.
            NotFound: the agent never got the message, or its record was pruned.
        """
        session = find_session(self._store, address)
        message = message_of(self._store, session, message_id)
        receipt = Receipt(session.session_id, message_id, message.position, repeated=True)
        before = self._store.waiting_before(message_id)
        return Admitted(receipt, BusyPolicy.ENQUEUE, before, self._store, self._blobs, session)


def _offer(arrival: Arrival, receipt: Receipt, message: NewMessage) -> Offer | None:
    if arrival.epoch is None or receipt.repeated or len(message.body) > _SMALL_BYTES:
        return None
    admitted = InboxMessage(
        receipt.session_id,
        receipt.position,
        message.message_id,
        message.idempotency_key,
        message.sender,
        message.body,
        message.admitted_ms,
        0,
        MessageStatus.PENDING,
        message.headers,
    )
    return Offer(admitted, arrival.epoch)


def position_of(store: JournalStore, address: Address) -> tuple[int | None, bool]:
    """Return an agent's last turn, ``None`` if it never started, and whether messages wait in its inbox."""
    try:
        session = store.session(address.name, address.tenant)
    except NotFound:
        return None, False
    head, waits = store.head(session.main_branch_id), store.pending(session.session_id, limit=1)
    return head.turn if head.seq else None, bool(waits)
