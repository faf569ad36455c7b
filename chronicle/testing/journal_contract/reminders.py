"""Reminders."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import IdempotencyConflict, NotFound
from chronicle.ids import MessageId
from chronicle.journal.records import (
    DropReminder,
    MessageStatus,
    NewMessage,
    OutboxMessage,
    Outcome,
    Reminder,
    SetReminder,
    Settlement,
)
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, Contract, Writer

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore

__all__ = ["ReminderContract"]


def new_message(key: str | None = None, body: bytes = b"{}") -> NewMessage:
    return NewMessage(IDS.message(NOW_MS), body, NOW_MS, key, headers={"reminder": {"name": "daily"}})


class ReminderContract(Contract):
    """Reminders change with commits, and fire once for each time at which they are due."""

    def test_commits_set_and_drop_reminders(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        assert not store.reminders(session_id)
        writer.write(reminders=(SetReminder("weekly", 9, b"w"), SetReminder("daily", 5, "é\0".encode() + b"\xff")))
        seen = self.other_handle(store)
        daily, weekly = Reminder(session_id, "daily", 5, "é\0".encode() + b"\xff"), Reminder(
            session_id, "weekly", 9, b"w"
        )  # fmt: skip
        assert list(seen.reminders(session_id)) == [daily, weekly]
        writer.write(reminders=(SetReminder("daily", 7, b"d"), DropReminder("weekly"), DropReminder("none")))
        assert list(seen.reminders(session_id)) == [Reminder(session_id, "daily", 7, b"d")]
        writer.write(reminders=(DropReminder("daily"), SetReminder("daily", 1, b"1"), SetReminder("daily", 2, b"2")))
        assert list(store.reminders(session_id)) == [Reminder(session_id, "daily", 2, b"2")]
        assert not store.reminders(IDS.session(NOW_MS))

    def test_a_refused_commit_changes_no_reminder(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        writer.write(reminders=(SetReminder("daily", 5, b"d"),))
        with pytest.raises(NotFound):
            writer.write(
                reminders=(DropReminder("daily"), SetReminder("weekly", 9, b"w")),
                settled=(Settlement(MessageId("msg_no"), Outcome.CONSUMED),),
            )
        assert list(store.reminders(session_id)) == [Reminder(session_id, "daily", 5, b"d")]
        assert store.next_reminder_ms() == 5

    def test_what_is_due_is_found_by_time(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        assert store.next_reminder_ms() is None
        assert not store.due_reminders(NOW_MS, 10)
        writer.write(reminders=(SetReminder("late", 30, b""), SetReminder("early", 10, b"")))
        other.write(reminders=(SetReminder("middle", 20, b""),))
        seen = self.other_handle(store)
        assert seen.next_reminder_ms() == 10
        assert [seen.next_reminder_ms(after_ms) for after_ms in (9, 10, 19, 20, 30)] == [10, 20, 20, 30, None]
        assert [each.name for each in seen.due_reminders(30, 10)] == ["early", "middle", "late"]
        assert [each.name for each in seen.due_reminders(30, 2)] == ["early", "middle"]
        assert [each.name for each in seen.due_reminders(29, 10)] == ["early", "middle"]
        assert not seen.due_reminders(9, 10)
        assert seen.due_reminders(20, 10)[1] == Reminder(other.session.session_id, "middle", 20, b"")

    def test_firing_admits_and_drops(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        waiting = writer.admit()
        writer.write(reminders=(SetReminder("daily", 5, b"d"),))
        message = new_message("daily at 5", b'{"text":"wake"}')
        receipt = store.fire_reminder(session_id, "daily", 5, message, None)
        assert receipt is not None
        assert (receipt.message_id, receipt.position, receipt.repeated) == (message.message_id, 2, False)
        seen = self.other_handle(store)
        assert not seen.reminders(session_id)
        assert [each.message_id for each in seen.pending(session_id)] == [waiting, message.message_id]
        assert (seen.message(message.message_id).body, seen.message(message.message_id).headers) == (
            message.body,
            message.headers,
        )
        assert store.fire_reminder(session_id, "daily", 5, new_message(), None) is None
        assert len(store.pending(session_id)) == 2

    def test_firing_moves(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        writer.write(reminders=(SetReminder("daily", 5, b"d"), SetReminder("weekly", 9, b"w")))
        assert store.fire_reminder(session_id, "daily", 5, new_message(), 10) is not None
        assert store.fire_reminder(session_id, "daily", 5, new_message(), 10) is None
        assert store.fire_reminder(session_id, "daily", 10, new_message(), 15, b"e") is not None
        assert list(self.other_handle(store).reminders(session_id)) == [
            Reminder(session_id, "daily", 15, b"e"),
            Reminder(session_id, "weekly", 9, b"w"),
        ]
        assert len(store.pending(session_id)) == 2
        assert store.next_reminder_ms() == 9

    def test_what_was_changed_meanwhile_does_not_fire(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        writer.write(reminders=(SetReminder("daily", 5, b"d"),))
        writer.write(reminders=(SetReminder("daily", 6, b"d"),))
        for name, due_ms in (("daily", 5), ("daily", 7), ("weekly", 6)):
            assert store.fire_reminder(session_id, name, due_ms, new_message(), None) is None
        assert (
            store.fire_reminder(Writer.on(store, "other/one").session.session_id, "daily", 6, new_message(), 9) is None
        )
        assert store.fire_reminder(IDS.session(NOW_MS), "daily", 6, new_message(), 9) is None
        assert list(store.reminders(session_id)) == [Reminder(session_id, "daily", 6, b"d")]
        assert not store.sessions_with_pending()

    def test_a_full_inbox_is_reminded(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        for _ in range(1001):
            store.admit(session_id, new_message(), limit=2000)
        writer.write(reminders=(SetReminder("daily", 5, b"d"),))
        receipt = store.fire_reminder(session_id, "daily", 5, new_message(), None)
        assert receipt is not None
        assert receipt.position == 1002

    def test_a_fire_that_is_refused_changes_nothing(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        store.admit(session_id, new_message("key", b"other"))
        writer.write(reminders=(SetReminder("daily", 5, b"d"),))
        for next_ms in (None, 9):
            with pytest.raises(IdempotencyConflict):
                store.fire_reminder(session_id, "daily", 5, new_message("key"), next_ms)
        assert list(store.reminders(session_id)) == [Reminder(session_id, "daily", 5, b"d")]
        assert len(store.pending(session_id)) == 1

    def test_one_of_many_fires(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        writer.write(reminders=(SetReminder("daily", 5, b"d"),))
        with ThreadPoolExecutor(8) as pool:
            receipts = list(
                pool.map(lambda _: store.fire_reminder(session_id, "daily", 5, new_message(), 9), range(16))
            )
        assert sum(receipt is not None for receipt in receipts) == 1
        assert len(store.messages(session_id, MessageStatus.PENDING)) == 1

    def test_reminders_are_cancelled_outside_of_commits(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        session_id = writer.session.session_id
        for each in (writer, other):
            each.write(reminders=(SetReminder("daily", 5, b"d"),))
        assert store.cancel_reminder(session_id, "daily")
        assert not store.cancel_reminder(session_id, "daily")
        assert not store.cancel_reminder(IDS.session(NOW_MS), "daily")
        assert not self.other_handle(store).reminders(session_id)
        assert store.fire_reminder(session_id, "daily", 5, new_message(), None) is None
        assert len(store.reminders(other.session.session_id)) == 1

    def test_a_due_reminder_becomes_a_message_of_the_outbox(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        first, sent = (
            OutboxMessage(IDS.message(NOW_MS), "to/someone", b"%d" % number, NOW_MS, "a/b", headers={"trace": "é"})
            for number in range(2)
        )
        writer.write(outbox=(first,), reminders=(SetReminder("later", 5, b"d"), SetReminder("other", 5, b"d")))
        for name, due_ms in (("later", 4), ("later", 6), ("none", 5)):
            assert not store.send_reminder(session_id, name, due_ms, sent)
        assert not store.send_reminder(Writer.on(store, "other/one").session.session_id, "later", 5, sent)
        assert not store.send_reminder(IDS.session(NOW_MS), "later", 5, sent)
        assert list(store.outbox()) == [first]
        assert store.send_reminder(session_id, "later", 5, sent)
        seen = self.other_handle(store)
        assert list(seen.outbox()) == [first, sent]
        assert list(seen.reminders(session_id)) == [Reminder(session_id, "other", 5, b"d")]
        assert not store.send_reminder(session_id, "later", 5, sent)
        assert list(store.outbox()) == [first, sent]
        assert not store.sessions_with_pending()

    def test_one_of_many_sends_a_due_reminder(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        writer.write(reminders=(SetReminder("later", 5, b"d"),))
        sent = OutboxMessage(IDS.message(NOW_MS), "to/someone", b"{}", NOW_MS, "a/b")
        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(lambda _: store.send_reminder(session_id, "later", 5, sent), range(16)))
        assert sum(outcomes) == 1
        assert list(store.outbox()) == [sent]

    def test_reminders_are_of_their_session(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        writer.turns(1)
        writer.write(reminders=(SetReminder("daily", 5, b"d"),))
        other.write(reminders=(SetReminder("daily", 6, b"o"),))
        fork = store.fork_session(writer.head.branch_id, 3, "a/fork", IDS.session(NOW_MS), IDS.branch(NOW_MS), NOW_MS)
        assert not store.reminders(fork.session_id)
        store.delete_session(fork.session_id, NOW_MS)
        store.delete_session(writer.session.session_id, NOW_MS)
        again = Writer.on(store)
        assert not store.reminders(again.session.session_id)
        assert list(store.due_reminders(NOW_MS, 10)) == [Reminder(other.session.session_id, "daily", 6, b"o")]
