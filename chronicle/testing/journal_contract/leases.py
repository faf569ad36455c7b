"""Leases and epochs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest

from chronicle.errors import LeaseHeld, StaleEpoch
from chronicle.ids import SessionId
from chronicle.journal.records import MessageStatus, Outcome, Settlement
from chronicle.testing.journal_contract.writer import NOW_MS, TTL_MS, Contract, Writer

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Lease

__all__ = ["LeaseContract"]


class LeaseContract(Contract):
    """An epoch is given once, and only the one in force writes."""

    has_own_clock: ClassVar[bool] = False
    """Whether leases go by the store's clock, and not by what callers say."""

    def expires(self, lease: Lease | None, now_ms: int) -> bool:
        """Whether a lease was extended by `TTL_MS` at a time, as far as it is known."""
        return lease is not None and (self.has_own_clock or lease.expires_ms == now_ms + TTL_MS)

    def test_an_epoch_is_given_once(self, store: JournalStore) -> None:
        session_id = Writer.on(store).session.session_id
        assert store.lease(session_id) is None
        first = store.acquire_lease(session_id, "host a", NOW_MS, TTL_MS)
        assert (first.session_id, first.holder, first.epoch) == (session_id, "host a", 1)
        assert self.expires(first, NOW_MS)
        assert self.other_handle(store).lease(session_id) == first
        with pytest.raises(LeaseHeld) as caught:
            store.acquire_lease(session_id, "host b", NOW_MS + TTL_MS - 1, TTL_MS)
        assert (caught.value.holder, caught.value.epoch, caught.value.expires_ms) == ("host a", 1, first.expires_ms)
        assert store.renew_leases([(session_id, 1)], NOW_MS + TTL_MS, 0) == []
        assert store.acquire_lease(session_id, "host b", NOW_MS + TTL_MS, TTL_MS).epoch == 2
        assert store.acquire_lease(session_id, "host b", NOW_MS + TTL_MS, TTL_MS).epoch == 3
        assert store.acquire_lease(session_id, "host c", NOW_MS + TTL_MS, TTL_MS, takeover=True).epoch == 4
        store.release_lease(session_id, 4)
        assert store.lease(session_id) is None
        assert store.acquire_lease(session_id, "host a", NOW_MS, TTL_MS).epoch == 5

    def test_an_epoch_may_be_higher_than_those_that_were_lost(self, store: JournalStore) -> None:
        session_id = Writer.on(store).session.session_id
        first = store.acquire_lease(session_id, "host a", NOW_MS, TTL_MS, least_epoch=1 << 32)
        assert first.epoch == 1 << 32
        assert store.acquire_lease(session_id, "host a", NOW_MS, TTL_MS, least_epoch=7).epoch == first.epoch + 1

    def test_renewing_and_releasing_need_the_epoch(self, store: JournalStore) -> None:
        session_id = Writer.on(store).session.session_id
        store.acquire_lease(session_id, "host a", NOW_MS, TTL_MS)
        assert store.renew_leases([(session_id, 1)], NOW_MS + 5, TTL_MS) == []
        renewed = store.lease(session_id)
        assert renewed is not None
        assert renewed.epoch == 1
        assert self.expires(renewed, NOW_MS + 5)
        current = store.acquire_lease(session_id, "host b", NOW_MS, TTL_MS, takeover=True)
        assert store.renew_leases([(session_id, 1)], NOW_MS, TTL_MS) == [session_id]
        store.release_lease(session_id, 1)
        assert store.lease(session_id) == current
        store.release_lease(session_id, 2)
        assert store.renew_leases([(session_id, 2)], NOW_MS, TTL_MS) == [session_id]

    def test_leases_are_renewed_and_released_together(self, store: JournalStore) -> None:
        held, taken, given_back = (Writer.on(store, name).session.session_id for name in ("a/1", "a/2", "a/3"))
        for session_id in (held, taken, given_back):
            store.acquire_lease(session_id, "host a", NOW_MS, TTL_MS)
        other = store.acquire_lease(taken, "host b", NOW_MS, TTL_MS, takeover=True)
        store.release_lease(given_back, 1)
        missing = SessionId("ses_missing")
        asked = [(session_id, 1) for session_id in (held, taken, given_back, missing)]
        assert set(store.renew_leases(asked, NOW_MS + 5, TTL_MS)) == {taken, given_back, missing}
        renewed = self.other_handle(store).lease(held)
        assert renewed is not None
        assert (renewed.holder, renewed.epoch) == ("host a", 1)
        assert self.expires(renewed, NOW_MS + 5)
        assert (store.lease(taken), store.lease(given_back)) == (other, None)
        assert store.renew_leases([], NOW_MS, TTL_MS) == []
        store.release_leases(asked)
        assert (store.lease(held), store.lease(taken)) == (None, other)

    def test_leases_are_found_by_the_prefix_of_their_holders(self, store: JournalStore) -> None:
        sessions = [Writer.on(store, f"a/{number}").session for number in range(4)]
        leases = [
            store.acquire_lease(session.session_id, holder, NOW_MS, TTL_MS)
            for session, holder in zip(sessions, ("host_a", "command", "host_b", "host_c"), strict=True)
        ]
        store.release_lease(sessions[3].session_id, leases[3].epoch)
        held = self.other_handle(store).held_sessions("host_")
        assert list(held) == [(sessions[0], leases[0]), (sessions[2], leases[2])]
        assert list(store.held_sessions("host_b")) == [(sessions[2], leases[2])]
        assert list(store.held_sessions("other")) == []

    def test_one_of_many_gets_the_lease(self, store: JournalStore) -> None:
        session_id = Writer.on(store).session.session_id

        def take(number: int) -> bool:
            try:
                store.acquire_lease(session_id, f"host {number}", NOW_MS, TTL_MS)
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
        old = store.acquire_lease(session_id, "host a", NOW_MS, TTL_MS)
        with pytest.raises(StaleEpoch):
            writer.write()
        writer.epoch = old.epoch
        writer.write()
        other = self.other_handle(store)
        new = other.acquire_lease(session_id, "host b", NOW_MS, TTL_MS, takeover=True)
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
