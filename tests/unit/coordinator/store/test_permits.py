"""What a host may do in the journal, method by method, against another host's session."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import InvalidInput, NotFound, StaleEpoch
from chronicle.ids import BranchId, IdSource, MessageId, SessionId
from chronicle.journal.port import JournalStore
from chronicle.journal.records import (
    Commit,
    NewMessage,
    OutboxMessage,
    Outcome,
    SetReminder,
    Settlement,
    StepWrite,
    StoredStep,
)
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.testing.journal_contract import Writer
from coordinator.store.permits import HostPermits
from coordinator.store.renewals import Renewals
from podium.address import Address
from podium.caller import Caller
from podium.messages.headers import AskHeader, Headers, ReminderHeader
from podium.reminders.delayed import DelayedMessage
from podium.reminders.expiries import EXPIRY, expiry_body
from podium.reminders.plans import Plan
from podium.reminders.schedule import At
from podium.turn.journal.commit import FailedAttempt, NextCommit, failure_commit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from chronicle.journal.records import Lease, Session

IDS, NOW_MS = IdSource(), 1_700_000_000_000
OWN, OTHER = "host_own", "host_other"
METHODS = {name for name in dir(JournalStore) if not name.startswith("_")} - {"reserve", "close"}


@dataclass
class Agents:
    """An agent of each of two hosts, with a message and a step."""

    store: JournalStore
    own: Session
    other: Session
    leases: dict[str, Lease]
    messages: dict[str, MessageId]

    def arguments(self, session: Session) -> dict[str, tuple[Any, ...]]:
        """Return for each method that hosts may call its arguments for a session."""
        event = next(iter(self.store.events(session.main_branch_id))).event_id
        message = self.messages[session.name]
        lease = self.leases[session.name]
        return {
            "branch": (session.main_branch_id,),
            "events": (session.main_branch_id,),
            "find_event": (event,),
            "head": (session.main_branch_id,),
            "lease": (session.session_id,),
            "message": (message,),
            "messages": (session.session_id, "pending"),
            "paused_message": (session.session_id,),
            "pending": (session.session_id,),
            "release_leases": ([(session.session_id, lease.epoch)],),
            "reminders": (session.session_id,),
            "renew_leases": ([(session.session_id, lease.epoch)], NOW_MS, 60_000),
            "session": (session.name, session.namespace),
            "snapshot": (session.main_branch_id,),
            "steps": (message,),
            "steps_of_session": (session.session_id,),
        }


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with closing(SqliteJournalStore(tmp_path / "journal.db")) as store:
        sessions, leases, messages = [], {}, {}
        for name, host in (("hello/own", OWN), ("hello/other", OTHER)):
            writer = Writer.on(store, name)
            writer.turns(1)
            session = writer.session
            sessions.append(session)
            messages[name] = IDS.message(NOW_MS)
            store.admit(session.session_id, NewMessage(messages[name], b"{}", NOW_MS))
            leases[name] = store.acquire_lease(session.session_id, host, NOW_MS, 60_000)
            store.put_step(session.session_id, StoredStep(messages[name], 1, "step", b"{}"), leases[name].epoch)
        yield Agents(store, sessions[0], sessions[1], leases, messages)


@pytest.fixture
def permits(agents: Agents) -> HostPermits:
    return HostPermits(agents.store, OWN, Renewals(agents.store))


def commit_of(agents: Agents, session: Session, **changes: Any) -> Commit:
    """Return a commit to a session, under its lease."""
    writer = Writer.on(agents.store, session.name)
    return replace(writer.commit_of(), epoch=agents.leases[session.name].epoch, **changes)


def test_methods_that_no_host_needs_are_refused(agents: Agents, permits: HostPermits) -> None:
    for method in METHODS - agents.arguments(agents.own).keys():
        with pytest.raises(InvalidInput, match=f"a host may not call {method} of the journal"):
            permits.call(method, (), {})


def test_a_host_reads_its_own_session(agents: Agents, permits: HostPermits) -> None:
    calls = agents.arguments(agents.own)
    del calls["release_leases"]
    for method, arguments in calls.items():
        found = permits.call(method, arguments, {})
        if method in {"branch", "find_event", "head", "lease", "message", "session"}:
            assert found == getattr(agents.store, method)(*arguments)
        if method in {"events", "messages", "pending", "steps", "steps_of_session"}:
            assert found, method


@pytest.mark.parametrize("method", sorted(METHODS & {
    "branch", "events", "find_event", "head", "lease", "message", "messages", "pending", "reminders", "session",
    "snapshot", "steps", "steps_of_session",
}))  # fmt: skip
def test_it_does_not_read_another_ones(agents: Agents, permits: HostPermits, method: str) -> None:
    with pytest.raises(NotFound, match="whose lease host_own has"):
        permits.call(method, agents.arguments(agents.other)[method], {})
    assert permits.call(method, agents.arguments(agents.own)[method], {}) is not None or method == "snapshot"
    with pytest.raises(NotFound):
        permits.call(method, agents.arguments(agents.other)[method], {})


def test_leases_of_others_are_neither_extended_nor_ended(agents: Agents, permits: HostPermits) -> None:
    both = [(session.session_id, agents.leases[session.name].epoch) for session in (agents.own, agents.other)]
    assert permits.call("renew_leases", (both, NOW_MS + 5, 60_000), {}) == [agents.other.session_id]
    found = [agents.store.lease(session.session_id) for session in (agents.own, agents.other)]
    assert [lease.expires_ms for lease in found if lease] == [NOW_MS + 60_005, NOW_MS + 60_000]
    permits.call("release_leases", (both,), {})
    assert [agents.store.lease(session.session_id) is None for session in (agents.own, agents.other)] == [True, False]
    with pytest.raises(NotFound):  # it is forgotten with the lease
        permits.call("pending", (agents.own.session_id,), {})


def test_leases_end_while_another_thread_reads(agents: Agents, permits: HostPermits) -> None:
    class Meanwhile(str):
        """The id of a session, at the sight of which another thread reads a branch."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            permits._branches[BranchId(f"br_{len(permits._branches)}")] = agents.other.session_id
            return super().__eq__(other)

    permits.call("head", (agents.own.main_branch_id,), {})
    for branch_id in list(permits._branches):
        permits._branches[branch_id] = SessionId(Meanwhile(permits._branches[branch_id]))
    lease = agents.leases[agents.own.name]
    permits.call("release_leases", ([(agents.own.session_id, lease.epoch)],), {})
    assert agents.own.main_branch_id not in permits._branches


def test_a_host_does_not_extend_its_leases_for_days(agents: Agents, permits: HostPermits) -> None:
    own = (agents.own.session_id, agents.leases[agents.own.name].epoch)
    assert permits.call("renew_leases", ([own], NOW_MS, 86_400_000), {}) == []
    found = agents.store.lease(agents.own.session_id)
    assert found is not None
    assert found.expires_ms == NOW_MS + 3_600_000


@pytest.mark.parametrize(("now_ms", "ttl_ms"), [(NOW_MS, math.nan), (NOW_MS, True), (NOW_MS, 0), (1.5, 60_000)])
def test_a_renewal_that_would_fail_with_those_of_others_is_refused(
    agents: Agents, permits: HostPermits, now_ms: float, ttl_ms: float
) -> None:
    own = (agents.own.session_id, agents.leases[agents.own.name].epoch)
    with pytest.raises(InvalidInput, match="leases are not renewed"):
        permits.call("renew_leases", ([own], now_ms, ttl_ms), {})


def test_an_epoch_is_renewed_as_the_journal_has_it(
    agents: Agents, permits: HostPermits, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch, given = agents.leases[agents.own.name].epoch, list[object]()

    def renew(leases: Sequence[object], *_: int) -> list[SessionId]:
        given.extend(leases)
        return []

    monkeypatch.setattr(agents.store, "renew_leases", renew)
    assert permits.call("renew_leases", ([(agents.own.session_id, float(epoch))], NOW_MS, 60_000), {}) == []
    assert [repr(each) for each in given] == [repr((agents.own.session_id, epoch))]


def test_a_write_needs_an_epoch_that_the_host_has(agents: Agents, permits: HostPermits) -> None:
    commit = commit_of(agents, agents.own)
    for epoch in (None, 0, agents.leases["hello/own"].epoch + 1):
        with pytest.raises(StaleEpoch):
            permits.check_write(replace(commit, epoch=epoch))
        assert not permits.knows(replace(commit, epoch=epoch))
    permits.check_write(commit)
    assert permits.knows(commit)
    assert not permits.knows(replace(commit, epoch=None))
    step = StepWrite(agents.own.session_id, StoredStep(agents.messages["hello/own"], 2, "step", b"{}"), commit.epoch)
    assert permits.knows(step)
    for write in (commit_of(agents, agents.other), replace(step, session_id=agents.other.session_id)):
        with pytest.raises(StaleEpoch):
            permits.check_write(write)


def test_an_epoch_of_an_earlier_host_is_over(agents: Agents) -> None:
    commit = commit_of(agents, agents.own)
    agents.store.acquire_lease(agents.own.session_id, OTHER, NOW_MS, 60_000, takeover=True)
    with pytest.raises(StaleEpoch):
        HostPermits(agents.store, OWN, Renewals(agents.store)).check_write(commit)


def test_no_agent_is_left_out_of_those_that_passed_a_message_on(agents: Agents, permits: HostPermits) -> None:
    caller = Caller("key_1", frozenset({"read"}))
    sent = OutboxMessage(IDS.message(NOW_MS), "hello/other", b"{}", NOW_MS, "hello/own", "default")
    for chain in (caller.through("hello/own"), caller.through("hello/first").through("hello/own")):
        permits.check_write(
            commit_of(agents, agents.own, outbox=(replace(sent, headers=Headers(caller=chain).to_json()),))
        )
    for chain in (caller, caller.through("hello/other"), caller.through("hello/own").through("hello/other")):
        with pytest.raises(InvalidInput, match="as if it came through"):
            permits.check_write(
                commit_of(agents, agents.own, outbox=(replace(sent, headers=Headers(caller=chain).to_json()),))
            )
        delayed = DelayedMessage(IDS.message(NOW_MS), "hello/other", {}, NOW_MS, chain)
        with pytest.raises(InvalidInput, match="as if it came through"):
            permits.check_write(commit_of(agents, agents.own, reminders=(delayed.to_reminder(),)))


def test_a_host_tells_its_agent_of_a_message_that_is_parked(agents: Agents, permits: HostPermits) -> None:
    headers = Headers(caller=Caller("key_1", frozenset({"write"}))).to_json()
    new = NewMessage(IDS.message(NOW_MS), b"{}", NOW_MS, headers=headers)
    agents.store.admit(agents.own.session_id, new)
    attempt = FailedAttempt(
        Outcome.PARKED, {"type": "Permanent", "message": "no"}, agents.store.message(new.message_id)
    )
    epoch = agents.leases[agents.own.name].epoch
    next_commit = NextCommit(agents.own, agents.store.head(agents.own.main_branch_id), epoch, IDS, NOW_MS)
    commit = failure_commit(next_commit, attempt, Address.of(agents.own))
    assert [Headers.from_json(sent.headers).failed for sent in commit.outbox] == [new.message_id]
    permits.check_write(commit)


@pytest.mark.parametrize(
    "forged", [{"sender": "hello/other"}, {"sender": None}, {"namespace": "acme"}, {"sender": "acme:hello/own"}]
)
def test_messages_go_out_in_the_name_of_their_agent(
    agents: Agents, permits: HostPermits, forged: dict[str, str]
) -> None:
    sent = OutboxMessage(IDS.message(NOW_MS), "hello/other", b"{}", NOW_MS, "hello/own", "default")
    permits.check_write(commit_of(agents, agents.own, outbox=(sent,)))
    with pytest.raises(InvalidInput, match="hello/own may not send"):
        permits.check_write(commit_of(agents, agents.own, outbox=(sent, replace(sent, **forged))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "forged",
    [
        Headers(ask=AskHeader(("hello/own", "hello/other"), NOW_MS)),
        Headers(ask=AskHeader((), NOW_MS)),
        Headers(reminder=ReminderHeader("daily", NOW_MS, 0)),
        Headers(failed="msg_1"),
    ],
    ids=["another one waits", "nobody waits", "a reminder", "a parked message"],
)
def test_a_host_forges_no_header(agents: Agents, permits: HostPermits, forged: Headers) -> None:
    own, other = Address.of(agents.own), Address.of(agents.other)
    sent = OutboxMessage(IDS.message(NOW_MS), "hello/other", b"{}", NOW_MS, "hello/own", "default", forged.to_json())
    question = NewMessage(IDS.message(NOW_MS), b"{}", NOW_MS, sender="hello/own", headers=forged.to_json())
    with pytest.raises(InvalidInput, match="hello/own may not"):
        permits.check_write(commit_of(agents, agents.own, outbox=(sent,)))
    with pytest.raises(InvalidInput, match="hello/own may not"):
        permits.check_question(own, other, question)
    asked = Headers(ask=AskHeader(("hello/first", "hello/own"), NOW_MS)).to_json()
    permits.check_question(own, other, replace(question, headers=asked))


def test_a_reminder_is_of_the_agent_that_sets_it(agents: Agents, permits: HostPermits) -> None:
    rule = At()
    for agent in ("hello/own", "hello/other"):
        plan = Plan(Address.parse(agent), rule, {"text": "wake"})
        commit = commit_of(agents, agents.own, reminders=(SetReminder("wake", NOW_MS, plan.to_body()),))
        if agent == "hello/own":
            permits.check_write(commit)
        else:
            with pytest.raises(InvalidInput, match="of another agent"):
                permits.check_write(commit)


def test_the_end_of_a_pause_is_set_by_the_commit_that_pauses(agents: Agents, permits: HostPermits) -> None:
    own, message, other = Address.of(agents.own), agents.messages["hello/own"], agents.messages["hello/other"]
    paused = (Settlement(message, Outcome.PAUSED),)

    def pausing(settled: tuple[Settlement, ...], address: Address, message_id: MessageId) -> Commit:
        end = SetReminder(EXPIRY, NOW_MS, expiry_body(address, message_id, 1))
        return commit_of(agents, agents.own, settled=settled, reminders=(end,))

    permits.check_write(pausing(paused, own, message))
    for forged in (
        pausing(paused, own, other),
        pausing(paused, Address.of(agents.other), message),
        pausing((), own, message),
        pausing((Settlement(message, Outcome.CONSUMED),), own, message),
    ):
        with pytest.raises(InvalidInput, match="hello/own may not set"):
            permits.check_write(forged)


@pytest.mark.parametrize("forged", ["", "zz", "msg_1", "msg_" + "I" * 26, "ses_" + "0" * 26, "msg_" + "0" * 27])
def test_messages_go_out_under_ids(agents: Agents, permits: HostPermits, forged: str) -> None:
    sent = OutboxMessage(MessageId(forged), "hello/other", b"{}", NOW_MS, "hello/own", "default")
    delayed = DelayedMessage(MessageId(forged), "hello/other", {}, NOW_MS, None)
    for changes in ({"outbox": (sent,)}, {"reminders": (delayed.to_reminder(),)}):
        with pytest.raises(InvalidInput, match="hello/own may not send a message .*under the id"):
            permits.check_write(commit_of(agents, agents.own, **changes))
    later = replace(delayed, message_id=IDS.message(NOW_MS))
    answer = replace(sent, message_id=MessageId(IDS.other("ans_", NOW_MS)))
    permits.check_write(commit_of(agents, agents.own, outbox=(answer,), reminders=(later.to_reminder(),)))
