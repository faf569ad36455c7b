"""Paused messages."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import InboxFull, NotFound
from chronicle.ids import MessageId, SessionId
from chronicle.journal.records import (
    MessageStatus,
    NewMessage,
    Outcome,
    PauseEnd,
    SetReminder,
    Settlement,
    StoredStep,
)
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, Contract, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.journal.port import JournalStore

__all__ = ["PauseContract"]

_OPEN, _ANSWERED, _EXPIRED = b'{"answer":null}', b'{"answer":"yes"}', b'{"expired":true}'
_EXPIRY = "expiry"


def paused(writer: Writer, message_id: MessageId, steps: int = 1, due_ms: int | None = None) -> PauseEnd:
    """Pause a message at its last step, and return what ends the pause."""
    for number in range(1, steps):
        writer.store.put_step(
            writer.session.session_id, StoredStep(message_id, number, f"step#{number}", b"{}"), writer.epoch
        )
    writer.store.put_step(writer.session.session_id, StoredStep(message_id, steps, "decide#1", _OPEN), writer.epoch)
    reminders = (SetReminder(_EXPIRY, due_ms, b""),) if due_ms is not None else ()
    writer.write(settled=(Settlement(message_id, Outcome.PAUSED),), reminders=reminders)
    return PauseEnd(message_id, steps, _OPEN, _ANSWERED, reminder=_EXPIRY)


def _now_ms(store: JournalStore) -> int:
    return store.now_ms(time.time_ns() // 1_000_000)


def pending(store: JournalStore, writer: Writer) -> Sequence[MessageId]:
    return [message.message_id for message in store.pending(writer.session.session_id)]


class PauseContract(Contract):
    """A paused message holds up its inbox until its pause ends, once, or until it is cancelled."""

    def test_a_paused_message_holds_up_those_behind_it(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        first, behind, elsewhere = writer.admit(b"1"), writer.admit(b"2"), other.admit()
        paused(writer, first)
        seen = self.other_handle(store)
        assert (seen.message(first).status, seen.message(first).attempts) == (MessageStatus.PAUSED, 0)
        assert seen.message(first).body == b"1"
        assert pending(seen, writer) == []
        assert pending(seen, other) == [elsewhere]
        assert [each.name for each in seen.sessions_with_pending()] == ["other/one"]
        among = [(writer.session.name, writer.session.namespace), (other.session.name, other.session.namespace)]
        assert [each.name for each in seen.sessions_with_pending(among=among)] == ["other/one"]
        later = writer.admit(b"3")
        assert pending(seen, writer) == []
        assert [seen.waiting_before(each) for each in (first, behind, later)] == [0, 1, 2]
        assert [each.message_id for each in seen.messages(writer.session.session_id, MessageStatus.PENDING)] == [
            behind,
            later,
        ]
        head = seen.paused_message(writer.session.session_id)
        assert head == seen.message(first)
        assert seen.paused_message(other.session.session_id) is None
        assert seen.paused_message(SessionId("ses_no")) is None

    def test_a_paused_message_counts_against_the_limit(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        paused(writer, writer.admit())
        with pytest.raises(InboxFull):
            store.admit(writer.session.session_id, NewMessage(IDS.message(NOW_MS), b"{}", NOW_MS), limit=1)
        message = NewMessage(IDS.message(NOW_MS), b"{}", NOW_MS)
        assert store.admit(writer.session.session_id, message, 2).before is None
        assert store.waiting_before(message.message_id) == 1

    def test_only_a_pending_message_is_paused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        first, second = writer.admit(), writer.admit()
        pause = Settlement(first, Outcome.PAUSED)
        paused(writer, first)
        head = writer.head
        for refused in (pause, Settlement(first, Outcome.CONSUMED), Settlement(first, Outcome.FAILED)):
            with pytest.raises(NotFound):
                writer.write(settled=(refused,))
        with pytest.raises(NotFound):
            store.put_step(writer.session.session_id, StoredStep(first, 2, "k", b"{}"), None)
        with pytest.raises(NotFound):
            store.retry_message(writer.session.session_id, first)
        writer.head = head
        writer.write(settled=(Settlement(first, Outcome.CANCELLED),))
        assert pending(store, writer) == [second]
        assert not store.steps(first)
        assert store.paused_message(writer.session.session_id) is None

    def test_the_end_of_a_pause_makes_it_the_next_message_again(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        first, behind = writer.admit(b"1"), writer.admit(b"2")
        end = paused(writer, first, steps=3, due_ms=NOW_MS + 5)
        writer.write(reminders=(SetReminder("other", NOW_MS + 9, b""),))
        later = writer.admit(b"3")
        assert self.other_handle(store).end_pause(writer.session.session_id, end, NOW_MS)
        seen = self.other_handle(store)
        assert pending(seen, writer) == [first, behind, later]
        assert seen.message(first).attempts == 0
        assert [step.body for step in seen.steps(first)] == [b"{}", b"{}", _ANSWERED]
        assert [each.name for each in seen.reminders(writer.session.session_id)] == ["other"]
        assert [each.name for each in seen.sessions_with_pending()] == [writer.session.name]
        writer.write(settled=(Settlement(first, Outcome.CONSUMED),))
        assert pending(seen, writer) == [behind, later]

    def test_a_pause_ends_once_and_only_for_its_own_answer(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        first = writer.admit()
        end = paused(writer, first, steps=2, due_ms=NOW_MS + 5)
        session_id = writer.session.session_id
        wrong = (
            (other.session.session_id, end),
            (session_id, replace(end, message_id=MessageId("msg_no"))),
            (session_id, replace(end, number=1)),
            (session_id, replace(end, before=_ANSWERED)),
            (session_id, replace(end, from_ms=1 << 52)),
            (session_id, replace(end, until_ms=NOW_MS)),
        )
        for session, attempt in wrong:
            assert not store.end_pause(session, attempt, NOW_MS)
        assert store.message(first).status is MessageStatus.PAUSED
        assert store.steps(first)[1].body == _OPEN
        assert [each.name for each in store.reminders(session_id)] == [_EXPIRY]
        assert store.end_pause(session_id, replace(end, from_ms=NOW_MS, until_ms=1 << 52), NOW_MS)
        assert not store.end_pause(session_id, end, NOW_MS)
        assert store.steps(first)[1].body == _ANSWERED

    def test_of_many_answers_at_once_one_is_taken(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        first = writer.admit()
        end = paused(writer, first)
        answers = [replace(end, after=f'{{"answer":{number}}}'.encode()) for number in range(8)]

        def answer(each: PauseEnd) -> bool:
            return store.end_pause(writer.session.session_id, each, NOW_MS)

        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(answer, answers))
        assert taken.count(True) == 1
        assert store.steps(first)[0].body == answers[taken.index(True)].after

    def test_an_answer_in_the_moment_of_the_expiry_leaves_one_of_both(self, store: JournalStore) -> None:
        for _ in range(5):
            writer = Writer.on(store, f"hello/{IDS.message(NOW_MS)}")
            session_id, first = writer.session.session_id, writer.admit()
            due_ms = _now_ms(store) + 20
            end = paused(writer, first, due_ms=due_ms)
            answers = [replace(end, after=b'{"answer":%d}' % number, until_ms=due_ms) for number in range(2)]
            ends = [*answers, replace(end, after=_EXPIRED, from_ms=due_ms)]

            def end_at_the_moment(
                each: PauseEnd, session_id: SessionId = session_id, moment_ms: int = due_ms - 1
            ) -> bool:
                while _now_ms(store) < moment_ms:
                    pass
                while store.paused_message(session_id) is not None:
                    if store.end_pause(session_id, each, _now_ms(store)):
                        return True
                return False

            with ThreadPoolExecutor(len(ends)) as pool:
                taken = list(pool.map(end_at_the_moment, ends))
            assert taken.count(True) == 1
            assert store.steps(first)[0].body == ends[taken.index(True)].after
            assert pending(store, writer) == [first]
            assert not store.reminders(session_id)

    def test_an_answer_and_a_cancellation_at_once_leave_one_of_both(self, store: JournalStore) -> None:
        for _ in range(5):
            writer = Writer.on(store, f"hello/{IDS.message(NOW_MS)}")
            first = writer.admit()
            end = paused(writer, first)
            cancel = writer.commit_of(settled=(Settlement(first, Outcome.CANCELLED),))
            with ThreadPoolExecutor(2) as pool:
                answering = pool.submit(store.end_pause, writer.session.session_id, end, NOW_MS)
                cancelling = pool.submit(store.commit, cancel)
                answering.result(), cancelling.result()  # a pending message is cancelled as well
            assert store.message(first).status is MessageStatus.CANCELLED
            assert not store.steps(first)

    def test_paused_messages_are_listed_by_pages(self, store: JournalStore) -> None:
        writers = [Writer.on(store, f"hello/{number}", "acme" if number % 2 else "default") for number in range(5)]
        messages = [writer.admit(b"%d" % number) for number, writer in enumerate(writers)]
        for number, (writer, message_id) in enumerate(zip(writers, messages, strict=True)):
            if number < 4:
                paused(writer, message_id, steps=number + 1)
        seen = self.other_handle(store)
        found = list(seen.paused_messages())
        assert [each.message.message_id for each in found] == messages[:4]
        assert [each.session for each in found] == [writer.session for writer in writers[:4]]
        assert [each.message for each in found] == [seen.message(each) for each in messages[:4]]
        assert [each.step for each in found] == [seen.steps(each)[-1] for each in messages[:4]]
        first, *_ = page = list(seen.paused_messages(limit=2))
        assert page == found[:2]
        assert list(seen.paused_messages(after=page[-1].place, limit=2)) == found[2:]
        assert list(seen.paused_messages(after=first.place)) == found[1:]
        assert not seen.paused_messages(after=found[-1].place)
        assert list(seen.paused_messages("acme")) == [found[1], found[3]]
        counts = [seen.count_paused(limit=9), seen.count_paused("acme", limit=9), seen.count_paused(limit=3)]
        assert counts == [4, 2, 3]
        assert [seen.count_paused(after=first.place, limit=limit) for limit in (2, 3, 4)] == [2, 3, 3]
        assert seen.count_paused("default", "hello/2", limit=9) == 1
        assert list(seen.paused_messages("default", "hello/2")) == [found[2]]

    def test_pauses_go_with_their_session(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        paused(writer, writer.admit(), due_ms=5)
        store.delete_session(writer.session.session_id, NOW_MS)
        assert not store.paused_messages()
        assert not store.due_reminders(NOW_MS, 10)
