"""The journal's contract on a real PostgreSQL, and what is PostgreSQL's own."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from chronicle.clock import ManualClock
from chronicle.errors import (
    Corrupt,
    InvalidInput,
    LeaseHeld,
    NotFound,
    OlderFormat,
    OlderVersionRuns,
    Unavailable,
    UnsupportedFormat,
    UnusableFormat,
)
from chronicle.journal.opening import copy_journal, open_journal
from chronicle.journal.postgres import PostgresJournalStore
from chronicle.journal.postgres.database import PostgresConnection
from chronicle.journal.postgres.schema import JOURNAL, Migration
from chronicle.journal.records import (
    Commit,
    Head,
    InboxWrite,
    MessageStatus,
    NewMessage,
    OutboxMessage,
    Outcome,
    Receipt,
    SetReminder,
    Settlement,
    Snapshot,
    StepWrite,
    StoredStep,
)
from chronicle.journal.sql import commits
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract import JournalStoreContract, Writer
from chronicle.testing.journal_contract.writer import IDS, NOW_MS
from podium.address import Address
from podium.reminders.firing import ReminderTask
from podium.reminders.plans import Plan
from podium.reminders.schedule import At
from tests.contract.pgbouncer import find_pgbouncer, running_pooler
from tests.contract.postgres_server import find_binaries
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.port import JournalStore

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="PostgreSQL is not installed: make setup-tests")


@pytest.fixture
def schema(server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A schema for one test, dropped after it."""
    name = f"journal {abs(hash(request.node.nodeid))}"  # with a space: it must be quoted everywhere
    yield name
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@pytest.fixture
def store(server: str, schema: str) -> Iterator[PostgresJournalStore]:
    """A new one."""
    store = PostgresJournalStore(server, schema=schema)
    yield store
    store.close()


class TestPostgres(JournalStoreContract):
    """The store of clusters."""

    has_own_clock = True

    @pytest.fixture(autouse=True)
    def connection(self, server: str, schema: str) -> Iterator[None]:
        """Remember how to open it again."""
        self._again = (server, schema)
        self._handles: list[JournalStore] = []
        yield
        for handle in self._handles:
            handle.close()

    def other_handle(self, store: JournalStore) -> JournalStore:
        """Connect again."""
        del store
        server, schema = self._again
        self._handles.append(PostgresJournalStore(server, schema=schema))
        return self._handles[-1]


def test_leases_go_by_the_clock_of_the_server(store: PostgresJournalStore) -> None:
    """A machine whose clock is ahead takes no lease too early, and one whose clock is behind keeps none too long."""
    session_id, day_ms = Writer.on(store).session.session_id, 86_400_000
    before_ms = time.time_ns() // 1_000_000
    lease = store.acquire_lease(session_id, "host a", before_ms - day_ms, 60_000)
    assert lease.expires_ms >= before_ms + 60_000
    with pytest.raises(LeaseHeld):
        store.acquire_lease(session_id, "host b", before_ms + day_ms, 60_000)
    assert store.renew_leases([(session_id, lease.epoch)], before_ms - day_ms, 60_000) == []
    renewed = store.lease(session_id)
    assert renewed is not None
    assert lease.expires_ms <= renewed.expires_ms <= time.time_ns() // 1_000_000 + 60_000
    assert store.renew_leases([(session_id, lease.epoch)], before_ms + day_ms, 0) == []
    assert store.acquire_lease(session_id, "host b", before_ms - day_ms, 60_000).epoch == lease.epoch + 1


def test_a_lease_whose_session_is_locked_keeps_no_other_one_back(
    store: PostgresJournalStore, server: str, schema: str
) -> None:
    """A commit of one agent may last, and its node renews the leases of all agents together."""
    sessions = [Writer.on(store, name).session.session_id for name in ("a", "b")]
    given = [store.acquire_lease(session_id, "host", 0, 60_000) for session_id in sessions]

    def expiry_ms(session_id: SessionId) -> int:
        lease = store.lease(session_id)
        assert lease is not None
        return lease.expires_ms

    with psycopg.connect(server) as other, ThreadPoolExecutor(1) as pool:
        other.execute(f'SELECT 1 FROM "{schema}".session WHERE session_id = %s FOR SHARE', (sessions[0],))
        leases = [(lease.session_id, lease.epoch) for lease in given]
        renewing = pool.submit(store.renew_leases, leases, 0, 3_600_000)
        wait_until(lambda: expiry_ms(sessions[1]) > given[1].expires_ms + 3_000_000)
        assert not renewing.done()
        other.rollback()
        assert renewing.result(60) == []
    assert expiry_ms(sessions[0]) > given[0].expires_ms + 3_000_000


@pytest.mark.parametrize("skew_ms", [-86_400_000, 86_400_000])
async def test_reminders_fire_by_the_clock_of_the_server(store: PostgresJournalStore, skew_ms: int) -> None:
    """The coordinator is on a machine whose clock is a day behind, or ahead."""
    told: list[Address] = []

    async def arrived(address: Address) -> None:
        told.append(address)

    writer, now_ms = Writer.on(store), time.time_ns() // 1_000_000
    plan = Plan(Address("hello", "alice"), At(), {}).to_body()
    writer.write(reminders=(SetReminder("due", now_ms - 1000, plan), SetReminder("later", now_ms + 3_600_000, plan)))
    task = ReminderTask(store, IDS, ManualClock(now_ms + skew_ms), arrived)
    await task.look()
    assert told == [Address("hello", "alice")]
    assert [each.name for each in store.reminders(writer.session.session_id)] == ["later"]
    (message,) = store.pending(writer.session.session_id)
    assert now_ms <= message.admitted_ms <= time.time_ns() // 1_000_000


def tamper(server: str, schema: str, statement: str) -> None:
    """Change the tables by hand."""
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f'SET search_path TO "{schema}"')
        assert db.execute(statement).rowcount == 1


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("UPDATE event SET payload = payload || '\\x20' WHERE id & 4294967295 = 3", 3),
        ("UPDATE event SET type = 'x' WHERE id & 4294967295 = 3", 3),
        ("DELETE FROM event WHERE id & 4294967295 = 3", 3),
        ("DELETE FROM event WHERE id & 4294967295 = 6", 6),
        ("UPDATE branch SET seq = 5", 6),
        ("DELETE FROM branch", None),
        ("DELETE FROM catalogue", None),
    ],
)
def test_tampering_is_found(
    store: PostgresJournalStore, server: str, schema: str, statement: str, seq: int | None
) -> None:
    writer = Writer.on(store)
    writer.turns(3)
    tamper(server, schema, statement)
    report = verify_session(store, writer.session)
    assert report.damage is not None
    assert report.damage.seq == seq


def test_a_newer_format(store: PostgresJournalStore, server: str, schema: str) -> None:
    store.close()
    newer = JOURNAL.version + 1
    tamper(server, schema, f"UPDATE format SET (version, usable_from) = ({newer}, {newer})")
    with pytest.raises(UnsupportedFormat, match=f"format {newer}, and this code reads up to {JOURNAL.version}$"):
        PostgresJournalStore(server, schema=schema).close()


def use_next_format(monkeypatch: pytest.MonkeyPatch, upgrade: str, *, is_additive: bool = False) -> None:
    """Have this process read and write a made-up next format, with one table more."""
    tables = f"{JOURNAL.tables}CREATE TABLE colour (name TEXT);"
    migrations = {JOURNAL.version: Migration(upgrade, is_additive=is_additive)}
    following = replace(JOURNAL, version=JOURNAL.version + 1, tables=tables, migrations=migrations)
    monkeypatch.setattr("chronicle.journal.postgres.store.JOURNAL", following)


def test_an_older_journal_is_migrated_when_it_is_opened(
    store: PostgresJournalStore, server: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, deleted = Writer.on(store), Writer.on(store, "hello/bob")
    writer.turns(2)
    writer.write(outbox=(OutboxMessage(IDS.message(1), "hello/carol", b"{}", 1),))
    store.delete_session(deleted.session.session_id, 1)
    before = (store.sessions(), store.outbox(), store.tombstones(), store.catalogue(writer.session.session_id))
    store.close()
    use_next_format(monkeypatch, "CREATE TABLE colour (name TEXT);")
    with ThreadPoolExecutor(3) as pool:  # one of them migrates
        opened = list(pool.map(lambda _: PostgresJournalStore(server, schema=schema), range(3)))
    again = opened[0]
    assert (again.sessions(), again.outbox(), again.tombstones(), again.catalogue(writer.session.session_id)) == before
    assert verify_session(again, writer.session).ok
    replace(writer, store=again).turns(1)
    tamper(server, schema, "INSERT INTO colour VALUES ('red')")
    for each in opened:
        each.close()


def test_a_migration_that_fails_changes_nothing(
    store: PostgresJournalStore, server: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer.on(store)
    writer.turns(1)
    store.close()
    with monkeypatch.context() as patched:
        use_next_format(patched, "DROP TABLE event; ALTER TABLE nowhere ADD COLUMN x TEXT;")
        with pytest.raises(Corrupt, match="nowhere"):
            PostgresJournalStore(server, schema=schema)
    with closing(PostgresJournalStore(server, schema=schema)) as unchanged:
        assert verify_session(unchanged, writer.session).ok


def test_a_format_from_which_no_upgrade_leads(
    store: PostgresJournalStore, server: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    following = replace(JOURNAL, version=JOURNAL.version + 1)
    monkeypatch.setattr("chronicle.journal.postgres.store.JOURNAL", following)
    with pytest.raises(UnusableFormat, match=f"no upgrade leads from {JOURNAL.version}"):
        PostgresJournalStore(server, schema=schema)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(Unavailable, match="the journal in /nowhere/db schema chronicle"):
        PostgresJournalStore("host=/nowhere dbname=db password=secret")
    with pytest.raises(InvalidInput, match="not a PostgreSQL connection string"):
        PostgresJournalStore("nonsense=1 =")


def test_connections_that_the_server_ended_are_replaced(store: PostgresJournalStore, server: str) -> None:
    writer = Writer.on(store)
    with psycopg.connect(server, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        waiting = db.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        while waiting.fetchone() != (0,):
            waiting = db.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
    writer.turns(1)
    assert verify_session(store, writer.session).ok


def until_someone_waits_for_a_lock(server: str, then: str = "pid") -> None:
    """Look until a connection waits, and do something with it."""
    with psycopg.connect(server, autocommit=True) as watcher:
        query = f"SELECT {then} FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid <> pg_backend_pid()"
        while not watcher.execute(query).fetchall():
            pass


def test_a_connection_lost_in_a_commit(store: PostgresJournalStore, server: str, schema: str) -> None:
    writer = Writer.on(store)
    commit = writer.commit_of()
    failed: list[Exception] = []

    def write() -> None:
        try:
            store.commit(commit)
        except Unavailable as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    with psycopg.connect(server) as blocker:
        blocker.execute(f'SELECT * FROM "{schema}".branch FOR UPDATE')
        thread.start()
        until_someone_waits_for_a_lock(server, then="pg_terminate_backend(pid)")
        thread.join()
    assert len(failed) == 1
    assert store.find_event(commit.events[0].event_id) is None
    writer.write()


def test_taking_a_lease_waits_for_a_commit_in_progress(store: PostgresJournalStore, server: str) -> None:
    """So that no commit that saw the old epoch in force comes after the new one was given."""
    writer = Writer.on(store)
    session_id = writer.session.session_id
    writer.epoch = store.acquire_lease(session_id, "a", 0, 1).epoch
    ready = store._prepare(writer.commit_of())
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.append(store.acquire_lease(session_id, "b", 5, 1).epoch))
    with store._db.writing() as db:
        commits.apply(db, ready)
        thread.start()
        until_someone_waits_for_a_lock(server)
        assert not taken
    thread.join()
    assert taken == [2]
    assert store.head(writer.head.branch_id) == ready.head


def test_a_forked_child_is_told_to_open_its_own(store: PostgresJournalStore, server: str, schema: str) -> None:
    writer = Writer.on(store)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # the child: nothing but os._exit may end it
        try:
            try:
                writer.write()
            except Unavailable as error:
                os.write(write, str(error).encode())
            with closing(PostgresJournalStore(server, schema=schema)) as own:
                replace(writer, store=own).write()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert "before a fork" in pipe.read()
    os.waitpid(pid, 0)
    assert store.head(writer.head.branch_id).seq == 1


def test_text_that_postgresql_cannot_hold(store: PostgresJournalStore) -> None:
    with pytest.raises(InvalidInput, match="cannot be stored"):
        Writer.on(store, "hello/\0")
    writer, other = Writer.on(store), Writer.on(store, "other/one")
    writer.turns(1)
    session_id = writer.session.session_id
    messages = [NewMessage(IDS.message(1), b"{}", 1, key) for key in ("one", "a\0b", "\ud800", "two")]
    admitted = store.admit_many([InboxWrite(session_id, message) for message in messages])
    assert [type(outcome) for outcome in admitted] == [Receipt, InvalidInput, InvalidInput, Receipt]
    assert [message.idempotency_key for message in store.pending(session_id)] == ["one", "two"]
    bad = other.commit_of(outbox=(OutboxMessage(IDS.message(1), "to/\ud800", b"{}", 1),))
    step = StoredStep(messages[0].message_id, 1, "step", b"{}")
    steps = StepWrite(session_id, replace(step, key="\0"), None), StepWrite(session_id, step, None)
    written = store.commit_many([bad, writer.commit_of(), steps[0], other.commit_of(), steps[1]])
    assert [type(outcome) for outcome in written] == [InvalidInput, Head, InvalidInput, Head, type(None)]


@pytest.mark.parametrize(
    "change",
    [
        {"outbox": (OutboxMessage(IDS.message(1), "to/\ud800", b"{}", 1),)},
        {"outbox": (OutboxMessage(IDS.message(1), cast("str", {}), b"{}", 1),)},
        {"settled": (Settlement(cast("MessageId", {}), Outcome.CONSUMED),)},
        {"settled": (Settlement(IDS.message(1), cast("Outcome", "lost")),)},
    ],
    ids=["text", "no text", "no id", "no outcome"],
)
def test_what_cannot_be_sent_to_the_server_fails_alone(store: PostgresJournalStore, change: dict[str, Any]) -> None:
    """Others' commits share its transaction."""
    writers = [Writer.on(store, name) for name in ("one", "two", "three")]
    written = store.commit_many(
        [replace(writers[0].commit_of(), **change), *(each.commit_of() for each in writers[1:])]
    )
    assert isinstance(written[0], Exception)
    assert not isinstance(written[0], Unavailable), "it would be tried again"
    assert [type(outcome) for outcome in written[1:]] == [Head, Head]


@pytest.mark.parametrize("kind", ["commits", "a commit and a step", "with a snapshot"])
def test_writes_together_lock_sessions_in_the_order_of_admissions(
    store: PostgresJournalStore, server: str, schema: str, kind: str
) -> None:
    """Sessions need not have been made in the order of their ids."""
    ids = sorted(IDS.session(NOW_MS) for _ in range(2))
    first, last = (
        Writer(store, session, store.head(session.main_branch_id))
        for session in [store.ensure_session(each, each, IDS.branch(NOW_MS), NOW_MS) for each in reversed(ids)][::-1]
    )
    step = StoredStep(first.admit(), 1, "step", b"{}")
    writes: list[Commit | StepWrite] = [last.commit_of(), first.commit_of()]
    if kind == "a commit and a step":
        writes[1] = StepWrite(ids[0], step, None)
    if kind == "with a snapshot":
        writes[0] = last.commit_of(snapshot=Snapshot(last.head.branch_id, 1, b"{}"))
    with psycopg.connect(server) as admitting, ThreadPoolExecutor(1) as pool:
        lock = f'SELECT * FROM "{schema}".session WHERE session_id = %s FOR UPDATE'
        admitting.execute(lock, (ids[0],))
        written = pool.submit(store.commit_many, writes)
        until_someone_waits_for_a_lock(server)
        admitting.execute(lock, (ids[1],))
        admitting.commit()
        assert not any(isinstance(outcome, Exception) for outcome in written.result())


def test_a_connection_lost_in_a_batch(store: PostgresJournalStore, server: str, schema: str) -> None:
    writer, other = Writer.on(store), Writer.on(store, "other/one")
    used = writer.admit()
    sessions = [other.session.session_id, writer.session.session_id]
    batch = [InboxWrite(sessions[number % 2], NewMessage(IDS.message(1), b"{}", 1)) for number in range(4)]
    batch[1] = replace(batch[1], message=replace(batch[1].message, message_id=used))
    with psycopg.connect(server) as blocker, ThreadPoolExecutor(1) as pool:
        blocker.execute(f'SELECT * FROM "{schema}".session WHERE session_id = %s FOR UPDATE', (max(sessions),))
        admitted = pool.submit(store.admit_many, batch)
        until_someone_waits_for_a_lock(server, then="pg_terminate_backend(pid)")
        assert isinstance(admitted.exception(), Unavailable)
    assert [len(store.pending(session_id)) for session_id in sessions] == [0, 1]
    assert [type(outcome) for outcome in store.admit_many(batch)] == [Receipt, InvalidInput, Receipt, Receipt]


def test_a_connection_whose_statement_failed_is_not_used_again(server: str, schema: str) -> None:
    """psycopg takes statements for prepared whose preparation the server skipped."""
    with closing(PostgresJournalStore(server, schema=schema, connections=1)) as store:
        writer = Writer.on(store)
        sent = OutboxMessage(IDS.message(1), "to/someone", b"{}", 1)
        writer.write(outbox=(sent,))
        for _ in range(12):
            with pytest.raises(InvalidInput, match="used before"):
                writer.write(outbox=(replace(sent, message_id=IDS.message(1)), sent))
        for _ in range(12):
            writer.write(outbox=(replace(sent, message_id=IDS.message(1)),))
        assert len(store.outbox()) == 13


def test_no_more_connections_than_allowed(server: str, schema: str) -> None:
    with closing(PostgresJournalStore(server, schema=schema, connections=2)) as store:
        writer = Writer.on(store)
        writer.turns(2)
        with store.audit(writer.session.session_id) as audit:
            assert len(list(audit.rows(writer.head.branch_id))) == len(list(store.events(writer.head.branch_id))) == 4


def url_of(server: str, schema: str) -> str:
    """The URL of a journal."""
    parts = conninfo_to_dict(server)
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={quote(str(parts['host']))}&schema={quote(schema)}"


def test_a_journal_is_opened_by_its_url(server: str, schema: str) -> None:
    with closing(open_journal(url_of(server, schema))) as store:
        session = Writer.on(store).session
    with closing(PostgresJournalStore(server, schema=schema)) as same:
        assert [found.session_id for found in same.sessions()] == [session.session_id]


def test_reading_writes_and_creates_nothing(server: str, schema: str) -> None:
    url = url_of(server, schema)
    for create, read_only in ((False, False), (True, True)):
        with pytest.raises(NotFound, match=f"^schema {schema} does not hold the journal$"):
            open_journal(url, create=create, read_only=read_only)
    with closing(open_journal(url)) as store:
        session = Writer.on(store).session
    with closing(open_journal(url, read_only=True)) as reader:
        assert [found.session_id for found in reader.sessions()] == [session.session_id]
        with pytest.raises(InvalidInput, match="was opened for reading only$"):
            reader.delete_session(session.session_id, 1)
    with closing(open_journal(url, create=False)) as store:
        store.delete_session(session.session_id, 1)


def test_reading_upgrades_nothing(
    store: PostgresJournalStore, server: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    use_next_format(monkeypatch, "CREATE TABLE colour (name TEXT)")
    with pytest.raises(OlderFormat, match="open it for writing, which upgrades it$") as refused:
        open_journal(url_of(server, schema), read_only=True)
    assert (refused.value.found, refused.value.newer, refused.value.is_additive) == (
        JOURNAL.version,
        JOURNAL.version + 1,
        False,
    )
    with pytest.raises(OlderVersionRuns, match="while no older version uses it$"):
        open_journal(url_of(server, schema), may_migrate=lambda: False)
    open_journal(url_of(server, schema)).close()
    open_journal(url_of(server, schema), read_only=True).close()


def test_an_older_version_goes_on_after_an_additive_migration(
    store: PostgresJournalStore, server: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, writer = url_of(server, schema), Writer.on(store)
    writer.turns(1)
    with monkeypatch.context() as patched:
        use_next_format(patched, "CREATE TABLE colour (name TEXT)", is_additive=True)
        with closing(open_journal(url, may_migrate=lambda: False)) as newer:
            assert newer.format == JOURNAL.version + 1
        with closing(open_journal(url_of(server, f"{schema}_new"))) as new:
            Writer.on(new).turns(1)
    writer.turns(1)
    for place in (url, url_of(server, f"{schema}_new")):
        with closing(open_journal(place)) as older:
            assert older.format == JOURNAL.version + 1
            Writer.on(older, "hello/bob").turns(1)
    with monkeypatch.context() as patched:
        use_next_format(patched, "SELECT 1")
        open_journal(url_of(server, f"{schema}_other")).close()
    with pytest.raises(
        UnsupportedFormat, match=f"format {JOURNAL.version + 1}, and this code reads up to {JOURNAL.version}$"
    ):
        open_journal(url_of(server, f"{schema}_other"))


def test_orphans_are_damage(store: PostgresJournalStore, server: str, schema: str) -> None:
    Writer.on(store).turns(1)
    assert store.damage() is None
    store.check(thorough=True)
    assert store.is_small
    tamper(server, schema, "DELETE FROM session")
    assert store.damage() == "a row of its table branch belongs to a session 1 that is not there"
    store.check()
    with pytest.raises(Corrupt, match="is damaged: a row of its table branch belongs"):
        store.check(thorough=True)


def everything(store: JournalStore) -> list[object]:
    """Return all that a journal tells of its sessions."""
    sessions = store.sessions()
    told: list[object] = [*sessions, store.tombstones(), store.outbox(), list(store.all_objects()), store.backlog()]
    for session in sessions:
        told += [store.summaries(session.name), store.catalogue(session.session_id)]
        told += [list(store.events(branch.branch_id)) for branch in store.branches(session.session_id)]
        told += [store.messages(session.session_id, status) for status in MessageStatus]
        told += [verify_session(store, session).ok]
    return told


def test_a_journal_moves_to_a_server_and_back_and_goes_on(store: PostgresJournalStore, tmp_path: Path) -> None:
    with closing(open_journal(str(tmp_path / "first.db"))) as first:
        writers = [Writer.on(first, f"hello/{number}") for number in range(3)]
        for writer in writers:
            writer.turns(2)
            writer.admit()
        writers[0].write(outbox=(OutboxMessage(IDS.message(1), "hello/carol", b"{}", 1),))
        big = Writer.on(first, "hello/big")
        for number in range(1200):
            first.admit(big.session.session_id, NewMessage(IDS.message(number), b"%d" % number, 1), 10_000)
        first.delete_session(writers[2].session.session_id, 7)
        before = everything(first)
        Writer.on(store, "other/one").turns(1)  # it is replaced
        seen: list[int] = []
        store.receive(first, seen.append)
        assert seen[-1] > 1200
    assert everything(store) == before
    copy_journal(store, tmp_path / "second.db", seen.append)
    with closing(open_journal(str(tmp_path / "second.db"), watched=True)) as second:
        assert everything(second) == before
        assert second.damage() is None
        replace(writers[0], store=second).turns(1)
    replace(writers[0], store=store).turns(1)
    Writer.on(store, "hello/new").turns(1)
    assert verify_session(store, store.session("hello/new")).ok
    assert store.damage() is None


def test_a_move_that_fails_changes_nothing(store: PostgresJournalStore, tmp_path: Path) -> None:
    writer = Writer.on(store)
    writer.turns(1)
    before = everything(store)

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with closing(open_journal(str(tmp_path / "first.db"))) as first:
        Writer.on(first, "hello/other").turns(1)
        with pytest.raises(KeyboardInterrupt):
            store.receive(first, stop)
    assert everything(store) == before


def test_an_old_server_is_refused(server: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronicle.journal.postgres.database._OLDEST_SERVER", 99)
    with pytest.raises(InvalidInput, match=r"is PostgreSQL \d+; 99 or a newer one is needed$"):
        PostgresJournalStore(server, schema=schema)


@pytest.mark.parametrize("pool_mode", ["transaction", "statement"])
def test_a_pooler_without_sessions_is_refused(server: str, schema: str, pool_mode: str) -> None:
    program = find_pgbouncer()
    assert program is not None, "PgBouncer is not installed: make setup-tests"
    with running_pooler(program, server, pool_mode) as conninfo:
        for _ in range(3):
            with pytest.raises(InvalidInput, match="let it pool sessions"):
                PostgresJournalStore(conninfo, schema=schema)
    with psycopg.connect(server) as db:
        found = db.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    assert found == (0,)


def test_a_pooler_of_sessions_will_do(server: str, schema: str) -> None:
    program = find_pgbouncer()
    assert program is not None, "PgBouncer is not installed: make setup-tests"
    with running_pooler(program, server, "session") as conninfo:
        for _ in range(3):
            with closing(PostgresJournalStore(conninfo, schema=schema)) as store:
                Writer.on(store, f"hello/{IDS.message(1)}").turns(2)


def test_a_server_that_is_gone_is_noticed(server: str) -> None:
    """By the kernel, which probes a connection over TCP; a string may have other times."""
    with (
        closing(PostgresJournalStore(f"{server} keepalives_count=7", schema="alive")) as store,
        store._db.reading() as db,
    ):
        assert isinstance(db, PostgresConnection)
        found = {part.keyword: part.val for part in db.raw.pgconn.info}
    assert (found[b"keepalives_idle"], found[b"tcp_user_timeout"], found[b"keepalives_count"]) == (
        b"10",
        b"25000",
        b"7",
    )
