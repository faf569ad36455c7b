"""Commits, and the outbox that they fill."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import BranchVersionConflict, InvalidInput, NotFound, StaleEpoch
from chronicle.ids import MessageId
from chronicle.journal.records import (
    Head,
    MessageStatus,
    OutboxEnvelope,
    OutboxMessage,
    Outcome,
    Settlement,
    Snapshot,
    StepWrite,
    StoredStep,
)
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, Contract, Writer

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject
    from chronicle.journal.port import JournalStore

__all__ = ["CommitContract"]


class CommitContract(Contract):
    """A commit does all that it says, or nothing."""

    def test_a_commit_does_all_of_it(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        message_id = writer.admit()
        headers: JsonObject = {"ask": {"path": ["hello/alice"], "deadline_ms": NOW_MS}}
        outgoing = OutboxMessage(
            IDS.message(NOW_MS), "other/one", b'{"a":1}', NOW_MS, "hello/alice", headers=headers
        )  # fmt: skip
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
        outgoing = OutboxMessage(IDS.message(NOW_MS), "other/one", b"{}", NOW_MS)
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

    def test_many_commits_do_what_each_would_do_alone(self, store: JournalStore) -> None:
        writers = [Writer.on(store, f"agent/{number}") for number in range(6)]
        messages = [writer.admit(b"x") for writer in writers]
        steps = [StoredStep(message, 1, "step", b"{}") for message in messages]
        sent = [OutboxMessage(IDS.message(NOW_MS), "to/someone", b"\xff", NOW_MS, headers={"a": 1}) for _ in writers]
        for writer, step in zip(writers[:5], steps, strict=False):
            store.put_step(writer.session.session_id, step, None)
        outcomes = store.commit_many(
            [
                StepWrite(writers[5].session.session_id, steps[5], None),
                *(
                    writer.commit_of(settled=(Settlement(message, outcome),), outbox=(out,))
                    for writer, message, outcome, out in zip(writers, messages, Outcome, sent, strict=False)
                ),
            ]
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), *[Head] * 5]
        seen = self.other_handle(store)
        found = [seen.message(message) for message in messages]
        assert [message.status for message in found] == [
            "consumed",
            "cancelled",
            "pending",
            "parked",
            "paused",
            "pending",
        ]
        assert [message.attempts for message in found] == [0, 0, 1, 1, 0, 0]
        assert [len(seen.steps(message)) for message in messages] == [0, 0, 1, 1, 1, 1]
        assert list(seen.outbox()) == sent[:5]
        for writer in writers:
            assert verify_session(seen, writer.session).ok

    def test_many_commits_to_one_branch_in_order(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        first = writer.commit_of()
        head = Head(writer.head.branch_id, 1, first.events[0].event_id, first.events[0].hash, 1)
        second = replace(writer, head=head).commit_of()
        outcomes = store.commit_many([first, first, second])
        assert [type(outcome) for outcome in outcomes] == [Head, BranchVersionConflict, Head]
        assert store.head(head.branch_id) == outcomes[2]

    def test_many_commits_with_ids_of_others_fail_each_by_itself(self, store: JournalStore) -> None:
        """Refusals of the database after other statements of the commit, not of the checks before them."""
        first = Writer.on(store)
        sent = OutboxMessage(IDS.message(NOW_MS), "to/someone", b"{}", NOW_MS)
        first.write(outbox=(sent,))
        writers = [Writer.on(store, f"agent/{number}") for number in range(30)]
        fresh = [replace(sent, message_id=IDS.message(NOW_MS)) for _ in writers]
        outcomes = store.commit_many(
            [
                writer.commit_of(outbox=(fresh[number], *([sent] if number % 3 else [])))
                for number, writer in enumerate(writers)
            ]
        )
        assert [type(outcome) for outcome in outcomes] == [Head, InvalidInput, InvalidInput] * 10
        seen = self.other_handle(store)
        assert [seen.head(writer.head.branch_id).seq for writer in writers] == [1, 0, 0] * 10
        assert list(seen.outbox()) == [sent, *fresh[::3]]
        for number, writer in enumerate(writers):
            if number % 3:
                writer.write(outbox=(fresh[number],))

    @pytest.mark.parametrize("bad", range(3))
    def test_of_many_commits_any_may_be_refused(self, store: JournalStore, bad: int) -> None:
        """By the database, which may say so after the last statement; the others are made once."""
        sent = OutboxMessage(IDS.message(NOW_MS), "to/someone", b"{}", NOW_MS)
        Writer.on(store).write(outbox=(sent,))
        writers = [Writer.on(store, f"agent/{number}") for number in range(3)]
        outboxes = [(replace(sent, message_id=IDS.message(NOW_MS)),) for _ in writers]
        outboxes[bad] = (sent,)
        commits = [writer.commit_of(outbox=outbox) for writer, outbox in zip(writers, outboxes, strict=True)]
        outcomes = store.commit_many(commits)
        assert [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, Head)] == [bad]
        assert [type(outcome) for outcome in [outcomes[bad], *store.commit_many([commits[bad]])]] == [InvalidInput] * 2
        seen = self.other_handle(store)
        expected = [0 if number == bad else 1 for number in range(3)]
        assert [seen.head(writer.head.branch_id).seq for writer in writers] == expected
        assert list(seen.outbox()) == [sent, *(outbox[0] for outbox in outboxes if outbox[0] != sent)]

    def test_the_outbox_keeps_its_order(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        sent = [OutboxMessage(IDS.message(NOW_MS), f"to/{number}", b"%d" % number, NOW_MS) for number in range(5)]
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

    def test_envelopes_tell_what_is_in_the_outbox(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        assert not store.outbox_envelopes()
        names = ("a/1", "default"), ("a/1", "acme"), ("b/2", "default")
        sent = [
            OutboxMessage(IDS.message(NOW_MS), name, b"%d" % number, NOW_MS + number, namespace=namespace)
            for number, (name, namespace) in enumerate(names)
        ]
        writer.write(outbox=(sent[2], sent[0], sent[1]))
        assert list(self.other_handle(store).outbox_envelopes()) == [
            OutboxEnvelope(message.message_id, message.target, message.created_ms, message.namespace)
            for message in (sent[2], sent[0], sent[1])
        ]
        ids = [message.message_id for message in sent]
        assert list(store.outbox(among=[ids[1], ids[2], MessageId("msg_no")])) == [sent[2], sent[1]]
        assert list(store.outbox(limit=1, among=ids)) == [sent[2]]
        assert not store.outbox(among=[])
        store.outbox_delivered(ids[2])
        assert [envelope.message_id for envelope in store.outbox_envelopes()] == ids[:2]
