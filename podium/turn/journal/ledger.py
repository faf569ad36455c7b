"""An agent's branch and inbox under a lease: the head for the next commit, reads with retry, commits with look-up.

A commit whose answer was lost is looked up by the id of its first event before the turn is answered or rolled back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from chronicle.errors import ChronicleError, Conflict, NotFound, StaleEpoch, StorageRefused, Unavailable
from chronicle.journal.records import Head, Outcome
from podium.address import label
from podium.errors import Evicted, TurnsLost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Commit, InboxMessage, Lease, Reminder, Session, StoredStep
    from podium.blocking import BlockingRunner

    class Committer(Protocol):
        """Commits without blocking the event loop; several callers may share one sync to disk."""

        async def commit(self, commit: Commit) -> Head:
            """Do what `JournalStore.commit` does."""
            ...

        async def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
            """Do what `JournalStore.put_step` does."""
            ...

    class LeaseWatch(Protocol):
        """Knows whether the lease of an activation is held still."""

        def is_sure(self, lease: Lease) -> bool:
            """Return whether the lease was renewed lately, so that nobody else can have acquired it; cheap."""
            ...

        def renew(self, lease: Lease) -> bool:
            """Renew the lease now; return whether it is held. Blocks.

            Raises:
                ChronicleError: the journal cannot be reached.
            """
            ...


__all__ = ["Ledger", "Offer"]

_T = TypeVar("_T")
_RETRY_DELAYS_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Back-off between look-ups of a commit whose answer was lost; the last one repeats until the store answers."""

_READ_AHEAD: Final = 8
"""Messages read at a time: a read of one costs half as much as one of eight."""
_READ_AGAIN: Final = frozenset({Outcome.FAILED, Outcome.PAUSED})
"""Outcomes after which what was read ahead is not next: the message has one more attempt, or holds up the others."""
_SMALL_BYTES: Final = 64 * 1024
"""After a larger message, messages are read one by one, which bounds the memory for large ones."""

_log = structlog.stdlib.get_logger("podium.turn.journal.ledger")


@dataclass(frozen=True, slots=True)
class Offer:
    """A message that was admitted a moment ago: pending, and without an attempt."""

    message: InboxMessage
    epoch: int
    """Of a lease of its agent that was in force when it was admitted."""


class Ledger:
    """The journal under one lease.

    Args:
        store: for the inbox and for lost answers.
        committer: makes the commits.
        session: the agent's.
        lease: of all commits.
        head: the branch's head when the lease was acquired.
        run_store: makes the store's blocking calls.
        leases: tells whether the lease is held still; ``None`` where no other process acquires it.
    """

    def __init__(
        self,
        store: JournalStore,
        committer: Committer,
        session: Session,
        lease: Lease,
        head: Head,
        run_store: BlockingRunner = asyncio.to_thread,
        leases: LeaseWatch | None = None,
    ) -> None:
        self._store = store
        self._leases = leases
        self._committer = committer
        self._run_store = run_store
        self._ahead: list[InboxMessage] = []
        """The oldest pending messages, read ahead: only the lease's holder settles messages."""
        self._small = True
        self._all_ahead = False
        """Whether the last read of the inbox returned all that was in it, so that what is admitted next is next."""
        self._held_up: bool | None = None
        """Whether the head of the inbox was paused when it was last read; ``None`` until that is known. Only the
        lease's holder pauses one."""
        self._read_to = 0
        """The highest position of a message that was read, offered or passed over."""
        self._with_steps: set[MessageId] | None = None
        """The messages that may have steps; ``None`` until the store was asked. Only the lease's holder adds some."""
        self.session = session
        self.lease = lease
        self.head = head

    @property
    def epoch(self) -> int:
        """The lease's epoch."""
        return self.lease.epoch

    async def make_sure(self) -> None:
        """Return when the lease is held for sure; at once, unless it was not renewed lately.

        What begins after it may have effects outside, which no fence takes back: a host that was cut off, or stopped,
        goes on where it was, and another one has handled its messages meanwhile.

        Raises:
            Evicted: another holder has the lease.
        """
        leases, lease = self._leases, self.lease
        if leases is None or leases.is_sure(lease):
            return
        if not await self.read(lambda: leases.renew(lease)):
            raise Evicted(f"{label(self.session)}: epoch {lease.epoch} is over: another holder has the lease")

    async def append(self, commit: Commit) -> Head:
        """Commit; durable when it returns.

        If the caller is cancelled, the commit may or may not happen: call it from a task that is not cancelled.

        Raises:
            Evicted: another epoch or another writer has the branch; nothing was written.
            TurnsLost: the journal does not have the head; nothing was written.
            StorageRefused: the store's disk is full or refuses writes; nothing was written.
        """
        attempt = 0
        while True:
            try:
                self.head = await self._committer.commit(commit)
            except (StaleEpoch, Conflict, NotFound) as error:
                if attempt and await self._happened(commit):
                    return self.head
                await self.check_head()
                if isinstance(error, NotFound):
                    raise
                raise Evicted(f"{label(self.session)}: {error}") from error
            except StorageRefused:  # nothing was written, and a retry would be refused again
                if attempt and await self._happened(commit):
                    return self.head
                raise
            except Unavailable as error:
                delay_s = _RETRY_DELAYS_S[min(attempt, len(_RETRY_DELAYS_S) - 1)]
                _log.warning(
                    "commit_outcome_unknown", session=label(self.session), error=str(error), retry_in_s=delay_s
                )
                await asyncio.sleep(delay_s)
                attempt += 1
                if await self._happened(commit):
                    return self.head
            else:
                self._drop_settled(commit)
                return self.head

    async def check_head(self) -> None:
        """Check that the journal has the head, if it can be read now.

        Raises:
            TurnsLost: it does not have it, and no later holder of the lease has folded it.
            Evicted: another holder has the lease, and so the right to read it (`coordinator.store.permits`).
        """
        head = self.head
        if head.event_id is None:
            return
        try:
            found = await self._run_store(self._store.find_event, head.event_id)
            if found is None and await self._is_folded(head):
                return
        except NotFound as error:
            raise Evicted(f"{label(self.session)}: {error}") from error
        except ChronicleError:
            return
        if found is None:
            raise TurnsLost(
                f"{label(self.session)}: the journal has lost turn {head.turn}, event {head.event_id}, which was "
                "committed: it was restored, or a standby was promoted that lacks it"
            )

    async def _is_folded(self, head: Head) -> bool:
        """Whether the events up to a head were dropped, in order."""
        try:
            branch = await self._run_store(self._store.branch, head.branch_id)
        except NotFound:
            return False
        return head.seq <= branch.folded_seq

    async def steps(self, message_id: MessageId) -> Sequence[StoredStep]:
        """Return the steps of earlier attempts of a message, by number."""
        if self._with_steps is None:
            found = await self.read(lambda: self._store.steps_of_session(self.session.session_id))
            self._with_steps = {step.message_id for step in found}
        if message_id not in self._with_steps:
            return ()
        return await self.read(lambda: self._store.steps(message_id))

    async def put_step(self, step: StoredStep) -> None:
        """Store a step of the message that is being handled, durably.

        If the caller is cancelled, it may or may not be stored: call it from a task that is not cancelled.

        Raises:
            Evicted: another epoch has the session; nothing was written.
            StorageRefused: the store's disk is full or refuses writes; nothing was written.
        """
        if self._with_steps is not None:
            self._with_steps.add(step.message_id)
        attempt = 0
        while True:
            try:
                await self._committer.put_step(self.session.session_id, step, self.epoch)
            except (StaleEpoch, Conflict) as error:
                if attempt and await self._is_stored(step):
                    return
                raise Evicted(f"{label(self.session)}: {error}") from error
            except StorageRefused:
                raise
            except Unavailable as error:
                delay_s = _RETRY_DELAYS_S[min(attempt, len(_RETRY_DELAYS_S) - 1)]
                _log.warning("step_outcome_unknown", session=label(self.session), error=str(error), retry_in_s=delay_s)
                await asyncio.sleep(delay_s)
                attempt += 1
            else:
                return

    async def next_message(self) -> InboxMessage | None:
        """Return the oldest pending message; one put back into the inbox may follow newer ones that were read ahead."""
        if not self._ahead:
            limit = _READ_AHEAD if self._small else 1
            self._ahead = list(await self.read(lambda: self._store.pending(self.session.session_id, limit=limit)))
            if self._ahead:
                self._held_up = False
            elif self._held_up is None:
                self._held_up = await self.paused_message() is not None
            self._all_ahead = len(self._ahead) < limit and not self._held_up
            if self._ahead:
                self._read_to = max(self._read_to, self._ahead[-1].position)
        if not self._ahead:
            return None
        self._small = len(self._ahead[0].body or b"") <= _SMALL_BYTES
        return self._ahead[0]

    async def paused_message(self) -> InboxMessage | None:
        """Return the paused message, which is the head of the inbox; ``None`` without one."""
        return await self.read(lambda: self._store.paused_message(self.session.session_id))

    @property
    def is_held_up(self) -> bool:
        """Whether the head of the inbox was paused when it was last read."""
        return bool(self._held_up)

    def offer(self, offer: Offer) -> None:
        """Take the next message from the process that has just admitted it, which spares a read of the inbox.

        It is taken if this lease was in force before it was admitted, so that nobody else can have attempted or settled
        it, if the last read returned all that was in the inbox, and if nothing is between. Else it is read as usual.
        """
        message = offer.message
        is_ours = offer.epoch == self.epoch and message.session_id == self.session.session_id
        is_next = self._all_ahead and message.position == self._read_to + 1 > 1
        if is_ours and is_next and len(self._ahead) < _READ_AHEAD:
            self._ahead.append(message)
            self._read_to = message.position

    def pass_over(self, message: InboxMessage) -> None:
        """Note that a message is about to be settled that may not have been read: it is not to be offered any more."""
        self._read_to = max(self._read_to, message.position)

    @property
    def has_read_ahead(self) -> bool:
        """Whether `next_message` returns a message that was read before."""
        return bool(self._ahead)

    @property
    def is_drained(self) -> bool:
        """Whether all messages that were in the inbox at its last read are settled."""
        return self._all_ahead and not self._ahead

    def is_open(self, message_id: MessageId, position: int | None) -> bool:
        """Whether a message is known not to be settled: it was read ahead, or admitted after all that were read.

        Subscribers that its stream had before are then told of its end.

        Args:
            position: in the inbox; ``None`` if it is not known.
        """
        if position is None:
            return False
        return position > self._read_to > 0 or any(each.message_id == message_id for each in self._ahead)

    async def reminders(self) -> Sequence[Reminder]:
        """Return the agent's reminders, by name, with its delayed messages and the end of a pause."""
        return await self.read(lambda: self._store.reminders(self.session.session_id))

    async def read(self, call: Callable[[], _T]) -> _T:
        """Run a blocking read of the store; retry while the store is unavailable."""
        attempt = 0
        while True:
            try:
                return await self._run_store(call)
            except Unavailable as error:
                delay_s = _RETRY_DELAYS_S[min(attempt, len(_RETRY_DELAYS_S) - 1)]
                _log.warning("store_unavailable", session=label(self.session), error=str(error), retry_in_s=delay_s)
                await asyncio.sleep(delay_s)
                attempt += 1

    async def _happened(self, commit: Commit) -> bool:
        """Return whether a commit whose answer was lost happened; if it did, its last event is the head.

        Raises:
            Evicted: another holder has the lease, and so the right to read it (`coordinator.store.permits`).
        """
        first, last = commit.events[0], commit.events[-1]
        try:
            if await self.read(lambda: self._store.find_event(first.event_id)) is None:
                return False
        except NotFound as error:
            raise Evicted(f"{label(self.session)}: {error}") from error
        self.head = Head(last.branch_id, last.seq, last.event_id, last.hash, last.turn, last.ts)
        self._drop_settled(commit)
        return True

    async def _is_stored(self, step: StoredStep) -> bool:
        try:
            return step in await self.read(lambda: self._store.steps(step.message_id))
        except NotFound:  # another holder has the lease, and so the right to read it
            return False

    def _drop_settled(self, commit: Commit) -> None:
        """Drop the messages that a commit has settled from those read ahead."""
        settled = {settlement.message_id for settlement in commit.settled}
        if self._held_up and any(settlement.outcome is Outcome.CANCELLED for settlement in commit.settled):
            self._held_up = None  # it may be the paused one
        if any(settlement.outcome in _READ_AGAIN for settlement in commit.settled):
            self._ahead, self._all_ahead = [], False
            self._held_up = any(settlement.outcome is Outcome.PAUSED for settlement in commit.settled)
        elif settled:
            self._ahead = [message for message in self._ahead if message.message_id not in settled]
