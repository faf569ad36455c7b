"""The contract of a journal store, as tests: subclass `JournalStoreContract` with a fixture ``store`` and run pytest.

    class TestMyStore(JournalStoreContract):
        @pytest.fixture
        def store(self) -> Iterator[JournalStore]:
            store = MyStore(...)
            yield store
            store.close()

Each test gets an empty store. Give a second way to the same data by overriding `other_handle`, if the store has one:
what one handle wrote, the other must see.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import (
    BranchInUse,
    BranchVersionConflict,
    ChronicleError,
    Conflict,
    IdempotencyConflict,
    InboxFull,
    InvalidInput,
    LeaseHeld,
    NotFound,
    StaleEpoch,
    Unavailable,
)
from chronicle.ids import BranchId, EventId, IdSource, MessageId, SessionId
from chronicle.journal.chain import check_events, empty_head, genesis_hash, seal
from chronicle.journal.records import (
    BranchChange,
    Commit,
    Draft,
    Head,
    MessageStatus,
    NewMessage,
    OutboxMessage,
    Outcome,
    Settlement,
    Snapshot,
)
from chronicle.journal.verify import Anchor, verify_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import BlobId
    from chronicle.journal.records import Event, Session
    from chronicle.journal.store import JournalStore

__all__ = ["JournalStoreContract", "Writer"]

_IDS = IdSource()
_NOW = 1_700_000_000_000
_TTL = 30_000


@dataclass(slots=True)
class Writer:
    """Writes a session's branch as an agent's turns would, and remembers what it wrote."""

    store: JournalStore
    session: Session
    head: Head
    epoch: int | None = None

    @classmethod
    def on(cls, store: JournalStore, name: str = "hello/alice") -> Writer:
        """Open, or make, the session of that name."""
        session = store.ensure_session(name, _IDS.session(_NOW), _IDS.branch(_NOW), _NOW)
        return cls(store, session, store.head(session.main_branch_id))

    def draft(self, event_type: str = "note", payload: Any = None, *, turn: int | None = None) -> Draft:
        """Return a draft for the next turn."""
        turn = self.head.turn + 1 if turn is None else turn
        return Draft(_IDS.event(_NOW), event_type, payload, turn, _NOW + turn, "msg_1", "msg_1")

    def commit_of(self, *drafts: Draft, **more: Any) -> Commit:
        """Return a commit of drafts on top of the head; of one event without any."""
        events = seal(self.head, drafts or [self.draft()])
        return Commit(self.session.session_id, self.head, events, self.epoch, **more)

    def write(self, *drafts: Draft, **more: Any) -> tuple[Event, ...]:
        """Commit drafts and go on from the new head."""
        commit = self.commit_of(*drafts, **more)
        self.head = self.store.commit(commit)
        return commit.events

    def turns(self, count: int) -> list[Event]:
        """Commit turns of two events each."""
        events: list[Event] = []
        for _ in range(count):
            text = self.draft("user_message", {"text": f"turn {self.head.turn + 1}"})
            events += self.write(text, self.draft("turn.committed", {"n": self.head.turn + 1}))
        return events

    def fork(self, seq: int) -> Writer:
        """Fork the branch in its session."""
        branch = self.store.fork_branch(self.head.branch_id, seq, _IDS.branch(_NOW), _NOW)
        return Writer(self.store, self.session, branch.head, self.epoch)

    def admit(self, body: bytes = b"{}", key: str | None = None, **more: Any) -> MessageId:
        """Admit a message and return its id."""
        message = NewMessage(_IDS.message(_NOW), body, _NOW, key, **more)
        return self.store.admit(self.session.session_id, message).message_id


def _ids(events: Sequence[Event]) -> list[EventId]:
    return [event.event_id for event in events]


class JournalStoreContract:
    """What every journal store promises."""

    def other_handle(self, store: JournalStore) -> JournalStore:
        """Return another handle on the same data, as another process would have it; the same one if there is none."""
        return store

    # -- sessions and branches ------------------------------------------------------------------------------------

    def test_a_session_is_made_once(self, store: JournalStore) -> None:
        first = store.ensure_session("hello/alice", SessionId("ses_1"), BranchId("br_1"), 5)
        again = store.ensure_session("hello/alice", SessionId("ses_2"), BranchId("br_2"), 6)
        assert again == first == store.session("hello/alice")
        assert (first.session_id, first.main_branch_id, first.created_ms) == ("ses_1", "br_1", 5)
        assert [branch.branch_id for branch in store.branches(first.session_id)] == ["br_1"]
        with pytest.raises(NotFound):
            store.branch(BranchId("br_2"))

    def test_concurrent_callers_get_the_same_session(self, store: JournalStore) -> None:
        with ThreadPoolExecutor(8) as pool:
            made = list(
                pool.map(lambda _: store.ensure_session("a/b", _IDS.session(_NOW), _IDS.branch(_NOW), _NOW), range(16))
            )
        assert len({session.session_id for session in made}) == 1

    def test_ids_are_not_given_twice(self, store: JournalStore) -> None:
        store.ensure_session("a/1", SessionId("ses_1"), BranchId("br_1"), 5)
        with pytest.raises(Conflict):
            store.ensure_session("a/2", SessionId("ses_1"), BranchId("br_2"), 5)
        with pytest.raises(Conflict):
            store.ensure_session("a/2", SessionId("ses_2"), BranchId("br_1"), 5)
        assert [session.name for session in store.sessions()] == ["a/1"]

    def test_sessions_by_prefix_in_order_of_name(self, store: JournalStore) -> None:
        for name in ("b/2", "a/1", "b/10", "é/1", "b_/1", "\U0001f600/1", "b%/1"):
            Writer.on(store, name)
        assert [session.name for session in store.sessions("b/")] == ["b/10", "b/2"]
        assert [session.name for session in store.sessions("b%")] == ["b%/1"]
        assert [session.name for session in store.sessions()] == sorted(session.name for session in store.sessions())
        assert len(store.sessions()) == 7
        assert [session.name for session in store.sessions("\U0001f600")] == ["\U0001f600/1"]
        assert not store.sessions("z")

    def test_what_is_not_there(self, store: JournalStore) -> None:
        for ask in (
            lambda: store.session("no/one"),
            lambda: store.branch(BranchId("br_no")),
            lambda: store.head(BranchId("br_no")),
            lambda: store.events(BranchId("br_no")),
            lambda: store.snapshot(BranchId("br_no")),
            lambda: store.message(MessageId("msg_no")),
            lambda: store.catalogue(SessionId("ses_no")),
            lambda: store.admit(SessionId("ses_no"), NewMessage(MessageId("msg_1"), b"{}", 1)),
            lambda: store.acquire_lease(SessionId("ses_no"), "h", 0, 1),
            lambda: store.fork_branch(BranchId("br_no"), 0, BranchId("br_1"), 1),
            lambda: store.delete_branch(BranchId("br_no"), 1),
            lambda: store.delete_session(SessionId("ses_no"), 1),
            lambda: store.fold(BranchId("br_no"), 1, 1),
            lambda: store.put_snapshot(Snapshot(BranchId("br_no"), 0, b"")),
        ):
            with pytest.raises(NotFound):
                ask()
        with pytest.raises(NotFound), store.audit(SessionId("ses_no")):
            pass
        assert store.find_event(EventId("evt_no")) is None
        assert store.lease(SessionId("ses_no")) is None
        assert not store.branches(SessionId("ses_no"))
        assert not store.pending(SessionId("ses_no"))
        assert not store.messages(SessionId("ses_no"), MessageStatus.PARKED)
        store.release_lease(SessionId("ses_no"), 1)
        store.outbox_delivered(MessageId("msg_no"))

    # -- events ---------------------------------------------------------------------------------------------------

    def test_an_empty_branch(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        assert writer.head == empty_head(writer.session.main_branch_id)
        assert writer.head.hash == genesis_hash(writer.session.main_branch_id)
        assert list(store.events(writer.head.branch_id)) == []

    def test_events_come_back_as_they_were_sealed(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        payloads: list[Any] = [
            None,
            0,
            2**80,
            "é\u2028\0",
            [],
            {"b": 1, "a": [1.5, True, {"x" * 900: None}]},
            "x" * 100_000,
        ]
        drafts = [writer.draft(payload=payload) for payload in payloads]
        drafts += [
            Draft(EventId("any id, even é"), "type", 1, 3, -5),
            Draft(_IDS.event(_NOW), "t", 1, 3, 2**53, None, "msg_b"),
            Draft(_IDS.event(_NOW), "t", 1, 2**62, 0, "msg_a", "msg_b"),
            Draft(_IDS.event(_NOW), "t", 1, 2**62, 0, "msg_a", None),
        ]
        events = writer.write(*drafts)
        for handle in (store, self.other_handle(store)):
            assert tuple(handle.events(writer.head.branch_id)) == events
            assert handle.head(writer.head.branch_id) == writer.head
            assert [handle.find_event(event.event_id) for event in events] == list(events)
        assert check_events(empty_head(writer.head.branch_id), store.events(writer.head.branch_id)) == writer.head

    def test_the_head_is_the_last_event(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(3)
        assert writer.head == Head(writer.head.branch_id, 6, events[-1].event_id, events[-1].hash, 3)
        assert store.branch(writer.head.branch_id).head == writer.head

    def test_ranges_and_types(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(300)
        branch_id = writer.head.branch_id
        assert list(store.events(branch_id)) == events
        assert list(store.events(branch_id, 10)) == events[10:]
        assert list(store.events(branch_id, 10, 12)) == events[10:12]
        assert list(store.events(branch_id, 0, 10_000)) == events
        assert list(store.events(branch_id, 600)) == []
        assert list(store.events(branch_id, 7, 7)) == []
        assert list(store.events(branch_id, types=["turn.committed"])) == events[1::2]
        assert list(store.events(branch_id, 4, 9, ["user_message", "no"])) == events[4:9:2]
        assert list(store.events(branch_id, types=[])) == []

    def test_reading_while_writing(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        before = writer.turns(200)
        reading = store.events(writer.head.branch_id)
        first = next(reading)
        writer.turns(2)
        assert [first, *reading] == before

    def test_a_stale_head_is_refused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        stale = replace(writer)
        events = writer.turns(1)
        with pytest.raises(BranchVersionConflict) as caught:
            stale.write()
        assert (caught.value.branch_id, caught.value.version) == (writer.head.branch_id, 2)
        assert caught.value.head_event_id == events[-1].event_id
        assert list(store.events(writer.head.branch_id)) == events

    def test_a_head_with_another_hash_is_refused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(1)
        forged = replace(writer, head=replace(writer.head, hash="v1:" + "0" * 64))
        with pytest.raises(BranchVersionConflict):
            forged.write()

    def test_events_that_were_not_sealed_there_are_refused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        one, two = seal(writer.head, [writer.draft(), writer.draft()])
        other = Writer.on(store, "other/one")
        for events in ((two,), (two, one), (one, one), (one, replace(two, seq=3)), other.commit_of().events):
            with pytest.raises(InvalidInput):
                store.commit(Commit(writer.session.session_id, writer.head, events, None))
        with pytest.raises(NotFound):
            store.commit(Commit(other.session.session_id, writer.head, (one, two), None))
        assert store.head(writer.head.branch_id) == writer.head

    def test_an_event_id_is_used_once(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        (event,) = writer.write()
        again = Draft(event.event_id, "note", 1, 1, 1)
        with pytest.raises(InvalidInput):
            writer.write(again)
        with pytest.raises(InvalidInput):
            Writer.on(store, "other/one").write(writer.draft(), again)
        assert store.head(Writer.on(store, "other/one").head.branch_id).seq == 0

    def test_one_of_many_appends_wins(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        barrier = threading.Barrier(8)

        def append(_: int) -> bool:
            commit = writer.commit_of()
            barrier.wait()
            try:
                store.commit(commit)
            except BranchVersionConflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(append, range(8))) == 1
        assert store.head(writer.head.branch_id).seq == 1

    def test_many_threads_write_their_own_branches(self, store: JournalStore) -> None:
        def work(number: int) -> Writer:
            writer = Writer.on(store, f"agent/{number}")
            writer.turns(10)
            return writer

        with ThreadPoolExecutor(8) as pool:
            writers = list(pool.map(work, range(8)))
        for writer in writers:
            assert store.head(writer.head.branch_id) == writer.head
            assert verify_session(store, writer.session).ok

    # -- commits --------------------------------------------------------------------------------------------------

    def test_a_commit_does_all_of_it(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        message_id = writer.admit()
        outgoing = OutboxMessage(_IDS.message(_NOW), "other/one", b'{"a":1}', _NOW, "hello/alice")
        snapshot = Snapshot(writer.head.branch_id, 1, b"state")
        writer.write(settled=(Settlement(message_id, Outcome.CONSUMED),), outbox=(outgoing,), snapshot=snapshot)
        other = self.other_handle(store)
        assert other.message(message_id).status is MessageStatus.CONSUMED
        assert list(other.outbox()) == [outgoing]
        assert other.snapshot(writer.head.branch_id) == snapshot
        assert other.head(writer.head.branch_id) == writer.head

    def test_a_refused_commit_does_nothing_of_it(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        kept = writer.admit()
        outgoing = OutboxMessage(_IDS.message(_NOW), "other/one", b"{}", _NOW)
        for settled in (
            (Settlement(kept, Outcome.CONSUMED), Settlement(MessageId("msg_no"), Outcome.CONSUMED)),
            (Settlement(kept, Outcome.CONSUMED), Settlement(kept, Outcome.CONSUMED)),
            (Settlement(Writer.on(store, "other/one").admit(), Outcome.CONSUMED),),
        ):
            commit = writer.commit_of(
                settled=settled, outbox=(outgoing,), snapshot=Snapshot(writer.head.branch_id, 1, b"state")
            )
            with pytest.raises(NotFound):
                store.commit(commit)
            assert store.find_event(commit.events[0].event_id) is None
        assert store.head(writer.head.branch_id) == writer.head
        assert store.message(kept).status is MessageStatus.PENDING
        assert not store.outbox()
        assert store.snapshot(writer.head.branch_id) is None
        writer.write()

    def test_a_message_is_settled_once(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        for outcome in (Outcome.CONSUMED, Outcome.CANCELLED):
            message_id = writer.admit(b"secret")
            writer.write(settled=(Settlement(message_id, outcome),))
            assert store.message(message_id).body is None
            for again in Outcome:
                with pytest.raises(NotFound):
                    writer.write(settled=(Settlement(message_id, again),))

    def test_many_commits_succeed_and_fail_each_by_itself(self, store: JournalStore) -> None:
        writers = [Writer.on(store, f"agent/{number}") for number in range(5)]
        writers[1].turns(1)
        commits = [writer.commit_of(writer.draft(), writer.draft()) for writer in writers]
        writers[1].write()
        commits[2] = replace(commits[2], settled=(Settlement(MessageId("msg_no"), Outcome.CONSUMED),))
        commits[3] = replace(commits[3], epoch=7)
        outcomes = store.commit_many(commits)
        assert [type(outcome) for outcome in outcomes] == [Head, BranchVersionConflict, NotFound, StaleEpoch, Head]
        assert [store.head(writer.head.branch_id).seq for writer in writers] == [2, 3, 0, 0, 2]
        for writer in writers:
            assert verify_session(store, writer.session).ok
        assert store.commit_many([]) == []

    def test_many_commits_to_one_branch_in_order(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        first = writer.commit_of()
        head = Head(writer.head.branch_id, 1, first.events[0].event_id, first.events[0].hash, 1)
        second = replace(writer, head=head).commit_of()
        outcomes = store.commit_many([first, first, second])
        assert [type(outcome) for outcome in outcomes] == [Head, BranchVersionConflict, Head]
        assert store.head(head.branch_id) == outcomes[2]

    # -- inbox ----------------------------------------------------------------------------------------------------

    def test_messages_have_places_in_order(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        admitted = [writer.admit(b'{"n":%d}' % number, sender="me") for number in range(5)]
        other.admit()
        waiting = self.other_handle(store).pending(writer.session.session_id)
        assert [message.message_id for message in waiting] == admitted
        assert [message.position for message in waiting] == [1, 2, 3, 4, 5]
        assert [message.body for message in waiting] == [b'{"n":%d}' % number for number in range(5)]
        first = waiting[0]
        assert (first.session_id, first.sender, first.admitted_ms) == (writer.session.session_id, "me", _NOW)
        assert (first.attempts, first.status, first.idempotency_key) == (0, MessageStatus.PENDING, None)
        assert [m.position for m in store.pending(writer.session.session_id, limit=2)] == [1, 2]
        assert store.message(admitted[3]) == waiting[3]

    def test_positions_are_not_used_again(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        for position in range(1, 4):
            message_id = writer.admit()
            assert store.message(message_id).position == position
            writer.write(settled=(Settlement(message_id, Outcome.CONSUMED),))
        assert not store.pending(writer.session.session_id)

    def test_concurrent_messages_get_places_of_their_own(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: writer.admit(), range(24)))
        assert [m.position for m in store.pending(writer.session.session_id)] == list(range(1, 25))

    def test_a_repeat_gets_the_first_receipt(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        message = NewMessage(_IDS.message(_NOW), b"body", _NOW, "key")
        receipt = store.admit(session_id, message)
        assert not receipt.repeated
        assert (receipt.session_id, receipt.message_id, receipt.position) == (session_id, message.message_id, 1)
        repeat = replace(message, message_id=_IDS.message(_NOW), admitted_ms=_NOW + 1)
        assert store.admit(session_id, repeat) == replace(receipt, repeated=True)
        with pytest.raises(IdempotencyConflict) as caught:
            store.admit(session_id, replace(repeat, body=b"other"))
        assert caught.value.key == "key"
        writer.write(settled=(Settlement(message.message_id, Outcome.CONSUMED),))
        assert self.other_handle(store).admit(session_id, repeat) == replace(receipt, repeated=True)
        with pytest.raises(IdempotencyConflict):
            store.admit(session_id, replace(repeat, body=b"other"))
        other = Writer.on(store, "other/one")
        assert not store.admit(other.session.session_id, repeat).repeated

    def test_a_concurrent_repeat_is_admitted_once(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _: writer.admit(key="key"), range(16)))) == 1
        assert len(store.pending(writer.session.session_id)) == 1

    def test_a_message_id_is_used_once(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        message = NewMessage(_IDS.message(_NOW), b"{}", _NOW)
        store.admit(writer.session.session_id, message)
        with pytest.raises(InvalidInput):
            store.admit(writer.session.session_id, message)
        with pytest.raises(InvalidInput):
            store.admit(Writer.on(store, "other/one").session.session_id, message)
        assert len(store.pending(writer.session.session_id)) == 1
        writer.admit()
        assert [m.position for m in store.pending(writer.session.session_id)] == [1, 2]

    def test_a_full_inbox(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        first, second = (writer.admit(key=f"key {number}") for number in range(2))
        late = NewMessage(_IDS.message(_NOW), b"{}", _NOW, "late")
        with pytest.raises(InboxFull) as caught:
            store.admit(session_id, late, limit=2)
        assert caught.value.limit == 2
        repeat = NewMessage(_IDS.message(_NOW), b"{}", _NOW, "key 0")
        assert store.admit(session_id, repeat, limit=2).message_id == first
        writer.write(settled=(Settlement(second, Outcome.PARKED),))
        assert store.admit(session_id, late, limit=2).position == 3
        with pytest.raises(InboxFull):
            store.admit(session_id, NewMessage(_IDS.message(_NOW), b"{}", _NOW), limit=2)

    def test_how_many_wait_before_a_message(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        first, second, third, fourth = (writer.admit(b"%d" % number) for number in range(4))
        other.admit()
        assert [store.waiting_before(m) for m in (first, second, third, fourth)] == [0, 1, 2, 3]
        writer.write(settled=(Settlement(second, Outcome.PARKED),))
        assert [store.waiting_before(m) for m in (first, second, third, fourth)] == [0, 1, 1, 2]
        writer.write(settled=(Settlement(first, Outcome.CONSUMED),))
        assert [store.waiting_before(m) for m in (first, second, third, fourth)] == [0, 0, 0, 1]
        store.retry_message(writer.session.session_id, second)
        assert store.waiting_before(fourth) == 2
        with pytest.raises(NotFound):
            store.waiting_before(MessageId("msg_no"))

    def test_tries_are_counted_in_place(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        first, second = writer.admit(b"1"), writer.admit(b"2")
        for attempts in (1, 2):
            writer.write(settled=(Settlement(first, Outcome.FAILED),))
            assert store.message(first).attempts == attempts
        assert [m.message_id for m in store.pending(writer.session.session_id)] == [first, second]
        writer.write(settled=(Settlement(first, Outcome.PARKED),))
        assert [m.message_id for m in store.pending(writer.session.session_id)] == [second]
        (parked,) = store.messages(writer.session.session_id, MessageStatus.PARKED)
        assert (parked.message_id, parked.attempts, parked.body) == (first, 3, b"1")

    def test_a_parked_message_can_be_retried_or_cancelled(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        first, second, third = (writer.admit(b"%d" % number) for number in range(3))
        for message_id in (first, second):
            writer.write(settled=(Settlement(message_id, Outcome.PARKED),))
            with pytest.raises(NotFound):
                writer.write(settled=(Settlement(message_id, Outcome.CONSUMED),))
        writer.write(settled=(Settlement(third, Outcome.CONSUMED),))
        writer.admit()
        retried = store.retry_message(session_id, first)
        assert (retried.status, retried.attempts, retried.body) == (MessageStatus.PENDING, 0, b"0")
        assert [m.position for m in store.pending(session_id)] == [1, 4]
        writer.write(settled=(Settlement(second, Outcome.CANCELLED),))
        assert [m.message_id for m in store.messages(session_id, MessageStatus.CANCELLED)] == [second]
        for message_id in (first, second, MessageId("msg_no")):
            with pytest.raises(NotFound):
                store.retry_message(session_id, message_id)
        with pytest.raises(NotFound):
            store.retry_message(Writer.on(store, "other/one").session.session_id, first)

    def test_sessions_that_have_work(self, store: JournalStore) -> None:
        writers = [Writer.on(store, f"agent/{number}") for number in range(4)]
        done, waiting, parked = writers[1].admit(), writers[2].admit(), writers[3].admit()
        writers[1].write(settled=(Settlement(done, Outcome.CONSUMED),))
        writers[2].write(settled=(Settlement(waiting, Outcome.FAILED),))
        writers[3].write(settled=(Settlement(parked, Outcome.PARKED),))
        assert list(store.sessions_with_pending()) == [writers[2].session.session_id]
        store.retry_message(writers[3].session.session_id, parked)
        assert set(store.sessions_with_pending()) == {writers[2].session.session_id, writers[3].session.session_id}

    # -- outbox ---------------------------------------------------------------------------------------------------

    def test_the_outbox_keeps_its_order(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        sent = [OutboxMessage(_IDS.message(_NOW), f"to/{number}", b"%d" % number, _NOW) for number in range(5)]
        writer.write(outbox=(sent[3], sent[1]))
        writer.write(outbox=(sent[4],))
        assert list(store.outbox()) == [sent[3], sent[1], sent[4]]
        assert list(store.outbox(limit=1)) == [sent[3]]
        store.outbox_delivered(sent[4].message_id)
        store.outbox_delivered(sent[4].message_id)
        writer.write(outbox=(sent[0],))
        assert list(self.other_handle(store).outbox()) == [sent[3], sent[1], sent[0]]
        with pytest.raises(InvalidInput):
            writer.write(outbox=(sent[0],))
        assert store.head(writer.head.branch_id) == writer.head

    # -- leases ---------------------------------------------------------------------------------------------------

    def test_an_epoch_is_given_once(self, store: JournalStore) -> None:
        session_id = Writer.on(store).session.session_id
        assert store.lease(session_id) is None
        first = store.acquire_lease(session_id, "host a", _NOW, _TTL)
        assert (first.session_id, first.holder, first.epoch, first.expires_ms) == (session_id, "host a", 1, _NOW + _TTL)
        assert self.other_handle(store).lease(session_id) == first
        with pytest.raises(LeaseHeld) as caught:
            store.acquire_lease(session_id, "host b", _NOW + _TTL - 1, _TTL)
        assert (caught.value.holder, caught.value.epoch, caught.value.expires_ms) == ("host a", 1, _NOW + _TTL)
        assert store.acquire_lease(session_id, "host b", _NOW + _TTL, _TTL).epoch == 2
        assert store.acquire_lease(session_id, "host b", _NOW + _TTL, _TTL).epoch == 3
        assert store.acquire_lease(session_id, "host c", _NOW + _TTL, _TTL, takeover=True).epoch == 4
        store.release_lease(session_id, 4)
        assert store.lease(session_id) is None
        assert store.acquire_lease(session_id, "host a", _NOW, _TTL).epoch == 5

    def test_renewing_and_releasing_need_the_epoch(self, store: JournalStore) -> None:
        session_id = Writer.on(store).session.session_id
        store.acquire_lease(session_id, "host a", _NOW, _TTL)
        renewed = store.renew_lease(session_id, 1, _NOW + 5, _TTL)
        assert renewed == store.lease(session_id)
        assert renewed.expires_ms == _NOW + 5 + _TTL
        current = store.acquire_lease(session_id, "host b", _NOW, _TTL, takeover=True)
        with pytest.raises(StaleEpoch) as caught:
            store.renew_lease(session_id, 1, _NOW, _TTL)
        assert (caught.value.epoch, caught.value.current) == (1, 2)
        store.release_lease(session_id, 1)
        assert store.lease(session_id) == current
        store.release_lease(session_id, 2)
        with pytest.raises(StaleEpoch):
            store.renew_lease(session_id, 2, _NOW, _TTL)

    def test_one_of_many_gets_the_lease(self, store: JournalStore) -> None:
        session_id = Writer.on(store).session.session_id

        def take(number: int) -> bool:
            try:
                store.acquire_lease(session_id, f"host {number}", _NOW, _TTL)
            except LeaseHeld:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(take, range(8))) == 1

    def test_only_the_epoch_in_force_writes(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        writer.write()
        with pytest.raises(StaleEpoch):
            replace(writer, epoch=1).write()
        old = store.acquire_lease(session_id, "host a", _NOW, _TTL)
        with pytest.raises(StaleEpoch):
            writer.write()
        writer.epoch = old.epoch
        writer.write()
        other = self.other_handle(store)
        new = other.acquire_lease(session_id, "host b", _NOW, _TTL, takeover=True)
        message_id = writer.admit()
        commit = writer.commit_of(settled=(Settlement(message_id, Outcome.CONSUMED),))
        with pytest.raises(StaleEpoch) as caught:
            store.commit(commit)
        assert (caught.value.epoch, caught.value.current) == (old.epoch, new.epoch)
        assert [type(outcome) for outcome in store.commit_many([commit])] == [StaleEpoch]
        assert store.find_event(commit.events[0].event_id) is None
        assert store.message(message_id).status is MessageStatus.PENDING
        newer = replace(writer, epoch=new.epoch, store=other)
        newer.write()
        with pytest.raises(StaleEpoch):  # it must stop, whatever else is wrong with its commit
            writer.write()
        other.release_lease(session_id, new.epoch)
        with pytest.raises(StaleEpoch):
            newer.write()
        assert store.head(writer.head.branch_id) == newer.head

    def test_a_lease_that_ran_out_still_writes_until_it_is_taken(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.epoch = store.acquire_lease(writer.session.session_id, "host a", 0, 1).epoch
        writer.write()

    # -- forks ----------------------------------------------------------------------------------------------------

    def test_a_fork_reads_its_parent_and_goes_on_counting(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(4)
        fork = writer.fork(4)
        assert fork.head == Head(fork.head.branch_id, 4, events[3].event_id, events[3].hash, 2)
        branch = store.branch(fork.head.branch_id)
        assert (branch.parent_branch_id, branch.parent_seq) == (writer.head.branch_id, 4)
        assert list(store.events(fork.head.branch_id)) == events[:4]
        own = fork.turns(2)
        writer.turns(1)
        assert [event.seq for event in own] == [5, 6, 7, 8]
        assert fork.head.turn == 4
        assert list(store.events(fork.head.branch_id)) == events[:4] + own
        assert list(store.events(fork.head.branch_id, 3, 5)) == [events[3], own[0]]
        assert list(store.events(fork.head.branch_id, 1, 3, ["turn.committed"])) == [events[1]]
        assert list(store.events(fork.head.branch_id, 4)) == own
        assert store.find_event(own[0].event_id) == own[0]
        assert list(store.events(writer.head.branch_id, 0, 8)) == events
        assert check_events(empty_head(writer.head.branch_id), store.events(fork.head.branch_id)) == fork.head

    def test_forks_of_forks(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        line = writer.turns(3)
        forks = [writer]
        for number in range(4):
            seq = len(line) - 1 if number % 2 else len(line)
            forks.append(forks[-1].fork(seq))
            line = line[:seq] + forks[-1].turns(1)
            assert list(store.events(forks[-1].head.branch_id)) == line
        shallow = forks[-1].fork(2)  # below where its parent begins: read from the grandparents
        assert list(store.events(shallow.head.branch_id)) == line[:2]
        assert store.find_event(shallow.turns(1)[0].event_id) is not None
        assert list(store.events(shallow.head.branch_id, 0, 2)) == line[:2]
        assert verify_session(store, writer.session).ok

    def test_a_fork_at_nothing_begins_anew(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(1)
        fork = writer.fork(0)
        assert fork.head == empty_head(fork.head.branch_id)
        own = fork.turns(1)
        assert list(store.events(fork.head.branch_id)) == own
        assert verify_session(store, writer.session).ok

    def test_a_fork_into_a_session_of_its_own(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(3)
        fork = store.fork_session(
            writer.head.branch_id, 4, "hello/bob", _IDS.session(_NOW), _IDS.branch(_NOW), _NOW + 1
        )
        assert store.session("hello/bob") == fork
        assert [branch.branch_id for branch in store.branches(fork.session_id)] == [fork.main_branch_id]
        twin = Writer(store, fork, store.head(fork.main_branch_id))
        twin.turns(1)
        assert _ids(list(store.events(fork.main_branch_id)))[:4] == _ids(events[:4])
        assert store.lease(fork.session_id) is None
        report = verify_session(store, fork)
        assert (report.ok, report.events, report.branches) == (True, 6, 2)
        with pytest.raises(Conflict):
            store.fork_session(writer.head.branch_id, 4, "hello/bob", _IDS.session(1), _IDS.branch(1), 1)
        with pytest.raises(Conflict):
            store.fork_session(writer.head.branch_id, 4, "hello/c", fork.session_id, _IDS.branch(1), 1)

    def test_forks_where_nothing_is_are_refused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(1)
        for seq in (3, -1, 2**40):
            with pytest.raises(InvalidInput):
                writer.fork(seq)
        with pytest.raises(Conflict):
            store.fork_branch(writer.head.branch_id, 1, writer.head.branch_id, 1)
        assert len(store.branches(writer.session.session_id)) == 1

    def test_deleting_a_branch(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(2)
        fork = writer.fork(2)
        (event, _) = fork.turns(1)
        inner = fork.fork(3)
        with pytest.raises(InvalidInput):
            store.delete_branch(writer.head.branch_id, 1)
        with pytest.raises(BranchInUse) as caught:
            store.delete_branch(fork.head.branch_id, 1)
        assert (caught.value.branch_id, caught.value.forks) == (fork.head.branch_id, (inner.head.branch_id,))
        store.put_snapshot(Snapshot(fork.head.branch_id, 4, b"state"))
        store.delete_branch(inner.head.branch_id, _NOW)
        store.delete_branch(fork.head.branch_id, _NOW + 1)
        assert store.find_event(event.event_id) is None
        with pytest.raises(NotFound):
            store.events(fork.head.branch_id)
        with pytest.raises(NotFound):
            fork.turns(1)
        assert [branch.branch_id for branch in store.branches(writer.session.session_id)] == [writer.head.branch_id]
        changes = [(entry.change, entry.branch_id) for entry in store.catalogue(writer.session.session_id)]
        assert changes == [
            (BranchChange.CREATED, writer.head.branch_id),
            (BranchChange.CREATED, fork.head.branch_id),
            (BranchChange.CREATED, inner.head.branch_id),
            (BranchChange.DELETED, inner.head.branch_id),
            (BranchChange.DELETED, fork.head.branch_id),
        ]
        last = store.catalogue(writer.session.session_id)[-1]
        assert (last.number, last.seq, last.branch_hash, last.ts) == (5, 4, fork.head.hash, _NOW + 1)
        assert verify_session(store, writer.session).ok
        again = writer.fork(2)  # may take the deleted one's place inside the store
        assert store.snapshot(again.head.branch_id) is None
        with pytest.raises(NotFound):
            fork.turns(1)
        assert store.head(again.head.branch_id) == again.head

    # -- folding, erasing, deleting -------------------------------------------------------------------------------

    def test_folding_drops_what_came_before(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        branch_id = writer.head.branch_id
        events = writer.turns(4)
        for seq in (2, 6):
            store.put_snapshot(Snapshot(branch_id, seq, b"at %d" % seq))
        folded = store.fold(branch_id, 5, _NOW + 9)
        assert (folded.folded_seq, folded.head) == (4, writer.head)
        for handle in (store, self.other_handle(store)):
            assert handle.branch(branch_id) == folded
            assert list(handle.events(branch_id)) == events[4:]
            assert list(handle.events(branch_id, 1, 6)) == events[4:6]
            assert [handle.find_event(event.event_id) for event in events[3:5]] == [None, events[4]]
            assert handle.snapshot(branch_id) == Snapshot(branch_id, 6, b"at 6")
            assert handle.snapshot(branch_id, 5) is None
        last = store.catalogue(writer.session.session_id)[-1]
        assert (last.change, last.seq, last.branch_hash, last.ts) == (
            BranchChange.FOLDED,
            4,
            events[3].hash,
            _NOW + 9,
        )
        report = verify_session(store, writer.session, [Anchor.of(writer.head), Anchor(branch_id, 4, events[3].hash)])
        assert (report.ok, report.events) == (True, 4)
        assert not verify_session(store, writer.session, [Anchor(branch_id, 3, events[2].hash)]).ok
        assert store.fold(branch_id, 5, _NOW + 10) == folded
        assert len(store.catalogue(writer.session.session_id)) == 2
        more = writer.turns(1)
        assert store.fold(branch_id, 10, _NOW + 11).folded_seq == 9
        assert list(store.events(branch_id)) == more[1:]
        assert verify_session(store, writer.session).ok
        fork = writer.fork(10)
        assert list(store.events(fork.head.branch_id)) == more[1:]
        assert verify_session(store, writer.session).ok
        with pytest.raises(InvalidInput):
            writer.fork(9)

    def test_a_fork_that_was_folded_stands_by_itself(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(2)
        twin = store.fork_session(writer.head.branch_id, 3, "hello/bob", _IDS.session(1), _IDS.branch(1), _NOW)
        fork = Writer(store, twin, store.head(twin.main_branch_id))
        own = fork.turns(1)
        with pytest.raises(BranchInUse):
            store.fold(writer.head.branch_id, 2, _NOW)
        with pytest.raises(BranchInUse) as caught:
            store.delete_session(writer.session.session_id, _NOW)
        assert caught.value.forks == (twin.main_branch_id,)
        store.fold(twin.main_branch_id, 4, _NOW)
        assert list(store.events(twin.main_branch_id)) == own
        assert store.snapshot(twin.main_branch_id) is None
        store.delete_session(writer.session.session_id, _NOW)
        report = verify_session(store, twin)
        assert (report.ok, report.events, report.branches) == (True, 2, 1)
        assert list(store.events(twin.main_branch_id)) == own
        fork.turns(1)

    def test_folding_at_what_is_not_there(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(2)
        fork = writer.fork(2)
        for branch_id, seq in ((writer.head.branch_id, 5), (writer.head.branch_id, 0), (fork.head.branch_id, 2)):
            with pytest.raises(InvalidInput):
                store.fold(branch_id, seq, _NOW)
        assert store.fold(writer.head.branch_id, 1, _NOW).folded_seq == 0

    def test_an_erased_payload_is_gone_and_the_chain_verifies(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(3)
        large: dict[BlobId, bytes] = {}
        (out_of_line,) = seal(writer.head, [writer.draft(payload="x" * 100_000)], large)
        writer.head = store.commit(Commit(writer.session.session_id, writer.head, (out_of_line,), None))
        assert out_of_line.payload is None
        assert list(large) == [out_of_line.payload_ref]
        assert store.find_event(out_of_line.event_id) == out_of_line
        erased = [events[0].event_id, events[3].event_id, out_of_line.event_id]
        with pytest.raises(NotFound):
            store.erase([*erased, EventId("evt_no")])
        assert list(store.events(writer.head.branch_id)) == [*events, out_of_line]
        store.erase(erased)
        store.erase(erased)
        for event in (*events, out_of_line):
            found = store.find_event(event.event_id)
            if event.event_id in erased:
                assert found == replace(event, payload=None, erased=True)
            else:
                assert found == event
        assert verify_session(store, writer.session).ok
        writer.turns(1)
        assert check_events(empty_head(writer.head.branch_id), store.events(writer.head.branch_id)) == writer.head

    def test_a_deleted_session_leaves_a_tombstone(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        writer.turns(2)
        writer.fork(2).turns(1)
        message_id = writer.admit(key="key")
        other.turns(1)
        outgoing = OutboxMessage(_IDS.message(_NOW), "other/one", b"{}", _NOW)
        (event,) = writer.write(outbox=(outgoing,))
        lease = store.acquire_lease(writer.session.session_id, "host", _NOW, _TTL)
        with pytest.raises(LeaseHeld):
            store.delete_session(writer.session.session_id, _NOW + 1)
        store.release_lease(writer.session.session_id, lease.epoch)
        catalogue = store.catalogue(writer.session.session_id)
        tombstone = store.delete_session(writer.session.session_id, _NOW + 2)
        assert (tombstone.session_id, tombstone.name) == (writer.session.session_id, "hello/alice")
        assert (tombstone.deleted_ms, tombstone.events) == (_NOW + 2, 7)
        assert tombstone.catalogue_hash == catalogue[-1].hash
        assert list(self.other_handle(store).tombstones()) == [tombstone]
        assert not store.tombstones("other/")
        for ask in (
            lambda: store.session("hello/alice"),
            lambda: store.branch(writer.head.branch_id),
            lambda: store.catalogue(writer.session.session_id),
            lambda: store.message(message_id),
            lambda: store.delete_session(writer.session.session_id, _NOW),
            lambda: writer.turns(1),
            writer.admit,
        ):
            with pytest.raises((NotFound, StaleEpoch)):
                ask()
        assert store.find_event(event.event_id) is None
        assert list(store.outbox()) == [outgoing]
        assert not store.sessions_with_pending()
        assert [session.name for session in store.sessions()] == ["other/one"]
        again = Writer.on(store)
        assert again.session.session_id != writer.session.session_id
        again.admit(key="key")
        again.turns(1)
        assert [message.position for message in store.pending(again.session.session_id)] == [1]
        assert verify_session(store, again.session).events == 2
        assert verify_session(store, other.session).ok

    # -- snapshots ------------------------------------------------------------------------------------------------

    def test_the_newest_snapshot_at_or_before(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        branch_id = writer.head.branch_id
        assert store.snapshot(branch_id) is None
        bodies = {}
        for seq in range(2, 9, 2):
            bodies[seq] = Snapshot(branch_id, seq, b"state %d" % seq * 1000)
            text = writer.draft()
            writer.write(text, writer.draft(), snapshot=bodies[seq])
        for handle in (store, self.other_handle(store)):
            assert handle.snapshot(branch_id) == bodies[8]
            assert handle.snapshot(branch_id, 7) == bodies[6]
            assert handle.snapshot(branch_id, 2) == bodies[2]
            assert handle.snapshot(branch_id, 1) is None

    def test_snapshots_cross_into_parents(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(4)
        for seq in (2, 6):
            store.put_snapshot(Snapshot(writer.head.branch_id, seq, b"at %d" % seq))
        fork = writer.fork(4)
        assert store.snapshot(fork.head.branch_id) == Snapshot(writer.head.branch_id, 2, b"at 2")
        fork.turns(1)
        store.put_snapshot(Snapshot(fork.head.branch_id, 6, b"fork at 6"))
        assert store.snapshot(fork.head.branch_id) == Snapshot(fork.head.branch_id, 6, b"fork at 6")
        assert store.snapshot(fork.head.branch_id, 5) == Snapshot(writer.head.branch_id, 2, b"at 2")
        assert store.snapshot(writer.head.branch_id) == Snapshot(writer.head.branch_id, 6, b"at 6")

    def test_a_snapshot_is_replaced(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(1)
        for body in (b"one" * 9000, b"two", b"", bytes(range(256)) * 9000):
            store.put_snapshot(Snapshot(writer.head.branch_id, 2, body))
            assert store.snapshot(writer.head.branch_id) == Snapshot(writer.head.branch_id, 2, body)

    def test_a_snapshot_beyond_the_head_is_refused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(1)
        for seq in (3, -1):
            with pytest.raises(InvalidInput):
                store.put_snapshot(Snapshot(writer.head.branch_id, seq, b""))
            with pytest.raises(InvalidInput):
                store.commit(writer.commit_of(snapshot=Snapshot(writer.head.branch_id, seq + 5, b"")))
        with pytest.raises(InvalidInput):
            store.commit(writer.commit_of(snapshot=Snapshot(BranchId("br_other"), 1, b"")))

    def test_snapshots_of_a_long_branch_stay_few_and_near(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        branch_id = writer.head.branch_id
        body = b""
        for turn in range(1, 257):
            body += b"%d of a body that grows " % turn * 20
            writer.write(snapshot=Snapshot(branch_id, turn, body))
        found, at = [], 256
        while (snapshot := store.snapshot(branch_id, at)) is not None:
            assert at - snapshot.seq <= 256 - at + 1
            assert body.startswith(snapshot.body)
            found.append(snapshot.seq)
            at = snapshot.seq - 1
        assert found[0] == 256
        assert len(found) <= 20

    # -- verification ---------------------------------------------------------------------------------------------

    def test_a_session_as_it_was_written_verifies(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(3)
        fork = writer.fork(2)
        anchor = Anchor.of(fork.head)
        fork.turns(2)
        report = verify_session(self.other_handle(store), writer.session, [anchor, Anchor.of(writer.head)])
        assert (report.ok, report.events, report.branches, report.damage) == (True, 10, 2, None)

    def test_a_head_kept_elsewhere_is_looked_for(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(1)
        fork = writer.fork(1)
        good = Anchor.of(writer.head)
        for anchor in (
            replace(good, hash="v1:" + "0" * 64),
            replace(good, seq=9),
            replace(good, branch_id=BranchId("br_no")),
            replace(good, seq=0),
        ):
            report = verify_session(store, writer.session, [good, anchor])
            assert not report.ok
            assert report.damage is not None
            assert report.damage.branch_id == anchor.branch_id
        first = next(store.events(fork.head.branch_id))
        assert verify_session(store, writer.session, [Anchor(fork.head.branch_id, 1, first.hash)]).ok
        assert verify_session(store, writer.session, [Anchor.of(empty_head(writer.head.branch_id))]).ok

    # -- life -----------------------------------------------------------------------------------------------------

    def test_after_closing_nothing_works(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        store.close()
        store.close()
        for use in (writer.write, writer.admit, lambda: store.session("hello/alice"), store.outbox):
            with pytest.raises(Unavailable):
                use()

    def test_errors_are_the_tree_of_chronicle(self) -> None:
        assert issubclass(BranchVersionConflict, Conflict)
        assert issubclass(StaleEpoch, ChronicleError)
        assert not issubclass(StaleEpoch, Conflict)
