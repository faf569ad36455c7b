"""Threads of AG-UI: which agent has the next run of a thread.

A thread begins at the agent of its route. A run whose ``parentRunId`` is not the thread's last run continues from that
earlier one: the agent is forked at its turn, and the thread's later runs go to the fork. Forks have keys made of the
agent's key, the thread's id and a number, so the fork that a thread has come to is found in the journal by any gateway.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from coordinator.operations.conversations import body_of, body_of_event, last_event
from podium.address import MAX_KEY_LENGTH, Address
from podium.agent_record import find_session, is_agent
from podium.errors import AgentExists, UnknownAgent
from podium.events import USER_MESSAGE
from podium.history.transcript import visible_transcript
from podium.messages.inbox import waiting_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event, InboxMessage
    from coordinator.operations.agents import HomeAgents

__all__ = ["agent_of_run"]

_DIGITS: Final = 12
"""Hexadecimal digits of the thread in a fork's key."""
_ROOM: Final = 12
"""Characters of a fork's key for its number and the separators."""
_MAX_TRIES: Final = 4
"""Forks of one thread that other requests may make meanwhile."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run goes."""

    agent: Address
    """The agent that has it; with ``fork_at``, the one that is forked."""
    fork_at: int | None = None
    next_key: str = ""


async def agent_of_run(
    agents: HomeAgents,
    root: Address,
    thread_id: str,
    run_id: str,
    parent_run_id: str | None,
    message_key: str,
    permit: Callable[[Address], None],
) -> Address:
    """Return the agent that has a run; forks one if the run continues from an earlier run of its thread.

    A parent that the thread does not have is ignored: it names a run of another agent.

    Args:
        root: the agent at which the thread began.
        message_key: the key of the message that is sent (`SentMessage.key`).
        permit: raises if the caller may not use an agent.

    Raises:
        UnknownMoment: the history of the parent was dropped.
        QuotaExceeded: the tenant has as many agents as it may have.
    """
    for _ in range(_MAX_TRIES):
        place = await agents.stores.read(
            lambda store, blobs: _Thread(store, blobs, root, thread_id).place(run_id, parent_run_id, message_key)
        )
        permit(place.agent)
        if place.fork_at is None:
            return place.agent
        fork = Address(root.agent_type, place.next_key, root.tenant)
        permit(fork)
        try:
            await agents.fork(place.agent, place.next_key, place.fork_at)
        except AgentExists:
            continue
        return fork
    raise AgentExists(f"other runs fork the thread {thread_id!r} of {root} at the same time; try again")


class _Thread:
    """A thread in the journal. It reads only."""

    def __init__(self, store: JournalStore, blobs: BlobReader, root: Address, thread_id: str) -> None:
        self._store = store
        self._blobs = blobs
        self._root = root
        self._thread_id = thread_id
        digest = sha256(f"{root.key}\0{thread_id}".encode()).hexdigest()[:_DIGITS]
        self._stem = f"{root.key[: MAX_KEY_LENGTH - _DIGITS - _ROOM].rstrip('. ')}.{digest}-"

    def place(self, run_id: str, parent_run_id: str | None, message_key: str) -> _Place:
        """Return where a run goes."""
        forks = self._forks()
        agents = [*(agent for _, agent in reversed(forks)), self._root]
        current = agents[0]
        if parent_run_id is None or self._has(current, run_id, message_key):
            return _Place(current)
        next_key = f"{self._stem}{(forks[-1][0] if forks else 0) + 1}"
        for agent in agents:
            try:
                parent = self._run(agent, parent_run_id)
            except UnknownAgent:
                continue
            if parent is None:
                continue
            if agent == current and (parent.turn_event is None or not self._goes_on(agent, parent.turn_event)):
                return _Place(current)
            if parent.turn_event is not None:
                return _Place(agent, parent.turn_event.turn, next_key)
        return _Place(current)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _forks(self) -> list[tuple[int, Address]]:
        """Return the thread's forks with their numbers, the latest last."""
        prefix = f"{self._root.agent_type}/{self._stem}"
        found: list[tuple[int, Address]] = []
        after = ""
        while page := self._store.sessions(prefix, self._root.tenant, after=after, limit=100):
            after = page[-1].name
            for session in page:
                number = session.name.removeprefix(prefix)
                if is_agent(session) and number.isascii() and number.isdigit():
                    found.append((int(number), Address.of(session)))
            if len(page) < 100:
                break
        return sorted(found)

    def _has(self, agent: Address, run_id: str, first: str) -> bool:
        """Whether an agent has a run already: its request is a repetition."""
        try:
            session = find_session(self._store, agent)
        except UnknownAgent:
            return False
        key, last = first, None
        while (found := self._store.message_of_key(session.session_id, key)) is not None:
            key, last = f"{first}@{found.message_id}", found
        return last is not None and self._run_of_message(agent, last) == run_id

    def _run_of_message(self, agent: Address, message: InboxMessage) -> str | None:
        if message.body is not None:
            return self._run_in(body_of(message))
        head = self._store.head(find_session(self._store, agent).main_branch_id)
        event = last_event(self._store, head, (USER_MESSAGE,), lambda event: event.correlation_id == message.message_id)
        return self._run_in(body_of_event(event, self._blobs)) if event is not None else None

    def _run(self, agent: Address, run_id: str) -> _Run | None:
        """Return a run that an agent has, its own or an inherited one."""
        session = find_session(self._store, agent)
        for message in waiting_messages(self._store, session):
            if self._run_in(body_of(message)) == run_id:
                return _Run(None)
        head = self._store.head(session.main_branch_id)
        transcript = visible_transcript(self._store, self._blobs, agent, head)
        event = last_event(
            self._store,
            head,
            (USER_MESSAGE,),
            lambda event: transcript.has(event.seq) and self._run_in(body_of_event(event, self._blobs)) == run_id,
        )
        return _Run(event) if event is not None else None

    def _goes_on(self, agent: Address, event: Event) -> bool:
        """Whether the thread has a run after the one of an event."""
        session = find_session(self._store, agent)
        head = self._store.head(session.main_branch_id)
        transcript = visible_transcript(self._store, self._blobs, agent, head)
        later = self._store.events(head.branch_id, event.seq, head.seq, (USER_MESSAGE,))
        return any(
            self._run_in(body_of(message)) is not None for message in waiting_messages(self._store, session)
        ) or any(
            transcript.has(each.seq) and self._run_in(body_of_event(each, self._blobs)) is not None for each in later
        )

    def _run_in(self, body: Mapping[str, Any]) -> str | None:
        """Return the id of the run that sent a message; ``None`` if it is not of this thread."""
        match body.get("ag_ui"):
            case {"thread": self._thread_id, "run": str(run_id)}:
                return run_id
            case _:
                return None


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that an agent has."""

    turn_event: Event | None
    """The event of its message; ``None`` while it waits or is being handled."""
