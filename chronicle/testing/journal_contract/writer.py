"""A branch as the contract's tests write it, and what they take as ids and times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chronicle.ids import EventId, IdSource, MessageId
from chronicle.journal.chain import seal
from chronicle.journal.records import DEFAULT_NAMESPACE, Commit, Draft, Head, NewMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event, Session

__all__ = ["IDS", "NOW_MS", "TTL_MS", "Contract", "Writer", "ids_of"]


IDS = IdSource()
NOW_MS = 1_700_000_000_000
TTL_MS = 30_000


@dataclass(slots=True)
class Writer:
    """Writes a session's branch as an agent's turns would, and remembers what it wrote."""

    store: JournalStore
    session: Session
    head: Head
    epoch: int | None = None

    @classmethod
    def on(cls, store: JournalStore, name: str = "hello/alice", namespace: str = DEFAULT_NAMESPACE) -> Writer:
        """Open, or make, the session of that name."""
        session = store.ensure_session(name, IDS.session(NOW_MS), IDS.branch(NOW_MS), NOW_MS, namespace)
        return cls(store, session, store.head(session.main_branch_id))

    def draft(self, event_type: str = "note", payload: Any = None, *, turn: int | None = None) -> Draft:
        """Return a draft for the next turn."""
        turn = self.head.turn + 1 if turn is None else turn
        return Draft(IDS.event(NOW_MS), event_type, payload, turn, NOW_MS + turn, "msg_1", "msg_1")

    def commit_of(self, *drafts: Draft, **more: Any) -> Commit:
        """Return a commit of drafts on top of the head; of one event without any."""
        events = seal(self.head, drafts or [self.draft()])
        return Commit(self.session.session_id, self.head, events, self.epoch, **more)

    def write(self, *drafts: Draft, **more: Any) -> tuple[Event, ...]:
        """Commit drafts and go on from the new head."""
        commit = self.commit_of(*drafts, **more)
        self.head = self.store.commit(commit)
        return commit.events

    def turns(self, count: int, **more: Any) -> list[Event]:
        """Commit turns of two events each; ``more`` goes with each commit."""
        events: list[Event] = []
        for _ in range(count):
            text = self.draft("user_message", {"text": f"turn {self.head.turn + 1}"})
            events += self.write(text, self.draft("turn.committed", {"n": self.head.turn + 1}), **more)
        return events

    def fork(self, seq: int) -> Writer:
        """Fork the branch in its session."""
        branch = self.store.fork_branch(self.head.branch_id, seq, IDS.branch(NOW_MS), NOW_MS)
        return Writer(self.store, self.session, branch.head, self.epoch)

    def admit(self, body: bytes = b"{}", key: str | None = None, **more: Any) -> MessageId:
        """Admit a message and return its id."""
        message = NewMessage(IDS.message(NOW_MS), body, NOW_MS, key, **more)
        return self.store.admit(self.session.session_id, message).message_id


def ids_of(events: Sequence[Event]) -> list[EventId]:
    return [event.event_id for event in events]


class Contract:
    """A part of the contract: tests that take a fixture ``store``."""

    def other_handle(self, store: JournalStore) -> JournalStore:
        """Return another handle on the same data, as another process would have it; the same one if there is none."""
        return store
