"""Agents of two tenants in one journal: what one does is not to be had by the other."""

from __future__ import annotations

from contextlib import nullcontext as nothing
from pathlib import Path

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.canonical import JsonObject
from chronicle.errors import Conflict, InvalidInput
from chronicle.ids import IdSource
from chronicle.journal.chain import seal
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import Commit, Draft, OutboxMessage
from chronicle.journal.verify import verify_session
from podium.address import Address
from podium.agent_record import list_agents, read_agent
from podium.errors import UnknownAgent
from podium.events import AGENT_CREATED
from podium.history.archive import Archive, export_agent
from podium.history.archive_import import import_agent
from podium.history.branching import fork_agent
from podium.history.delete import delete_agent
from podium.messages.courier import deliver_outbox

IDS = IdSource()
OURS = Address("hello", "alice")
THEIRS = Address("hello", "alice", "acme")


@pytest.fixture
def store() -> MemoryJournalStore:
    """A journal with an agent of the same name in two tenants."""
    store = MemoryJournalStore()
    for address, state in ((OURS, "ours"), (THEIRS, "theirs")):
        make(store, address, state)
    return store


def make(store: MemoryJournalStore, address: Address, state: str) -> None:
    session = store.ensure_session(address.name, IDS.session(1), IDS.branch(1), 1, address.tenant)
    payload: JsonObject = {"agent": str(address), "state": {"text": state}, "entity_type": "S", "version": 1}
    head = store.head(session.main_branch_id)
    store.commit(
        Commit(session.session_id, head, seal(head, [Draft(IDS.event(1), AGENT_CREATED, payload, 0, 1)]), None)
    )


def text(store: MemoryJournalStore, address: Address) -> object:
    return read_agent(store, MemoryBlobStore(), address).state["text"]


def test_each_is_read_by_its_own_address(store: MemoryJournalStore) -> None:
    assert (text(store, OURS), text(store, THEIRS)) == ("ours", "theirs")
    with pytest.raises(UnknownAgent, match="no agent other:hello/alice"):
        text(store, Address("hello", "alice", "other"))
    assert [Address.of(session) for session in list_agents(store)] == [THEIRS, OURS]
    assert [Address.of(session) for session in list_agents(store, "acme")] == [THEIRS]


def test_a_fork_stays_in_the_tenant(store: MemoryJournalStore) -> None:
    target = Address("hello", "bob", "acme")
    forked = fork_agent(store, THEIRS, None, target, IDS, 1)
    assert forked.head.turn == 0
    assert text(store, target) == "theirs"
    with pytest.raises(UnknownAgent):
        text(store, Address("hello", "bob"))
    for stranger in (Address("hello", "carol"), Address("hello", "carol", "other")):
        with pytest.raises(InvalidInput, match="another tenant"):
            fork_agent(store, THEIRS, None, stranger, IDS, 1)


def test_deleting_one_leaves_the_other(store: MemoryJournalStore) -> None:
    delete_agent(store, MemoryBlobStore(), THEIRS, IDS, 1)
    assert text(store, OURS) == "ours"
    with pytest.raises(UnknownAgent):
        text(store, THEIRS)


def test_messages_are_delivered_in_the_tenant_of_their_sender(store: MemoryJournalStore) -> None:
    session = store.session(THEIRS.name, THEIRS.tenant)
    head = store.head(session.main_branch_id)
    sent = (
        OutboxMessage(IDS.message(1), OURS.name, b'{"to":"self"}', 1, str(THEIRS), "acme", {"trace": "00-1"}),
        OutboxMessage(IDS.message(1), "hello/new", b"{}", 1, str(THEIRS), "acme"),
    )
    draft = Draft(IDS.event(1), "note", None, 1, 1)
    store.commit(Commit(session.session_id, head, seal(head, [draft]), None, outbox=sent))
    assert deliver_outbox(store, IDS, 2) == [THEIRS, Address("hello", "new", "acme")]
    assert not store.pending(store.session(OURS.name).session_id)
    (message,) = store.pending(session.session_id)
    assert (message.sender, message.headers) == ("acme:hello/alice", {"trace": "00-1"})
    assert [session.namespace for session in store.sessions("hello/new")] == ["acme"]


def test_an_archive_is_imported_into_a_tenant(store: MemoryJournalStore, tmp_path: Path) -> None:
    blobs, file = MemoryBlobStore(), tmp_path / "agent.zip"
    assert export_agent(store, blobs, THEIRS, file).agent == "acme:hello/alice"
    there = MemoryJournalStore()
    with Archive(file) as archive:
        for target in (Address("hello", "carol"), Address("hello", "carol", "acme")):
            with pytest.raises(Conflict, match="another tenant") if target.tenant == "acme" else nothing():
                import_agent(there, blobs, archive, target, IDS, 1)
        assert text(there, Address("hello", "carol")) == "theirs"
        with pytest.raises(Conflict, match="tenants share no history"):
            import_agent(store, blobs, archive, Address("hello", "carol"), IDS, 1)
        import_agent(store, blobs, archive, Address("hello", "carol", "acme"), IDS, 1)
    assert text(store, Address("hello", "carol", "acme")) == "theirs"
    for session in (*store.sessions(), *there.sessions()):
        assert verify_session(store if session in store.sessions() else there, session).ok
