"""Commits that one writer does for others: the waiting room, what is handed over in it, and what a death leaves."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest

from chronicle.errors import BranchVersionConflict, Conflict, NotFound, StaleEpoch
from chronicle.journal.records import (
    DropReminder,
    MessageStatus,
    OutboxMessage,
    Outcome,
    SetReminder,
    Settlement,
    Snapshot,
    StepWrite,
    StoredStep,
)
from chronicle.journal.sql import steps
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.journal.sqlite.database import SqliteDatabase
from chronicle.journal.sqlite.group_commit import futex, waiting_room, write_codec
from chronicle.journal.sqlite.group_commit.waiting_room import MAX_BYTES, WaitingRoom
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract import Writer
from chronicle.testing.journal_contract.writer import IDS
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from chronicle.journal.records import Head

DEADLINE_S = 30.0
_T = TypeVar("_T")


@contextmanager
def room_at(path: Path) -> Iterator[WaitingRoom]:
    """A waiting room in a file, as a process of its own would have it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    room = WaitingRoom(path, fd)
    try:
        yield room
    finally:
        room.close()
        os.close(fd)


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[tuple[WaitingRoom, WaitingRoom]]:
    """The same room, seen by two stores."""
    with room_at(tmp_path / "queue") as one, room_at(tmp_path / "queue") as other:
        yield one, other


# -- the room ----------------------------------------------------------------------------------------------------------


def test_a_request_is_seen_and_done(rooms: tuple[WaitingRoom, WaitingRoom]) -> None:
    one, other = rooms
    assert list(other.requests()) == []
    ticket = one.submit(b"please")
    assert ticket is not None
    assert not ticket.is_done()
    (request,) = other.requests()
    assert request.data == b"please"
    other.mark_done([request])
    assert ticket.is_done()
    assert list(other.requests()) == []
    ticket.close()


def test_nothing_is_made_until_someone_asks(tmp_path: Path) -> None:
    with room_at(tmp_path / "queue") as room:
        assert list(room.requests()) == []
        room.wake(())
        assert (tmp_path / "queue").stat().st_size == 0


def test_a_request_of_an_earlier_waiter_is_not_mine(rooms: tuple[WaitingRoom, WaitingRoom]) -> None:
    one, other = rooms
    first = one.submit(b"first")
    assert first is not None
    (request,) = other.requests()
    first.close()  # it gives up; the writer has read what it wants
    second = one.submit(b"second")
    assert second is not None
    other.mark_done([request])
    assert not second.is_done()
    assert [each.data for each in other.requests()] == [b"second"]
    second.close()


def test_a_request_of_the_dead_is_not_done(tmp_path: Path) -> None:
    with room_at(tmp_path / "queue") as room:
        with room_at(tmp_path / "queue") as dead:
            assert dead.submit(b"too late") is not None
            assert len(list(room.requests())) == 1
        assert list(room.requests()) == []


def test_what_is_taken_back_is_not_done(rooms: tuple[WaitingRoom, WaitingRoom]) -> None:
    one, other = rooms
    ticket = one.submit(b"no, thanks")
    assert ticket is not None
    ticket.withdraw()
    assert list(other.requests()) == []
    ticket.close()


def test_bytes_that_change_are_left_alone(rooms: tuple[WaitingRoom, WaitingRoom], tmp_path: Path) -> None:
    one, other = rooms
    ticket = one.submit(b"half of it")
    assert ticket is not None
    (request,) = other.requests()
    at = (tmp_path / "queue").read_bytes().index(b"half of it")
    with (tmp_path / "queue").open("r+b") as file:
        file.seek(at)
        file.write(b"HALF")
    assert list(other.requests()) == []
    other.mark_done([request])
    assert ticket.is_done()
    ticket.close()


def test_a_room_is_full_at_some_time(rooms: tuple[WaitingRoom, WaitingRoom]) -> None:
    one, other = rooms
    tickets = [one.submit(b"%d" % number) for number in range(64)]
    assert all(tickets)
    assert other.submit(b"one more") is None
    assert {request.data for request in other.requests()} == {b"%d" % number for number in range(64)}
    last = tickets.pop()
    assert last is not None
    last.close()
    again = other.submit(b"one more")
    assert again is not None
    again.close()


def test_what_is_too_large_is_not_taken(rooms: tuple[WaitingRoom, WaitingRoom]) -> None:
    one, other = rooms
    assert one.submit(b"x" * (MAX_BYTES + 1)) is None
    ticket = one.submit(b"x" * MAX_BYTES)
    assert ticket is not None
    assert [request.data for request in other.requests()] == [b"x" * MAX_BYTES]
    ticket.close()


def test_without_space_everyone_writes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with room_at(tmp_path / "queue") as room:
        assert room.submit(b"x") is None


def test_on_other_machines_everyone_writes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futex, "_number", None)
    with room_at(tmp_path / "queue") as room:
        assert room.submit(b"x") is None


def test_a_closed_room_takes_nothing(tmp_path: Path) -> None:
    with room_at(tmp_path / "queue") as room:
        ticket = room.submit(b"x")
        assert ticket is not None
        room.close()
        assert room.submit(b"y") is None
        ticket.close()


# -- wake-ups ----------------------------------------------------------------------------------------------------------


def waits(action: Callable[[], None]) -> float:
    """Return how long something takes in another thread, while it is let run to its end."""
    began_s = time.monotonic()
    thread = threading.Thread(target=action)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    return time.monotonic() - began_s


@pytest.mark.parametrize("answered", [True, False])
def test_a_wakeup_ends_the_wait(
    rooms: tuple[WaitingRoom, WaitingRoom], monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """Whether it is rung before the wait begins or after: without it this would take the whole time."""
    monkeypatch.setattr(waiting_room, "_PATIENCE_S", 10 * DEADLINE_S)
    one, other = rooms
    for early in (True, False):
        ticket = one.submit(b"x")
        assert ticket is not None
        seen = list(other.requests())
        served = seen if answered else []
        thread = threading.Thread(target=ticket.wait)
        if not early:
            thread.start()
        other.mark_done(served)
        other.wake(served)
        if early:
            thread.start()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        assert ticket.is_done() is answered
        ticket.withdraw()
        ticket.close()


def test_nobody_waits_for_ever(rooms: tuple[WaitingRoom, WaitingRoom]) -> None:
    one, _ = rooms
    ticket = one.submit(b"x")
    assert ticket is not None
    assert waits(ticket.wait) < DEADLINE_S
    assert not ticket.is_done()
    ticket.close()


def test_a_word_that_changed_is_not_waited_for() -> None:
    futex.wait(ctypes.c_uint32(7), 8, 10 * DEADLINE_S)
    futex.wake(ctypes.c_uint32(7))


# -- what is handed over -----------------------------------------------------------------------------------------------


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[SqliteJournalStore, SqliteJournalStore]]:
    """Two stores on one journal, as two processes have them."""
    with ExitStack() as stack:
        opened = [SqliteJournalStore(tmp_path / "journal.db") for _ in range(2)]
        for store in opened:
            stack.callback(store.close)
        yield opened[0], opened[1]


def database(store: SqliteJournalStore) -> SqliteDatabase:
    """The store's own, to hold its writer lock from outside."""
    assert isinstance(store._db, SqliteDatabase)
    return store._db


@contextmanager
def while_writing(
    holder: SqliteJournalStore, room_of: SqliteJournalStore, *commits: Callable[[], _T]
) -> Iterator[list[Future[_T]]]:
    """Have commits wait for a transaction, which ends when all of them have asked; then wait for them."""
    with ThreadPoolExecutor(len(commits)) as pool:
        with database(holder).writing():
            waiting_ = [pool.submit(commit) for commit in commits]
            wait_until(lambda: len(list(database(room_of)._room.requests())) >= len(commits), "they do not ask")
        yield waiting_


def test_a_commit_that_says_all_there_is_survives_the_way(
    stores: tuple[SqliteJournalStore, SqliteJournalStore],
) -> None:
    store, _ = stores
    writer = Writer.on(store)
    writer.epoch = store.acquire_lease(writer.session.session_id, "host", 0, 1_000).epoch
    message = writer.admit()
    drafts = [writer.draft("user_message", {"text": "é\U0001f600\n"}), writer.draft("note", [10**30, None, 1.5])]
    commit = writer.commit_of(
        *drafts,
        settled=(Settlement(message, Outcome.CONSUMED),),
        outbox=(
            OutboxMessage(message, "hello/bob", '{"é":1}'.encode(), 5, "hello/alice"),
            OutboxMessage(IDS.message(1), "hello/bob", b"{}", 5, headers={"trace": "é"}),
        ),
        reminders=(SetReminder("é", 5, '{"é":1}'.encode()), DropReminder("daily")),
    )
    ready = store._prepare(commit)
    data = write_codec.to_bytes(ready)
    assert data is not None
    assert write_codec.from_bytes(data) == ready


def test_a_step_survives_the_way() -> None:
    write = StepWrite(IDS.session(1), StoredStep(IDS.message(1), 3, "fetch#1", '{"é":1}'.encode()), 7)
    ready = steps.prepare(write)
    data = write_codec.to_bytes(ready)
    assert data is not None
    assert write_codec.from_bytes(data) == ready
    for damaged in (data[:-2], data.replace(b",7,", b",", 1), data.replace(b"[3,", b"[4,", 1)):
        assert write_codec.from_bytes(damaged) is None
    no_text = replace(write, step=replace(write.step, body=b"\xff"))
    assert write_codec.to_bytes(steps.prepare(no_text)) is None


def test_what_cannot_be_handed_over(stores: tuple[SqliteJournalStore, SqliteJournalStore]) -> None:
    store, _ = stores
    writer = Writer.on(store)
    snapshot = Snapshot(writer.head.branch_id, 1, b"state")
    assert write_codec.to_bytes(store._prepare(writer.commit_of(snapshot=snapshot))) is None
    data = write_codec.to_bytes(store._prepare(writer.commit_of()))
    assert data is not None
    assert write_codec.from_bytes(data.replace(b"[3,", b"[4,", 1)) is None
    assert write_codec.from_bytes(data[:-2]) is None
    assert write_codec.from_bytes(b"[1,2]") is None


def test_waiting_commits_are_done_by_the_one_who_writes(
    stores: tuple[SqliteJournalStore, SqliteJournalStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its transaction: those who waited never begin one of their own."""
    holder, store = stores
    writers = [Writer.on(store, f"hello/{number}") for number in range(5)]
    messages = [writer.admit() for writer in writers]
    wanted = [
        writer.commit_of(settled=(Settlement(message, Outcome.CONSUMED),))
        for writer, message in zip(writers, messages, strict=True)
    ]
    monkeypatch.setattr(database(store), "_writer", None)
    with while_writing(holder, store, *(lambda commit=commit: store.commit(commit) for commit in wanted)) as waiting_:
        heads = [each.result(DEADLINE_S) for each in waiting_]
    for writer, message, head in zip(writers, messages, heads, strict=True):
        assert holder.head(head.branch_id) == head
        assert holder.message(message).status is MessageStatus.CONSUMED
        assert verify_session(holder, writer.session).ok


def test_a_refusal_meets_the_one_who_waits_and_nobody_else(
    stores: tuple[SqliteJournalStore, SqliteJournalStore],
) -> None:
    holder, store = stores
    fine, stale, behind, gone = (Writer.on(store, f"hello/{number}") for number in range(4))
    stale.epoch = store.acquire_lease(stale.session.session_id, "old", 0, 1).epoch
    store.acquire_lease(stale.session.session_id, "new", 10, 1_000)
    store.commit(behind.commit_of())
    commits = [
        fine.commit_of(),
        stale.commit_of(),
        behind.commit_of(),
        gone.commit_of(settled=(Settlement(fine.admit(), Outcome.CONSUMED),)),
    ]
    with while_writing(holder, store, *(lambda commit=commit: store.commit(commit) for commit in commits)) as waiting_:
        errors = [type(each.exception(DEADLINE_S)) for each in waiting_]
    assert errors == [type(None), StaleEpoch, BranchVersionConflict, NotFound]
    assert store.head(fine.head.branch_id).seq == 1
    assert store.head(gone.head.branch_id).seq == 0
    assert all(verify_session(holder, writer.session).ok for writer in (fine, stale, behind, gone))


def test_waiting_steps_are_stored_by_the_one_who_writes(
    stores: tuple[SqliteJournalStore, SqliteJournalStore],
) -> None:
    holder, store = stores
    writer = Writer.on(store)
    session_id, message_id = writer.session.session_id, writer.admit()
    epoch = store.acquire_lease(session_id, "host", 0, 1_000).epoch
    store.put_step(session_id, StoredStep(message_id, 1, "first", b"1"), epoch)
    asked = [(StoredStep(message_id, 2, "fine", b"2"), epoch), (StoredStep(message_id, 3, "stale", b"3"), epoch + 1)]
    asked += [
        (StoredStep(message_id, 1, "again", b"1"), epoch),
        (StoredStep(IDS.message(1), 1, "of nothing", b"1"), epoch),
    ]
    puts = [lambda each=each: store.put_step(session_id, *each) for each in asked]
    with while_writing(holder, store, *puts) as waiting_:
        errors = [type(each.exception(DEADLINE_S)) for each in waiting_]
    assert errors == [type(None), StaleEpoch, Conflict, NotFound]
    assert [step.key for step in holder.steps(message_id)] == ["first", "fine"]


def test_when_the_writer_fails_those_who_wait_go_on(stores: tuple[SqliteJournalStore, SqliteJournalStore]) -> None:
    holder, store = stores
    commit = Writer.on(store).commit_of()

    def fail_when_requested() -> None:
        with database(holder).writing():
            waits_.append(pool.submit(store.commit, commit))
            wait_until(lambda: list(database(store)._room.requests()))
            raise KeyError

    waits_: list[Future[Head]] = []
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyError):
            fail_when_requested()
        assert waits_[0].result(DEADLINE_S).seq == 1


DYING = """
import os, sys
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.journal.sqlite.group_commit.waiting_room import WaitingRoom
store = SqliteJournalStore(sys.argv[1])
if sys.argv[2] == "after":
    WaitingRoom.mark_done = lambda self, done: os._exit(9)
with store._db.writing():
    print("writing", flush=True)
    sys.stdin.readline()
    if sys.argv[2] == "before":
        os._exit(9)
"""


@contextmanager
def dying_writer(journal: Path, when: str) -> Iterator[Callable[[], object]]:
    """A process that holds the writer lock, and dies before or after its commit once it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-c", DYING, journal, when], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    yield partial(process.communicate, "\n", timeout=DEADLINE_S)
    assert process.returncode == 9


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_dies_before_it_could_answer(
    stores: tuple[SqliteJournalStore, SqliteJournalStore], tmp_path: Path, when: str
) -> None:
    """Before its commit, or between its commit and the answer: either way what was request for is there, once."""
    store, other = stores
    writer = Writer.on(store)
    writer.epoch = store.acquire_lease(writer.session.session_id, "host", 0, 1_000).epoch
    commit = writer.commit_of()
    with dying_writer(tmp_path / "journal.db", when) as die, ThreadPoolExecutor(1) as pool:
        waits_ = pool.submit(store.commit, commit)
        wait_until(lambda: list(database(other)._room.requests()))
        die()
        head = waits_.result(DEADLINE_S)
    assert store.head(head.branch_id) == head
    assert [event.event_id for event in store.events(head.branch_id)] == [commit.events[0].event_id]
    assert verify_session(store, writer.session).ok


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_dies_before_it_could_answer_about_a_step(
    stores: tuple[SqliteJournalStore, SqliteJournalStore], tmp_path: Path, when: str
) -> None:
    store, other = stores
    writer = Writer.on(store)
    step = StoredStep(writer.admit(), 1, "step", b"{}")
    with dying_writer(tmp_path / "journal.db", when) as die, ThreadPoolExecutor(1) as pool:
        waits_ = pool.submit(store.put_step, writer.session.session_id, step, None)
        wait_until(lambda: list(database(other)._room.requests()))
        die()
        waits_.result(DEADLINE_S)
    assert list(store.steps(step.message_id)) == [step]


def test_a_forked_child_keeps_no_lock(stores: tuple[SqliteJournalStore, SqliteJournalStore]) -> None:
    """Also when a thread of its parent was waiting in the room: the child's copy of the file holds nothing."""
    holder, store = stores
    writer = Writer.on(store)
    release, told = os.pipe()
    with while_writing(holder, store, lambda: store.commit(writer.commit_of())) as waiting_:
        pid = os.fork()
        if pid == 0:
            os.read(release, 1)
            os._exit(0)
        try:
            assert waiting_[0].result(DEADLINE_S).seq == 1
            store.close()
            assert holder.head(writer.head.branch_id).seq == 1
            Writer.on(holder).turns(1)
        finally:
            os.write(told, b"x")
            os.waitpid(pid, 0)
            os.close(release)
            os.close(told)
