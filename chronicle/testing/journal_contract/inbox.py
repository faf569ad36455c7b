"""The inbox."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import IdempotencyConflict, InboxFull, InvalidInput, NotFound
from chronicle.ids import MessageId, SessionId
from chronicle.journal.records import (
    Backlog,
    InboxWrite,
    MessageStatus,
    NewMessage,
    OutboxMessage,
    Outcome,
    Receipt,
    Settlement,
)
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, Contract, Writer

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject
    from chronicle.journal.port import JournalStore

__all__ = ["InboxContract"]


class InboxContract(Contract):
    """Messages have places, are admitted once, and are counted."""

    def test_messages_have_places_in_order(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        admitted = [writer.admit(b'{"n":%d}' % number, sender="me") for number in range(5)]
        other.admit()
        waiting = self.other_handle(store).pending(writer.session.session_id)
        assert [message.message_id for message in waiting] == admitted
        assert [message.position for message in waiting] == [1, 2, 3, 4, 5]
        assert [message.body for message in waiting] == [b'{"n":%d}' % number for number in range(5)]
        first = waiting[0]
        assert (first.session_id, first.sender, first.admitted_ms) == (writer.session.session_id, "me", NOW_MS)
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
        message = NewMessage(IDS.message(NOW_MS), b"body", NOW_MS, "key")
        receipt = store.admit(session_id, message)
        assert not receipt.repeated
        assert (receipt.session_id, receipt.message_id, receipt.position) == (session_id, message.message_id, 1)
        repeat = replace(message, message_id=IDS.message(NOW_MS), admitted_ms=NOW_MS + 1)
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

    def test_a_message_is_found_by_its_idempotency_key(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        session_id = writer.session.session_id
        message = NewMessage(IDS.message(NOW_MS), b"body", NOW_MS, "key")
        assert store.message_of_key(session_id, "key") is None
        store.admit(session_id, message)
        found = store.message_of_key(session_id, "key")
        assert found == store.message(message.message_id)
        assert store.message_of_key(session_id, "ke") is None
        assert store.message_of_key(other.session.session_id, "key") is None
        assert store.message_of_key(SessionId("ses_no"), "key") is None
        writer.write(settled=(Settlement(message.message_id, Outcome.CONSUMED),))
        consumed = self.other_handle(store).message_of_key(session_id, "key")
        assert consumed is not None
        assert (consumed.message_id, consumed.status) == (message.message_id, MessageStatus.CONSUMED)

    def test_headers_stay_with_the_message(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        headers: JsonObject = {"trace": "00-é", "ask": {"path": ["a/b"], "deadline_ms": 2**60}, "none": None}
        session_id = writer.session.session_id
        message = NewMessage(IDS.message(NOW_MS), b"body", NOW_MS, "key", headers=headers)
        store.admit(session_id, message)
        repeat = replace(message, message_id=IDS.message(NOW_MS), headers={"trace": "other"})
        assert store.admit(session_id, repeat).repeated
        plain = writer.admit()
        seen = self.other_handle(store)
        assert [waiting.headers for waiting in seen.pending(session_id)] == [headers, None]
        assert seen.message(plain).headers is None
        writer.write(settled=(Settlement(message.message_id, Outcome.CONSUMED),))
        assert seen.message(message.message_id).headers == headers
        (consumed,) = seen.messages(session_id, MessageStatus.CONSUMED)
        assert (consumed.headers, consumed.body) == (headers, None)

    def test_a_concurrent_repeat_is_admitted_once(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _: writer.admit(key="key"), range(16)))) == 1
        assert len(store.pending(writer.session.session_id)) == 1

    def test_a_message_id_is_used_once(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        message = NewMessage(IDS.message(NOW_MS), b"{}", NOW_MS)
        store.admit(writer.session.session_id, message)
        with pytest.raises(InvalidInput):
            store.admit(writer.session.session_id, message)
        with pytest.raises(InvalidInput):
            store.admit(Writer.on(store, "other/one").session.session_id, message)
        assert len(store.pending(writer.session.session_id)) == 1
        writer.admit()
        assert [m.position for m in store.pending(writer.session.session_id)] == [1, 2]

    def test_messages_admitted_together_are_admitted_each_by_itself(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        mine, others = writer.session.session_id, other.session.session_id
        messages = [NewMessage(IDS.message(NOW_MS), b"%d" % number, NOW_MS, f"key {number}") for number in range(3)]
        full = NewMessage(IDS.message(NOW_MS), b"full", NOW_MS)
        outcomes = store.admit_many(
            [
                InboxWrite(others, messages[0]),
                InboxWrite(mine, messages[1]),
                InboxWrite(others, replace(messages[0], message_id=IDS.message(NOW_MS))),
                InboxWrite(mine, replace(messages[1], body=b"other", message_id=IDS.message(NOW_MS))),
                InboxWrite(others, full, limit=1),
                InboxWrite(mine, replace(messages[1], idempotency_key="again")),
                InboxWrite(mine, messages[2]),
            ]
        )
        assert [type(outcome).__name__ for outcome in outcomes] == [
            "Receipt",
            "Receipt",
            "Receipt",
            "IdempotencyConflict",
            "InboxFull",
            "InvalidInput",
            "Receipt",
        ]
        receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
        assert [receipt.position for receipt in receipts] == [1, 1, 1, 2]
        assert receipts[2] == replace(receipts[0], repeated=True)
        seen = self.other_handle(store)
        assert [message.body for message in seen.pending(mine)] == [b"1", b"2"]
        assert [message.body for message in seen.pending(others)] == [b"0"]
        assert store.admit_many([]) == []

    @pytest.mark.parametrize("bad", range(3))
    def test_of_messages_admitted_together_any_may_be_refused(self, store: JournalStore, bad: int) -> None:
        """By the database, which may say so after the last statement; the others are admitted once."""
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        used = other.admit()
        mine, others = writer.session.session_id, other.session.session_id
        messages = [NewMessage(IDS.message(NOW_MS), b"%d" % number, NOW_MS) for number in range(3)]
        messages[bad] = replace(messages[bad], message_id=used)
        outcomes = store.admit_many([InboxWrite(mine, message) for message in messages])
        assert [number for number, outcome in enumerate(outcomes) if isinstance(outcome, InvalidInput)] == [bad]
        assert [outcome.position for outcome in outcomes if isinstance(outcome, Receipt)] == [1, 2]
        (alone,) = store.admit_many([InboxWrite(mine, messages[bad])])
        assert isinstance(alone, InvalidInput)
        seen = self.other_handle(store)
        kept = [message.message_id for number, message in enumerate(messages) if number != bad]
        assert [message.message_id for message in seen.pending(mine)] == kept
        assert [message.message_id for message in seen.pending(others)] == [used]

    def test_a_full_inbox(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        first, second = (writer.admit(key=f"key {number}") for number in range(2))
        late = NewMessage(IDS.message(NOW_MS), b"{}", NOW_MS, "late")
        with pytest.raises(InboxFull) as caught:
            store.admit(session_id, late, limit=2)
        assert caught.value.limit == 2
        repeat = NewMessage(IDS.message(NOW_MS), b"{}", NOW_MS, "key 0")
        assert store.admit(session_id, repeat, limit=2).message_id == first
        writer.write(settled=(Settlement(second, Outcome.PARKED),))
        assert store.admit(session_id, late, limit=2).position == 3
        with pytest.raises(InboxFull):
            store.admit(session_id, NewMessage(IDS.message(NOW_MS), b"{}", NOW_MS), limit=2)

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
        assert list(store.sessions_with_pending()) == [writers[2].session]
        store.retry_message(writers[3].session.session_id, parked)
        assert list(store.sessions_with_pending()) == [writers[2].session, writers[3].session]
        other = Writer.on(store, "agents/other")
        other.admit()
        assert list(store.sessions_with_pending("agent/")) == [writers[2].session, writers[3].session]
        assert list(store.sessions_with_pending("agents/")) == [other.session]
        assert list(store.sessions_with_pending("b")) == []

    def test_those_of_some_sessions_that_have_work(self, store: JournalStore) -> None:
        sessions = [Writer.on(store, f"agent/{number}").session for number in range(900)]
        for session in sessions[::2]:
            store.admit(session.session_id, NewMessage(IDS.message(NOW_MS), b"1", NOW_MS))
        names = [(session.name, session.namespace) for session in sessions]
        assert set(store.sessions_with_pending(among=names)) == set(sessions[::2])
        assert set(store.sessions_with_pending("agent/2", names[:25])) == {sessions[2], *sessions[20:25:2]}
        assert not store.sessions_with_pending(among=[(names[0][0], "other"), ("agent/none", names[0][1])])
        assert not store.sessions_with_pending(among=[])

    def test_what_waits_is_counted_over_all_sessions(self, store: JournalStore) -> None:
        assert store.backlog() == Backlog(0, 0, None, 0, 0, None)
        writers = [Writer.on(store, f"agent/{number}") for number in range(4)]
        done, waiting, parked = writers[1].admit(), writers[2].admit(), writers[3].admit()
        writers[2].admit()
        unnamed = IDS.session(NOW_MS)
        store.ensure_session(unnamed, unnamed, IDS.branch(NOW_MS), NOW_MS)
        writers[1].write(settled=(Settlement(done, Outcome.CONSUMED),))
        writers[2].write(settled=(Settlement(waiting, Outcome.FAILED),))
        sent = OutboxMessage(IDS.message(NOW_MS), "agent/0", b"{}", 77, "agent/3")
        writers[3].write(settled=(Settlement(parked, Outcome.PARKED),), outbox=(sent,))
        oldest_ms = store.message(waiting).admitted_ms
        assert store.backlog() == Backlog(
            sessions=4, pending=2, oldest_pending_ms=oldest_ms, parked=1, outbox=1, oldest_outbox_ms=77
        )
        store.retry_message(writers[3].session.session_id, parked)
        store.outbox_delivered(sent.message_id)
        found = store.backlog()
        assert (found.pending, found.parked, found.outbox, found.oldest_outbox_ms) == (3, 0, 0, None)
