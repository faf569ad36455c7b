"""Steps of messages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Conflict, InvalidInput, NotFound, StaleEpoch
from chronicle.ids import MessageId
from chronicle.journal.records import Head, Outcome, Settlement, StepWrite, StoredStep
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, TTL_MS, Contract, Writer

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore

__all__ = ["StepContract"]


def step_of(message_id: MessageId, number: int = 1, body: bytes = b'{"result":1}') -> StoredStep:
    return StoredStep(message_id, number, f"fetch#{number}", body)


class StepContract(Contract):
    """Steps are durable and fenced, and live as long as their message waits."""

    def test_steps_are_read_in_their_order(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        session_id = writer.session.session_id
        first, second, foreign = writer.admit(), writer.admit(), other.admit()
        for number in (2, 1, 3):
            store.put_step(session_id, step_of(second, number), None)
        store.put_step(session_id, step_of(first, 7, "é\0".encode() + b"\xff" * 40_000), None)
        store.put_step(other.session.session_id, step_of(foreign), None)
        seen = self.other_handle(store)
        assert list(seen.steps(second)) == [step_of(second, number) for number in (1, 2, 3)]
        assert list(seen.steps_of_session(session_id)) == [*store.steps(first), *store.steps(second)]
        assert [(step.number, len(step.body)) for step in store.steps(first)] == [(7, 40_003)]
        assert list(store.steps(foreign)) == [step_of(foreign)]
        assert not store.steps(MessageId("msg_no"))
        assert not store.steps_of_session(IDS.session(NOW_MS))

    def test_a_number_is_used_once(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id, message_id = writer.session.session_id, writer.admit()
        store.put_step(session_id, step_of(message_id), None)
        for body in (b'{"result":1}', b"{}"):
            with pytest.raises(Conflict):
                store.put_step(session_id, step_of(message_id, body=body), None)
        with pytest.raises(InvalidInput):
            store.put_step(session_id, step_of(message_id, 0), None)
        assert list(store.steps(message_id)) == [step_of(message_id)]

    def test_one_of_many_gets_a_number(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id, message_id = writer.session.session_id, writer.admit()

        def put(number: int) -> bool:
            try:
                store.put_step(session_id, step_of(message_id, body=b"%d" % number), None)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(put, range(8))) == 1
        assert len(store.steps(message_id)) == 1

    def test_only_the_epoch_in_force_stores_steps(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id, message_id = writer.session.session_id, writer.admit()
        with pytest.raises(StaleEpoch):
            store.put_step(session_id, step_of(message_id), 1)
        old = store.acquire_lease(session_id, "host a", NOW_MS, TTL_MS)
        store.put_step(session_id, step_of(message_id, 1), old.epoch)
        with pytest.raises(StaleEpoch):
            store.put_step(session_id, step_of(message_id, 2), None)
        new = self.other_handle(store).acquire_lease(session_id, "host b", NOW_MS, TTL_MS, takeover=True)
        for stale in (step_of(message_id, 2), step_of(message_id, 1), step_of(MessageId("msg_no"), 1)):
            with pytest.raises(StaleEpoch) as caught:
                store.put_step(session_id, stale, old.epoch)
            assert (caught.value.epoch, caught.value.current) == (old.epoch, new.epoch)
        store.put_step(session_id, step_of(message_id, 2), new.epoch)
        store.release_lease(session_id, new.epoch)
        with pytest.raises(StaleEpoch):
            store.put_step(session_id, step_of(message_id, 3), new.epoch)
        assert [step.number for step in store.steps(message_id)] == [1, 2]

    def test_only_pending_messages_have_new_steps(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        consumed, cancelled, parked = (writer.admit() for _ in range(3))
        ends = (Outcome.CONSUMED, Outcome.CANCELLED, Outcome.PARKED)
        for message_id, outcome in zip((consumed, cancelled, parked), ends, strict=True):
            writer.write(settled=(Settlement(message_id, outcome),))
        foreign = Writer.on(store, "other/one").admit()
        for message_id in (consumed, cancelled, parked, foreign, MessageId("msg_no")):
            with pytest.raises(NotFound):
                store.put_step(session_id, step_of(message_id), None)
            assert not store.steps(message_id)
        with pytest.raises(NotFound):
            store.put_step(IDS.session(NOW_MS), step_of(foreign), None)
        store.retry_message(session_id, parked)
        store.put_step(session_id, step_of(parked), None)

    def test_steps_end_with_their_message(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        kept, ended = writer.admit(), writer.admit()
        for message_id in (kept, ended):
            store.put_step(session_id, step_of(message_id), None)
        refused = (Settlement(ended, Outcome.CONSUMED), Settlement(MessageId("msg_no"), Outcome.CONSUMED))
        with pytest.raises(NotFound):
            writer.write(settled=refused)
        assert len(store.steps_of_session(session_id)) == 2
        writer.write(settled=(Settlement(kept, Outcome.FAILED),))
        writer.write(settled=(Settlement(kept, Outcome.PARKED), Settlement(ended, Outcome.CONSUMED)))
        seen = self.other_handle(store)
        assert list(seen.steps_of_session(session_id)) == list(seen.steps(kept)) == [step_of(kept)]
        store.retry_message(session_id, kept)
        assert list(store.steps(kept)) == [step_of(kept)]
        writer.write(settled=(Settlement(kept, Outcome.CANCELLED),))
        assert not store.steps_of_session(session_id)

    def test_steps_are_dropped_when_asked(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        session_id = writer.session.session_id
        first, second = writer.admit(), writer.admit()
        for message_id in (first, second):
            for number in (1, 2):
                store.put_step(session_id, step_of(message_id, number), None)
        for message_id in (first, first, MessageId("msg_no")):
            store.drop_steps(message_id)
        assert [step.message_id for step in store.steps_of_session(session_id)] == [second, second]
        store.put_step(session_id, step_of(first), None)

    def test_steps_are_of_their_session(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        writer.turns(1)
        gone, stays = writer.admit(), other.admit()
        store.put_step(writer.session.session_id, step_of(gone), None)
        store.put_step(other.session.session_id, step_of(stays), None)
        fork = store.fork_session(writer.head.branch_id, 2, "a/fork", IDS.session(NOW_MS), IDS.branch(NOW_MS), NOW_MS)
        assert not store.steps_of_session(fork.session_id)
        store.delete_session(fork.session_id, NOW_MS)
        store.delete_session(writer.session.session_id, NOW_MS)
        again = Writer.on(store)
        again.admit()
        assert not store.steps_of_session(again.session.session_id)
        assert not store.steps(gone)
        assert list(store.steps(stays)) == [step_of(stays)]

    def test_steps_and_commits_share_a_transaction(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        message_id, consumed = writer.admit(), other.admit()
        write = StepWrite(writer.session.session_id, step_of(message_id), None)
        outcomes = store.commit_many(
            [
                write,
                other.commit_of(settled=(Settlement(consumed, Outcome.CONSUMED),)),
                write,
                replace(write, epoch=3),
                replace(write, step=step_of(MessageId("msg_no"))),
                replace(write, step=step_of(message_id, 2)),
            ]
        )
        assert [type(outcome) for outcome in outcomes] == [
            type(None), Head, Conflict, StaleEpoch, NotFound, type(None)
        ]  # fmt: skip
        assert [step.number for step in self.other_handle(store).steps(message_id)] == [1, 2]
        assert store.head(other.head.branch_id) == outcomes[1]
