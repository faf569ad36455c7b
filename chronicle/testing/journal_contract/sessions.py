"""Sessions and branches, verification, and the store's end."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import BranchVersionConflict, ChronicleError, Conflict, NotFound, StaleEpoch, Unavailable
from chronicle.ids import BranchId, EventId, MessageId, SessionId
from chronicle.journal.chain import empty_head
from chronicle.journal.records import (
    NO_FILTER,
    MessageStatus,
    NewMessage,
    Outcome,
    SessionFilter,
    SessionSummary,
    Settlement,
)
from chronicle.journal.verify import Anchor, verify_session
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, Contract, Writer

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore

__all__ = ["SessionContract"]


class SessionContract(Contract):
    """Sessions are made once, verify as they were written, and are not to be had of a closed store."""

    def test_a_session_is_made_once(self, store: JournalStore) -> None:
        first = store.ensure_session("hello/alice", SessionId("ses_1"), BranchId("br_1"), 5)
        again = store.ensure_session("hello/alice", SessionId("ses_2"), BranchId("br_2"), 6)
        assert again == first == store.session("hello/alice")
        assert (first.session_id, first.main_branch_id, first.created_ms) == ("ses_1", "br_1", 5)
        assert store.session_of_id(first.session_id) == first
        with pytest.raises(NotFound):
            store.session_of_id(SessionId("ses_2"))
        assert [branch.branch_id for branch in store.branches(first.session_id)] == ["br_1"]
        with pytest.raises(NotFound):
            store.branch(BranchId("br_2"))

    def test_concurrent_callers_get_the_same_session(self, store: JournalStore) -> None:
        with ThreadPoolExecutor(8) as pool:
            made = list(
                pool.map(
                    lambda _: store.ensure_session("a/b", IDS.session(NOW_MS), IDS.branch(NOW_MS), NOW_MS), range(16)
                )
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
        names = [session.name for session in store.sessions()]
        for prefix in ("", "b"):
            of_prefix = [name for name in names if name.startswith(prefix)]
            pages, after = list[str](), ""
            while page := [session.name for session in store.sessions(prefix, after=after, limit=2)]:
                assert len(page) <= 2
                pages, after = [*pages, *page], page[-1]
            assert pages == of_prefix

    def test_summaries_have_what_lists_show(self, store: JournalStore) -> None:
        writer, other, theirs = Writer.on(store, "a/1"), Writer.on(store, "a/2"), Writer.on(store, "a/1", "acme")
        empty = Writer.on(store, "b/1")
        writer.turns(2)
        lease = store.acquire_lease(other.session.session_id, "host", NOW_MS, 1000)
        other.epoch = lease.epoch
        other.turns(1)
        released = store.acquire_lease(theirs.session.session_id, "host", NOW_MS, 1000)
        store.release_lease(theirs.session.session_id, released.epoch)
        settled = [writer.admit() for _ in range(4)]
        outcomes = (Outcome.PARKED, Outcome.CONSUMED, Outcome.CANCELLED, Outcome.FAILED)
        writer.write(settled=tuple(map(Settlement, settled, outcomes)))
        for _ in range(2):
            writer.admit()
        theirs.admit()
        fork = store.fork_session(writer.head.branch_id, 2, "c/1", IDS.session(NOW_MS), IDS.branch(NOW_MS), NOW_MS)
        seen = self.other_handle(store)
        expected = [
            SessionSummary(writer.session, writer.head, NOW_MS + 3, None, 3, 1),
            SessionSummary(theirs.session, theirs.head, None, None, 1, 0),
            SessionSummary(other.session, other.head, NOW_MS + 1, lease, 0, 0),
            SessionSummary(empty.session, empty.head, None, None, 0, 0),
            SessionSummary(fork, store.head(fork.main_branch_id), NOW_MS + 1, None, 0, 0),
        ]
        by_name = sorted(expected, key=lambda each: (each.session.name, each.session.namespace))
        assert list(seen.summaries()) == by_name
        assert list(seen.summaries("a/")) == [each for each in by_name if each.session.name.startswith("a/")]
        assert list(seen.summaries("a/", "acme")) == [expected[1]]
        assert list(seen.summaries(after="a/1", limit=2)) == [expected[2], expected[3]]
        assert list(seen.summaries("a/", "default", limit=1)) == [expected[0]]
        assert not seen.summaries("z")
        assert list(seen.summaries(only=SessionFilter(leased_at_ms=NOW_MS))) == [expected[2]]
        assert not seen.summaries(only=SessionFilter(leased_at_ms=lease.expires_ms))
        assert list(seen.summaries(only=SessionFilter(with_slash=True))) == by_name

    def test_pages_of_all_namespaces_end_among_sessions_of_one_name(self, store: JournalStore) -> None:
        for name, namespace in itertools.product(("a/1", "plain", "b/1"), ("one", "two", "three")):
            Writer.on(store, name, namespace)
        for namespace, after in itertools.product(("one", "two", "three"), ("one", "two", "three")):
            found = store.summaries(namespace=namespace, after="a/1", after_namespace=after)
            expected = ["a/1", "b/1", "plain"] if namespace > after else ["b/1", "plain"]
            assert [each.session.name for each in found] == expected
        for only in (NO_FILTER, SessionFilter(with_slash=True)):
            names = [(each.session.name, each.session.namespace) for each in store.summaries(only=only)]
            assert len(names) == (9 if only is NO_FILTER else 6)
            for number, (name, namespace) in enumerate(names, start=1):
                rest = store.summaries(after=name, after_namespace=namespace, limit=2, only=only)
                assert [(each.session.name, each.session.namespace) for each in rest] == names[number : number + 2]
                left = store.count_sessions(after=name, after_namespace=namespace, only=only)
                assert left == len(names) - number

    def test_sessions_are_counted_as_they_are_listed(self, store: JournalStore) -> None:
        for name, namespace in (("a/1", "one"), ("a/2", "one"), ("a/2", "two"), ("b/1", "one"), ("plain", "one")):
            writer = Writer.on(store, name, namespace)
        store.acquire_lease(writer.session.session_id, "host", NOW_MS, 1000)
        slash, awake = SessionFilter(with_slash=True), SessionFilter(leased_at_ms=NOW_MS)
        for prefix, of, after, only in itertools.product(
            ("", "a/", "z"), (None, "one", "none"), ("", "a/1"), (NO_FILTER, slash, awake)
        ):
            found = store.summaries(prefix, of, after=after, only=only)
            assert store.count_sessions(prefix, of, after=after, only=only) == len(found)

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
