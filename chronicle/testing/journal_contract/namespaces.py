"""Namespaces of session names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Conflict, NotFound
from chronicle.journal.chain import catalogue_genesis, seal
from chronicle.journal.objects import StoredObject
from chronicle.journal.records import (
    DEFAULT_NAMESPACE,
    ROW_BYTES,
    Commit,
    OutboxMessage,
    Outcome,
    RecordUsage,
    SetReminder,
    Settlement,
    StoredStep,
)
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, TTL_MS, Contract, Writer

if TYPE_CHECKING:
    from chronicle.ids import BlobId
    from chronicle.journal.port import JournalStore

__all__ = ["NamespaceContract"]


class NamespaceContract(Contract):
    """A name means another session in each namespace."""

    def test_one_name_in_two_namespaces(self, store: JournalStore) -> None:
        ours, theirs = Writer.on(store), Writer.on(store, namespace="acme")
        assert ours.session.session_id != theirs.session.session_id
        assert (ours.session.namespace, theirs.session.namespace) == (DEFAULT_NAMESPACE, "acme")
        ours.turns(1)
        theirs.turns(2)
        other = self.other_handle(store)
        assert other.session("hello/alice") == ours.session
        assert other.session("hello/alice", "acme") == theirs.session
        assert [other.head(each.session.main_branch_id).seq for each in (ours, theirs)] == [2, 4]
        assert verify_session(other, ours.session).ok
        assert verify_session(other, theirs.session).ok
        for namespace in ("ACME", "acm", "", "*"):
            with pytest.raises(NotFound):
                store.session("hello/alice", namespace)

    def test_concurrent_callers_get_one_session_for_each_namespace(self, store: JournalStore) -> None:
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda number: Writer.on(store, "a/b", f"n{number % 3}").session, range(12)))
        assert len({session.session_id for session in made}) == 3
        assert len(store.sessions()) == 3

    def test_sessions_of_one_namespace_or_all(self, store: JournalStore) -> None:
        for name, namespace in (("b/2", "acme"), ("b/1", "zeta"), ("b/1", "acme"), ("a/1", DEFAULT_NAMESPACE)):
            Writer.on(store, name, namespace)
        named = [(session.name, session.namespace) for session in store.sessions()]
        assert named == [("a/1", DEFAULT_NAMESPACE), ("b/1", "acme"), ("b/1", "zeta"), ("b/2", "acme")]
        assert [session.name for session in store.sessions(namespace="acme")] == ["b/1", "b/2"]
        assert [session.name for session in store.sessions("b/2", "acme")] == ["b/2"]
        assert not store.sessions("a/", "acme")
        assert not store.sessions(namespace="no one")

    def test_the_usage_of_a_namespace_has_all_that_its_records_take(self, store: JournalStore) -> None:
        assert store.record_usage("acme") == RecordUsage(0, [])
        ours, theirs = Writer.on(store, namespace="acme"), Writer.on(store, namespace="zeta")
        seen = self.other_handle(store)
        used = 0

        def grown(rows: int, size_bytes: int) -> None:
            nonlocal used
            used += rows * ROW_BYTES + size_bytes
            assert seen.record_usage("acme") == RecordUsage(used, [])

        grown(1, 0)  # the branch
        theirs.admit(b"x" * 5000)
        message_id = ours.admit("é".encode() * 500)
        grown(1, 1000)
        step = StoredStep(message_id, 1, "step", b"y" * 300)
        store.put_step(ours.session.session_id, step, None)
        grown(1, 300)
        settled = Settlement(message_id, Outcome.CONSUMED)
        (event,) = ours.write(ours.draft("note", {"text": "x" * 700}), settled=(settled,))
        assert event.payload is not None
        grown(-2 + 1, -1300 + len(event.payload))
        ours.write(ours.draft("note", None), reminders=(SetReminder("daily", 5, b"r" * 90),))
        grown(2, len(b"null") + 90)
        sent = OutboxMessage(IDS.message(NOW_MS), "hello/bob", b"s" * 80, NOW_MS, "acme:hello/alice", "acme")
        ours.write(ours.draft("note", None), outbox=(sent,))
        grown(2, len(b"null") + 80)
        ours.fork(ours.head.seq)
        grown(1, 0)
        store.put_object(StoredObject("artifact", "art_1", NOW_MS, b"{}", None, sha256(b"{}").hexdigest(), "acme"))
        grown(1, 2)
        large: dict[BlobId, bytes] = {}
        (outside,) = seal(ours.head, [ours.draft("note", "z" * 70_000)], large)
        store.commit(Commit(ours.session.session_id, ours.head, (outside,), ours.epoch))
        used += ROW_BYTES
        assert seen.record_usage("acme") == RecordUsage(used, [*large])
        store.delete_session(ours.session.session_id, NOW_MS)
        assert seen.record_usage("acme").payloads == []
        assert seen.record_usage("acme").size_bytes < 1000

    def test_the_record_of_a_session_covers_its_namespace(self, store: JournalStore) -> None:
        session = Writer.on(store, namespace="acme").session
        assert store.catalogue(session.session_id)[0].prev_hash == catalogue_genesis(session)
        moved = type(session)(session.session_id, session.name, session.main_branch_id, session.created_ms, "zeta")
        assert catalogue_genesis(moved) != catalogue_genesis(session)

    def test_a_fork_stays_in_the_namespace(self, store: JournalStore) -> None:
        Writer.on(store, "hello/bob")
        writer = Writer.on(store, namespace="acme")
        writer.turns(1)
        fork = store.fork_session(
            writer.head.branch_id, 2, "hello/bob", IDS.session(NOW_MS), IDS.branch(NOW_MS), NOW_MS
        )
        assert (fork.namespace, store.session("hello/bob", "acme")) == ("acme", fork)
        assert verify_session(store, fork).ok
        with pytest.raises(Conflict):
            store.fork_session(writer.head.branch_id, 2, "hello/bob", IDS.session(1), IDS.branch(1), 1)

    def test_a_session_is_imported_into_a_namespace(self, store: JournalStore) -> None:
        source = Writer.on(store)
        source.turns(1)
        Writer.on(store, "hello/bob")
        imported = store.import_session(
            "hello/bob", IDS.session(NOW_MS), IDS.branch(NOW_MS), source.head, NOW_MS, namespace="acme"
        )
        assert store.session("hello/bob", "acme") == imported
        with pytest.raises(Conflict):
            store.import_session("hello/bob", IDS.session(1), IDS.branch(1), source.head, 1, namespace="acme")

    def test_messages_and_leases_belong_to_one_namespace(self, store: JournalStore) -> None:
        ours, theirs = Writer.on(store), Writer.on(store, namespace="acme")
        theirs.admit(key="k")
        assert not store.pending(ours.session.session_id)
        assert store.sessions_with_pending() == [theirs.session]
        ours.admit(b'{"another":1}', key="k")  # the key is of the session
        assert store.acquire_lease(ours.session.session_id, "a", NOW_MS, TTL_MS).epoch == 1
        assert store.lease(theirs.session.session_id) is None

    def test_the_outbox_keeps_the_namespace(self, store: JournalStore) -> None:
        writer = Writer.on(store, namespace="acme")
        sent = OutboxMessage(IDS.message(NOW_MS), "hello/bob", b"{}", NOW_MS, "acme:hello/alice", "acme")
        plain = OutboxMessage(IDS.message(NOW_MS), "hello/bob", b"{}", NOW_MS)
        writer.write(outbox=(sent, plain))
        assert self.other_handle(store).outbox() == [sent, plain]
        assert plain.namespace == DEFAULT_NAMESPACE

    def test_a_deleted_session_leaves_the_other_namespace_alone(self, store: JournalStore) -> None:
        ours, theirs = Writer.on(store), Writer.on(store, namespace="acme")
        theirs.turns(1)
        tombstone = store.delete_session(theirs.session.session_id, NOW_MS)
        assert (tombstone.name, tombstone.namespace) == ("hello/alice", "acme")
        assert store.session("hello/alice") == ours.session
        with pytest.raises(NotFound):
            store.session("hello/alice", "acme")
        assert store.tombstones() == store.tombstones(namespace="acme") == [tombstone]
        assert not store.tombstones(namespace=DEFAULT_NAMESPACE)
        again = Writer.on(store, namespace="acme")
        again.turns(1)
        assert verify_session(store, again.session).ok
