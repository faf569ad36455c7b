"""Conversations with front ends: what was said, what runs, and sending a message, again or changed.

A front end's id of a message is its idempotency key. The messages of one id form a chain: the first one has the key
``WIRE:CONVERSATION/ID``, each further one (an edit, or the same again) has the id of the one before in its key. So a
repetition of a request finds what the first one did, at any gateway, and nothing but the journal is needed for that.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakValueDictionary

from chronicle.canonical import decode, encode
from chronicle.errors import NotFound
from chronicle.journal.payloads import payload_of
from chronicle.journal.records import MessageStatus
from coordinator.frontends.conversation import WIRES, Exchange, TranscriptEvent, client_id, exchanges
from coordinator.operations import objects
from coordinator.operations.history import state_object
from coordinator.service.client import ServiceRefused
from podium.agent_record import find_session, turn_end_seq
from podium.errors import UnknownAgent, UnknownMoment
from podium.events import TRANSCRIPT_EVENTS, TURN_CANCELLED, TURN_FAILED, USER_MESSAGE
from podium.history.transcript import transcript_events, visible_transcript
from podium.messages.inbox import list_inbox, waiting_messages
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.records import Event, Head, InboxMessage, Session
    from coordinator.frontends.conversation import SentMessage
    from coordinator.operations.agents import HomeAgents
    from podium.address import Address
    from podium.caller import Caller
    from podium.history.transcript import Transcript

__all__ = ["Conversations", "body_of", "body_of_event", "last_event", "wire_of"]

_WINDOW: Final = 1000
"""Events read at a time, backwards from the head: what is searched is nearly always recent."""
_MAX_PLANS: Final = 8
"""How often a plan is made anew because a message was settled while it was being cancelled."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Work before a message is admitted, and the key that it is admitted under."""

    key: str
    cancel: tuple[str, ...] = ()
    """Pending messages that go first."""
    drop: str | None = None
    """A parked one."""
    rewind_to: int | None = None
    retry: str | None = None
    """A parked message that is retried instead."""
    repeats: str | None = None
    """The message that it is; nothing is admitted."""


class Conversations:
    """Conversations with the agents of a home."""

    def __init__(self, agents: HomeAgents) -> None:
        self._agents = agents
        self._orders: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()

    async def send(
        self,
        address: Address,
        sent: SentMessage,
        caller: Caller,
        *,
        again: bool = False,
        answer: str | None = None,
        replaces: bool = False,
        when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
        trace: str | None = None,
    ) -> objects.Receipt:
        """Admit a message of a front end, durably.

        The same message again is what the first one was. If it has changed, or is to be handled ``again``, the agent is
        rewound to before it first: state, files and transcript. What front ends sent after it and waits is cancelled.

        Args:
            caller: who asks, if the message is a new one.
            again: handle it again, though it is the same.
            answer: the id of the answer that is not wanted: a message of podium. With it a repetition is known.
            replaces: whether the front end says that it edits an earlier message.

        Raises:
            InvalidInput: the message is not JSON.
            UnknownMoment: the history before the message was dropped.
            as `HomeAgents.send` and `HomeAgents.rewind`.
        """
        encode(sent.body)
        async with self._orders.setdefault(address, asyncio.Lock()):
            plan = await self._plan(address, sent, again=again, answer=answer, replaces=replaces)
            if plan.retry is not None:
                await self._agents.retry(address, plan.retry)
            if (message_id := plan.retry or plan.repeats) is not None:
                return await self._agents.receipt(address, message_id)
            if plan.drop is not None:
                with suppress(NotFound):
                    await self._agents.drop(address, plan.drop)
            if plan.rewind_to is not None:
                await self._agents.rewind(address, plan.rewind_to)
            return await self._agents.send(
                address, sent.body, idempotency_key=plan.key, when_busy=when_busy, trace=trace, caller=caller
            )

    async def exchanges(self, address: Address, limit: int) -> tuple[list[Exchange], bool]:
        """Return the last exchanges of an agent, those included that wait or are parked; and whether there are earlier.

        Raises:
            UnknownAgent: there is no such agent.
        """
        found = await self._agents.stores.read(_all_exchanges, address)
        return found[-limit:], len(found) > limit

    async def running(self, address: Address, chat: str) -> objects.Receipt | None:
        """Return the message whose answer a chat waits for; ``None`` if the agent has no message to handle.

        It is the chat's first one that waits or is being handled. If the chat has none, it is the one that the agent
        handles now, whoever sent it: a chat shows the messages of all.
        """
        return await self._agents.stores.read(lambda store, _: _running(store, address, chat))

    async def before(self, address: Address, message_id: str, turn: int) -> Mapping[str, Any]:
        """Return what an agent was before a turn: ``state``, and ``messages``, the exchanges and the message itself.

        What the record does not have any more is absent.
        """
        found: dict[str, Any] = {}
        with suppress(UnknownMoment, UnknownAgent):
            found["state"] = (await self._agents.read(state_object, address, turn - 1)).state
            found["messages"] = await self._agents.stores.read(_exchanges_before, address, message_id, turn)
        return found

    async def _plan(
        self, address: Address, sent: SentMessage, *, again: bool, answer: str | None, replaces: bool
    ) -> _Plan:
        """Return the plan of a message, once what it replaces is no longer pending."""
        for _ in range(_MAX_PLANS):
            plan = await self._agents.stores.read(
                lambda store, blobs: _Planning(store, blobs, address, sent).plan(
                    again=again, answer=answer, replaces=replaces
                )
            )
            for message_id in plan.cancel:
                await self._cancel(address, message_id)
            if not plan.cancel:
                break
        return plan

    async def _cancel(self, address: Address, message_id: str) -> None:
        try:
            await self._agents.cancel(address, message_id)
        except NotFound:  # it was handled at this moment
            return
        except ServiceRefused as error:
            if error.kind != NotFound.__name__:
                raise


class _Planning:
    """Finds out what has to be done for a message. It reads only."""

    def __init__(self, store: JournalStore, blobs: BlobReader, address: Address, sent: SentMessage) -> None:
        self._store = store
        self._blobs = blobs
        self._address = address
        self._sent = sent
        self._session: Session | None = None
        with suppress(UnknownAgent):
            self._session = find_session(store, address)

    def plan(self, *, again: bool, answer: str | None, replaces: bool) -> _Plan:
        """Return the plan."""
        session, first = self._session, self._sent.key
        if session is None:
            return _Plan(first)
        head = self._store.head(session.main_branch_id)
        chain, key = self._chain(session, first)
        if not chain:
            place = self._visible_place(head) if again or replaces else None
            return _Plan(first) if place is None else self._rerun(session, head, first, None, place)
        last = chain[-1]
        event = self._event_of(head, last)
        same = self._is_same(last, event)
        if again and answer is not None and answer in {each.message_id for each in chain[:-1]}:
            return _Plan(key, repeats=last.message_id)  # an earlier request like this one has replaced the answer
        if not again:
            if same is None:
                again = replaces
            elif same and replaces:
                again = last.status is MessageStatus.PARKED or self._is_over(session, head, last, event)
            else:
                again = not same
        if not again:
            return _Plan(key, repeats=last.message_id)
        if last.status is MessageStatus.PARKED and same and not self._is_over(session, head, last, event):
            return _Plan(key, retry=last.message_id)
        return self._rerun(session, head, key, last, event)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _chain(self, session: Session, first: str) -> tuple[list[InboxMessage], str]:
        """Return the messages of the id in this inbox, the latest last, and the key of another one."""
        chain: list[InboxMessage] = []
        key = first
        while (found := self._store.message_of_key(session.session_id, key)) is not None:
            chain.append(found)
            key = f"{first}@{found.message_id}"
        return chain, key

    def _event_of(self, head: Head, message: InboxMessage) -> Event | None:
        """Return the event that tells the turn at which a message was handled or given up."""
        if not message.status.is_settled:
            return None
        handled = message.status is MessageStatus.CONSUMED
        types = (USER_MESSAGE,) if handled else (USER_MESSAGE, TURN_CANCELLED, TURN_FAILED)
        return last_event(self._store, head, types, lambda event: event.correlation_id == message.message_id)

    def _is_same(self, message: InboxMessage, event: Event | None) -> bool | None:
        """Whether a message is the one that is sent; ``None`` if its body is not known any more.

        A run of AG-UI is known by its id: a client that repeats it may have another state by now.
        """
        if message.body is not None:
            body: Mapping[str, Any] = body_of(message)
        elif event is not None and event.type == USER_MESSAGE and not event.erased:
            body = body_of_event(event, self._blobs)
        else:
            return None
        sent = self._sent.body
        if "ag_ui" in sent and "ag_ui" in body:
            return bool(body["ag_ui"]["run"] == sent["ag_ui"]["run"])
        return encode(body) == encode(sent)

    def _is_over(self, session: Session, head: Head, message: InboxMessage, event: Event | None) -> bool:
        """Whether the conversation went on after a message, or went back to before it."""
        if any(each.position > message.position for each in self._waiting(session)):
            return True
        if event is None:
            return False
        transcript = self._transcript(head)
        if event.type == USER_MESSAGE and not transcript.has(event.seq):
            return True
        later = self._store.events(head.branch_id, event.seq, head.seq, (USER_MESSAGE,))
        return any(transcript.has(each.seq) and wire_of(body_of_event(each, self._blobs)) for each in later)

    def _rerun(self, session: Session, head: Head, key: str, last: InboxMessage | None, event: Event | None) -> _Plan:
        from_position = last.position if last is not None else 0
        cancel = tuple(each.message_id for each in self._waiting(session) if each.position >= from_position)
        drop = last.message_id if last is not None and last.status is MessageStatus.PARKED else None
        return _Plan(key, cancel, drop, self._turn_before(session, head, last, event))

    def _turn_before(self, session: Session, head: Head, last: InboxMessage | None, event: Event | None) -> int | None:
        """Return the turn to rewind to; ``None`` if there is nothing to take back."""
        if event is None:
            return None
        if last is None or last.status is MessageStatus.CONSUMED:
            return event.turn - 1 if self._transcript(head).has(event.seq) else None
        # It committed nothing; what came after it did.
        return event.turn if head.turn > event.turn and self._is_over(session, head, last, event) else None

    def _waiting(self, session: Session) -> Sequence[InboxMessage]:
        """Return the messages of front ends that wait or are being handled."""
        return [each for each in waiting_messages(self._store, session) if wire_of(body_of(each))]

    def _visible_place(self, head: Head) -> Event | None:
        """Return the event of the message in the transcript: a fork inherits messages that its inbox never had."""
        transcript = self._transcript(head)
        wanted = self._sent.id

        def matches(event: Event) -> bool:
            return (
                transcript.has(event.seq)
                and client_id(event.correlation_id or "", body_of_event(event, self._blobs)) == wanted
            )

        return last_event(self._store, head, (USER_MESSAGE,), matches)

    def _transcript(self, head: Head) -> Transcript:
        return visible_transcript(self._store, self._blobs, self._address, head)


def wire_of(body: Mapping[str, Any]) -> str | None:
    """Return the wire of the front end that sent a message; ``None`` if none did."""
    return next((wire for wire in WIRES if isinstance(body.get(wire), dict)), None)


def last_event(store: EventRecords, head: Head, types: Sequence[str], matches: Any) -> Event | None:
    """Return the last event of some types that a predicate accepts."""
    end = head.seq
    while end > 0:
        start = max(0, end - _WINDOW)
        for event in reversed(list(store.events(head.branch_id, start, end, types))):
            if matches(event):
                return event
        end = start
    return None


def body_of_event(event: Event, blobs: BlobReader) -> Mapping[str, Any]:
    """Return the body of the message of an event; empty if it was erased."""
    if event.erased:
        return {}
    return cast("Mapping[str, Any]", cast("Mapping[str, Any]", payload_of(event, blobs))["message"])


def body_of(message: InboxMessage) -> Mapping[str, Any]:
    """Return the body of a message that waits; empty if it has none any more."""
    return cast("Mapping[str, Any]", decode(message.body)) if message.body is not None else {}


def _running(store: JournalStore, address: Address, chat: str) -> objects.Receipt | None:
    with suppress(UnknownAgent):
        waiting = waiting_messages(store, find_session(store, address))
        own = (message for message in waiting if _chat_of(body_of(message)) == chat)
        if (message := next(own, waiting[0] if waiting else None)) is not None:
            return objects.Receipt(
                message_id=message.message_id,
                agent=address.name,
                position=message.position,
                before=store.waiting_before(message.message_id),
            )
    return None


def _chat_of(body: Mapping[str, Any]) -> str | None:
    match body:
        case {"ui": {"chat": str(chat)}}:
            return chat
        case _:
            return None


def _all_exchanges(store: JournalStore, blobs: BlobReader, address: Address) -> list[Exchange]:
    session = find_session(store, address)
    head = store.head(session.main_branch_id)
    found = exchanges(_events(store, blobs, head, visible_transcript(store, blobs, address, head)))
    for entry in list_inbox(store, blobs, session):
        message = entry.message
        status = cast("Any", message.status.value)
        found.append(
            Exchange(
                message.message_id,
                head.turn,
                body_of(message),
                message.sender,
                status=status,
                error=cast("Any", entry.error) if message.status is MessageStatus.PARKED else None,
            )
        )
    return found


def _exchanges_before(
    store: JournalStore, blobs: BlobReader, address: Address, message_id: str, turn: int
) -> list[Exchange]:
    session = find_session(store, address)
    head = store.head(session.main_branch_id)
    end = turn_end_seq(store, address, head, turn - 1)
    found = exchanges(_events(store, blobs, head, visible_transcript(store, blobs, address, head, end)))
    message = store.message(cast("Any", message_id))
    if message.body is not None:
        return [*found, Exchange(message_id, turn, body_of(message), message.sender, status="pending")]
    handled = exchanges(
        each
        for each in _events(store, blobs, head, visible_transcript(store, blobs, address, head))
        if each.message_id == message_id and each.type == USER_MESSAGE
    )
    return [*found, *(replace(each, items=[]) for each in handled)]


def _events(store: JournalStore, blobs: BlobReader, head: Head, transcript: Transcript) -> Iterator[TranscriptEvent]:
    for event in transcript_events(store, head.branch_id, transcript):
        if event.erased or event.type not in TRANSCRIPT_EVENTS:
            continue
        yield TranscriptEvent(
            event.type, event.turn, event.correlation_id or "", cast("Mapping[str, Any]", payload_of(event, blobs))
        )
