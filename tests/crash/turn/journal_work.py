"""What the journal's crash tests kill: a process that writes turns and says which were answered.

After each answered turn a line ``BRANCH:SEQ:HASH`` goes to the file ``acknowledged`` in the directory::

    python -m tests.crash.turn.journal_work work DIRECTORY TURNS          until killed from outside
    python -m tests.crash.turn.journal_work log DIRECTORY TURNS LOG       with all writes in a log
    python -m tests.crash.turn.journal_work kills DIRECTORY TURNS         once for each write, ended right before it
    python -m tests.crash.turn.journal_work crowd DIRECTORY TURNS         the same, with other writers beside it
    python -m tests.crash.turn.journal_work migration DIRECTORY TURNS     once for each write of a migration

The last four need ``syscalls.c``, built and preloaded.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.errors import NotFound
from chronicle.ids import IdSource
from chronicle.journal.records import (
    MessageStatus,
    NewMessage,
    OutboxMessage,
    Outcome,
    SetReminder,
    Settlement,
    Snapshot,
    StoredStep,
)
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.journal.verify import Anchor, verify_session
from chronicle.testing.journal_contract import Writer
from tests import next_format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.journal.records import Head, Session

NAMES = ("hello/alice", "hello/bob")
CROWD = 4
DEATHS = 60
BODY = b'{"text":"do it"}'


def work(directory: Path, turns: int, seed: int) -> None:
    """Write turns of two agents: each consumes a message after a step, sends one, and some keep a snapshot or fork.

    Half of the messages are those of the reminder ``clock``, whose time counts its fires. The body of the reminder
    ``last`` is the number of the turn that set it.
    """
    generator = random.Random(seed)
    ids = IdSource(generator)
    store = SqliteJournalStore(directory / "journal.db")
    acknowledged = os.open(directory / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    writers = [Writer.on(store, name) for name in NAMES]
    for turn in range(turns):
        writer = writers[turn % 2]
        message_id = ids.message(turn)
        admit(store, writer, NewMessage(message_id, BODY, turn, f"key {seed} {turn}"), by_reminder=turn % 4 > 1)
        store.put_step(writer.session.session_id, StoredStep(message_id, 1, "step", BODY), None)
        text = {"text": "x" * generator.randrange(1, 3_000)}
        sent = OutboxMessage(ids.message(turn), "hello/carol", BODY, turn)
        drafts = [writer.draft("user_message", text), writer.draft("turn.committed", {"consumed": message_id})]
        seq = writer.head.seq + 2
        snapshot = None
        if turn % 4 == 3:
            snapshot = Snapshot(writer.head.branch_id, seq, b"state at %d " % seq * 2_000)
        reminders = [SetReminder("last", 1, b"%d" % (writer.head.turn + 1))]
        if not writer.head.turn:
            reminders.append(SetReminder("clock", 0, b""))
        writer.write(
            *drafts,
            settled=(Settlement(message_id, Outcome.CONSUMED),),
            outbox=(sent,),
            snapshot=snapshot,
            reminders=tuple(reminders),
        )
        os.write(acknowledged, f"{Anchor.of(writer.head)}\n".encode())
        if turn % 8 == 7:
            fork = writer.fork(seq)
            store.delete_branch(fork.head.branch_id, turn)
    store.close()


def admit(store: SqliteJournalStore, writer: Writer, message: NewMessage, *, by_reminder: bool) -> None:
    """Admit a message, or have the reminder ``clock`` send it."""
    session_id = writer.session.session_id
    if not by_reminder:
        store.admit(session_id, message)
        return
    due_ms = {reminder.name: reminder.due_ms for reminder in store.reminders(session_id)}["clock"]
    message = replace(message, headers={"reminder": due_ms})
    assert store.fire_reminder(session_id, "clock", due_ms, message, due_ms + 1) is not None


def check(directory: Path) -> int:
    """Open what a crash left, and check that it is whole; returns the number of turns in it."""
    anchors = anchors_in(directory / "acknowledged")
    store = SqliteJournalStore(directory / "journal.db")
    try:
        turns = 0
        for name in NAMES:
            try:
                session = store.session(name)
            except NotFound:
                assert not anchors, "an answered turn is lost with its session"
                continue
            turns += check_agent(store, session, [each for each in anchors if each.branch_id == session.main_branch_id])
            snapshot = store.snapshot(session.main_branch_id)
            if snapshot is not None:
                assert snapshot.body == b"state at %d " % snapshot.seq * 2_000
        assert len(store.outbox(10_000)) == turns
        for anchor in anchors:
            assert store.head(anchor.branch_id).seq >= anchor.seq
        for name in NAMES:
            Writer.on(store, name).turns(1)
    finally:
        store.close()
    return turns


def anchors_in(acknowledged: Path) -> list[Anchor]:
    """Return the heads that were answered; the last line may be torn."""
    lines = acknowledged.read_bytes().split(b"\n") if acknowledged.exists() else []
    return [Anchor.parse(line.decode()) for line in lines[:-1]]


def check_agent(store: SqliteJournalStore, session: Session, anchors: list[Anchor]) -> int:
    """Check that an agent is whole, and has what was answered; returns its number of turns."""
    report = verify_session(store, session, anchors)
    assert report.ok, str(report.damage)
    head = store.head(session.main_branch_id)
    assert head.seq % 2 == 0, "half a turn is there"
    consumed = store.messages(session.session_id, MessageStatus.CONSUMED)
    assert len(consumed) == head.seq // 2, "a message is consumed without its turn, or the other way round"
    pending = store.pending(session.session_id)
    assert len(pending) <= 1
    steps = store.steps_of_session(session.session_id)
    assert {step.message_id for step in steps} <= {message.message_id for message in pending}, "a step is left"
    reminders = {reminder.name: reminder for reminder in store.reminders(session.session_id)}
    assert set(reminders) == ({"clock", "last"} if head.seq else set()), "a turn is there without its reminders"
    if reminders:
        assert int(reminders["last"].body) == head.turn, "a reminder is not of the last turn"
        fired = [message for message in (*consumed, *pending) if message.headers is not None]
        assert reminders["clock"].due_ms == len(fired), "a reminder moved without its message, or the other way round"
    return head.seq // 2


def kill_before_each_write(directory: Path, turns: int) -> Iterator[int]:
    """Work in forked processes, each of which gets one write further, and yield the turns that each one left."""
    ended = False
    for stop in count(1):
        home = directory / str(stop)
        home.mkdir()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                arm(home, stop)
                work(home, turns, seed=1)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, 77), f"ended with {code} at write {stop}"
        ended = code == 0
        yield check(home)
        shutil.rmtree(home)
        if ended:
            return


def kill_before_each_write_of_a_migration(directory: Path, turns: int) -> Iterator[int]:
    """Migrate copies of a journal in forked processes, each killed one write later; yield the formats that are left."""
    older = directory / "older"
    older.mkdir()
    work(older, turns, seed=1)
    with closing(SqliteJournalStore(older / "journal.db", watched=True)) as store:
        before = heads(store)
    next_format.use()
    for stop in count(1):
        home = directory / str(stop)
        home.mkdir()
        for file in older.glob("journal.db*"):
            shutil.copy2(file, home)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                arm(home, stop)
                SqliteJournalStore(home / "journal.db", watched=True).close()
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, 77), f"ended with {code} at write {stop}"
        yield check_migrated(home, before)
        shutil.rmtree(home)
        if code == 0:
            return


def heads(store: SqliteJournalStore) -> list[tuple[Session, Head]]:
    """Return the sessions of a journal, with their heads."""
    return [(session, store.head(session.main_branch_id)) for session in store.sessions()]


def check_migrated(home: Path, before: list[tuple[Session, Head]]) -> int:
    """Check that a journal is whole in whichever format it was left, and migrates; returns that format."""
    with closing(sqlite3.connect(home / "journal.db")) as db:
        left = int(db.execute("PRAGMA user_version").fetchone()[0])
    with closing(SqliteJournalStore(home / "journal.db", watched=True)) as store:
        assert len(before) == 2
        assert heads(store) == before
        assert all(verify_session(store, session).ok for session, _ in before)
        assert store.damage() is None
        Writer.on(store, before[0][0].name, "acme").turns(1)
    return left


def crowd(directory: Path, turns: int) -> Iterator[int]:
    """Let processes write at the same time, the first of which dies at a later write each time; yield all's turns.

    How many writes it makes is not the same each time, as others do some of its work.
    """
    for stop in range(1, DEATHS + 1):
        home = directory / str(stop)
        home.mkdir()
        SqliteJournalStore(home / "journal.db").close()
        go, told = os.pipe()
        pids = [start_one_of_crowd(home, turns, number, go, stop if number == 0 else 0) for number in range(CROWD)]
        os.write(told, b"x" * CROWD)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        os.close(go)
        os.close(told)
        assert codes[0] in (0, 77), f"ended with {codes[0]} at write {stop}"
        assert not any(codes[1:]), f"others ended with {codes[1:]} when one died at write {stop}"
        yield check_crowd(home, turns)
        shutil.rmtree(home)


def start_one_of_crowd(home: Path, turns: int, number: int, go: int, stop: int) -> int:
    """Fork a process that writes one agent's turns once it is told to; return its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            store = SqliteJournalStore(home / "journal.db")
            acknowledged = os.open(home / f"acknowledged-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            writer = Writer.on(store, f"hello/{number}")
            messages = [writer.admit() for _ in range(turns)]
            os.read(go, 1)
            if stop:
                arm(home, stop)
            for message_id in messages:
                drafts = [writer.draft("user_message"), writer.draft("turn.committed", {"consumed": message_id})]
                writer.write(*drafts, settled=(Settlement(message_id, Outcome.CONSUMED),))
                os.write(acknowledged, f"{Anchor.of(writer.head)}\n".encode())
            store.close()
            code = 0
        finally:
            os._exit(code)
    return pid


def check_crowd(home: Path, turns: int) -> int:
    """Check each agent; returns the number of turns of all. Those who lived have all theirs."""
    store = SqliteJournalStore(home / "journal.db")
    try:
        found = []
        for number in range(CROWD):
            session = store.session(f"hello/{number}")
            anchors = anchors_in(home / f"acknowledged-{number}")
            report = verify_session(store, session, anchors)
            assert report.ok, str(report.damage)
            head = store.head(session.main_branch_id)
            consumed = store.messages(session.session_id, MessageStatus.CONSUMED)
            assert head.seq == 2 * len(consumed), "a message is consumed without its turn, or the other way round"
            assert len(consumed) - len(anchors) in ((0,) if number else (0, 1)), "a turn is there that nobody asked for"
            found.append(len(consumed))
        assert found[1:] == [turns] * (CROWD - 1)
    finally:
        store.close()
    return sum(found)


def arm(home: Path, stop: int = 0, log: str | None = None) -> None:
    """Begin to count and log this process's writes."""
    ctypes.CDLL(None).arm(bytes(home), ctypes.c_long(stop), log.encode() if log else None)


def main(mode: str, directory: Path, turns: int, log: str = "") -> None:
    """Do what the command line asks."""
    if mode in {"kills", "migration"}:  # in the other modes the time that a sync takes matters, or it is logged
        ctypes.CDLL(None).skip_syncs()
    match mode:
        case "work":
            work(directory, turns, seed=1)
        case "log":
            arm(directory, log=log)
            work(directory, turns, seed=1)
        case "kills":
            print(*kill_before_each_write(directory, turns))
        case "migration":
            print(*kill_before_each_write_of_a_migration(directory, turns))
        case "crowd":
            print(*crowd(directory, turns))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
