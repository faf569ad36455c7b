"""Turns that pause, and very many of them.

Rows:

* an agent that pauses goes to zero; from the answer to the next line of its program, against a plain wake: from a
  message to a sleeping agent of the same class and state to the first token. Both through a service's socket, in turn;
* with ``PAUSED_RUNS`` runs that are paused (100,000): processes without a service, the first page of ``podium paused``,
  and a resume among them against one of an agent that is alone in its home;
* the first page on PostgreSQL.

Times are medians. One of the paused runs is made as a host makes it; the others are copies of its rows, because 100,000
would take three minutes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack, aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from chronicle.blobs.ident import blob_id
from chronicle.canonical import encode
from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from chronicle.journal.postgres import PostgresJournalStore
from chronicle.journal.records import NewMessage, StoredStep
from chronicle.journal.sql.moving import columns_of
from chronicle.journal.sql.tables import TABLES
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.workspace.port import TreeRef
from coordinator.home import Home
from coordinator.operations.agents import HomeAgents
from coordinator.operations.runs import paused_page
from coordinator.service.connecting import connect, wait_ended
from coordinator.service.link import ServiceLink
from podium.address import Address
from podium.history.step_record import PauseRecord, StepRecord, args_hash, write_record
from podium.turn.journal.commit import NextCommit, created_commit, pause_commit
from podium.turn.steps.pausing import Pause
from tests.benchmarks.coordinator.bench_service import processes_of_home
from tests.benchmarks.coordinator.bench_wake import Talk, paired, row
from tests.benchmarks.podium.turn_load import LEASE_MS
from tests.contract.postgres_server import running_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.canonical import Json, JsonObject
    from chronicle.journal.port import JournalStore
    from coordinator.service.client import ServiceClient
    from tests.benchmarks.__main__ import Row

PAUSED = int(os.environ.get("PAUSED_RUNS", "100000"))
RESUMES = 30
AMONG = 15
PAGES = 20
DEADLINE_S = 180
SCHEMA: Json = {
    "type": "object",
    "properties": {"verdict": {"enum": ["yes", "no"]}, "note": {"type": "string", "maxLength": 500}},
    "required": ["verdict"],
}


async def _resumes_s(client: ServiceClient, agents: HomeAgents, count: int) -> tuple[list[float], list[float]]:
    """Resume an agent that has gone to zero, and wake it by a message, in turn.

    Returns:
        the seconds of each from the answer, or the message, to the first token.
    """
    talk, resumes, wakes = Talk(client), [], []
    await talk.say("Waiter", "one", {"text": "count"})  # no host is warm yet
    for _ in range(count):
        await talk.asleep("waiter/one", "Waiter")
        wakes.append((await talk.say("Waiter", "one", {"text": "count"}))[0])
        admitted = await client.admit("waiter/one", {"text": "wait"})
        async with aclosing(client.follow("waiter/one", admitted.message_id)) as frames:
            last = [frame["type"] async for frame in frames][-1]
        if last != "turn_paused":
            raise RuntimeError(last)
        await talk.asleep("waiter/one", "Waiter")
        began_s = time.perf_counter()
        await agents.decide(admitted.message_id, {"verdict": "yes"})
        async with aclosing(client.follow("waiter/one", admitted.message_id)) as frames:
            async for frame in frames:
                if frame["type"] in {"message_update", "message_end"}:
                    resumes.append(time.perf_counter() - began_s)
                    break
            async for _ in frames:
                pass
    return resumes, wakes


async def _of_home(home: Home, count: int) -> tuple[list[float], list[float]]:
    """Return the times of `_resumes_s` by a service of the home's own."""
    async with connect(home, lambda _: None, lambda _: None) as client, ServiceLink(home, start=False) as link:
        agents = HomeAgents(home, link)
        found = await _resumes_s(client, agents, count)
        agents.close()
    await wait_ended(home, DEADLINE_S)
    return found


def _add_paused(store: SqliteJournalStore | PostgresJournalStore, count: int) -> None:
    """Add agents that have a state, and whose turns have paused."""
    ids, now_ms, address = IdSource(), SystemClock().now_ms(), Address("paused", "one")
    session = store.ensure_session(address.name, ids.session(now_ms), ids.branch(now_ms), now_ms)
    lease = store.acquire_lease(session.session_id, "bench", now_ms, LEASE_MS)
    payload: JsonObject = {"agent": address.name, "entity_type": "paused", "version": 1, "state": {"count": 1}}
    payload |= {"tree_id": None, "oplog_id": None}
    at = NextCommit(session, store.head(session.main_branch_id), lease.epoch, ids, now_ms)
    store.commit(created_commit(at, payload))
    message = NewMessage(ids.message(now_ms), encode({"text": "order number one"}), now_ms)
    store.admit(session.session_id, message)
    record = _record(1, now_ms)
    store.put_step(
        session.session_id, StoredStep(message.message_id, 1, record.key, write_record(record, {})), lease.epoch
    )
    at = NextCommit(session, store.head(session.main_branch_id), lease.epoch, ids, now_ms)
    store.commit(pause_commit(at, store.message(message.message_id), address, Pause(1, record)))
    store.release_lease(session.session_id, lease.epoch)
    with store._db.writing() as db:
        found = db.execute("SELECT key FROM session WHERE session_id = ?", (session.session_id,)).fetchone()
        assert found is not None
        given_keys = "OVERRIDING SYSTEM VALUE" if isinstance(store, PostgresJournalStore) else ""
        for table, of_session in _OF_SESSION.items():
            columns = columns_of(TABLES)[table][0]
            copied = ", ".join(_COPIED.get(f"{table}.{column}", _COPIED.get(column, column)) for column in columns)
            db.execute(
                f"WITH RECURSIVE copy(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < {count - 1}) "
                f"INSERT INTO {table} ({', '.join(columns)}) {given_keys} "
                f"SELECT {copied} FROM {table} CROSS JOIN copy WHERE {of_session}",
                (found[0],),
            )


_COPIED = {
    **{column: f"{column.rpartition('.')[2]} + n" for column in ("session.key", "branch.key", "session")},
    **{column: f"{column} + n * 4294967296" for column in ("id", "message")},
    **{
        column: f"{column} || '-' || n"
        for column in ("session_id", "name", "main_branch_id", "branch_id", "event_id", "message_id")
    },
}
"""What columns of a copied row are made of; the others are as they are."""
_OF_SESSION = {
    "step": "message IN (SELECT id FROM inbox WHERE session = ?)",
    "inbox": "session = ?",
    "event": "id >> 32 = (SELECT key FROM branch WHERE session = ?)",
    "branch": "session = ?",
    "catalogue": "id >> 32 = ?",
    "session": "key = ?",
}
"""The tables with rows of an agent whose turn has paused, and which of their rows are of a session."""


def _record(number: int, now_ms: int) -> StepRecord:
    """Return the record of a turn that waits for ever."""
    pause: PauseRecord = {"kind": "decide", "reason": f"pay {number}?", "schema": SCHEMA, "expires": None}
    return StepRecord(
        key="decide#1",
        name="decide",
        args_hash=args_hash([number]),
        result=None,
        effects=[],
        patch=[{"op": "replace", "path": "/count", "value": number + 1}],
        before=1,
        version=1,
        tree=TreeRef(blob_id(b"tree"), blob_id(b"log")),
        changes_files=False,
        started_ms=now_ms,
        ended_ms=now_ms,
        running=[],
        failed=[],
        steered=[],
        base_turn=0,
        pause=pause,
    )


def _in_memory(journal: Path, change: Callable[[SqliteJournalStore], None]) -> None:
    """Change a journal while it is in memory: each write would be synced to disk."""
    with tempfile.TemporaryDirectory(prefix="pp-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        for file in journal.parent.glob(f"{journal.name}*"):  # with its checksums
            shutil.move(file, Path(directory) / file.name)
        with closing(SqliteJournalStore(Path(directory) / journal.name)) as store:
            change(store)
        for file in Path(directory).iterdir():
            shutil.move(file, journal.with_name(file.name))


def _page_ms(store: JournalStore) -> float:
    """Return the time of the first page of the tenant's paused runs."""
    times = []
    for _ in range(PAGES):
        began_s = time.perf_counter()
        page = paused_page(store, "default", None, 100, None)
        times.append(time.perf_counter() - began_s)
    if len(page.items) != 100 or not page.next_cursor:
        raise RuntimeError("the runs are not there")
    return statistics.median(times) * 1e3


def _page_of_postgres_ms() -> float:
    with ExitStack() as stack:
        conninfo = stack.enter_context(running_server())
        with psycopg.connect(conninfo, autocommit=True) as db:
            db.execute("ALTER SYSTEM SET fsync = off")
            db.execute("SELECT pg_reload_conf()")
        store = stack.enter_context(closing(PostgresJournalStore(conninfo, schema="bench")))
        _add_paused(store, PAUSED)
        with psycopg.connect(conninfo, autocommit=True) as db:
            db.execute("ANALYZE")  # as the server does by itself in the minutes after such a number of rows
        return _page_ms(store)


async def _measure(base: Path) -> list[Row]:
    home = Home(base / "home").create()
    resumes, wakes = await _of_home(home, RESUMES)
    alone = statistics.median(resumes)
    rows = [
        row(
            "pause to zero, from the answer to the next line / a plain wake",
            paired(resumes, wakes),
            "x",
            f"a message to a sleeping agent, {statistics.median(wakes) * 1e3:.1f} ms",
            "<= 1.5",
        )
    ]
    await asyncio.to_thread(_in_memory, home.path / "journal.db", lambda store: _add_paused(store, PAUSED))
    processes = len(processes_of_home(home.path))
    with closing(home.journal(read_only=True)) as store:
        page_ms = _page_ms(store)
    among, _ = await _of_home(home, AMONG)
    many = f"{PAUSED} paused runs"
    return [
        *rows,
        row(f"{many}: processes", processes, "processes", "", "<= 0"),
        row(f"{many}: first page of podium paused", page_ms, "ms", "", "<= 50"),
        row(
            f"{many} in PostgreSQL: first page of podium paused",
            await asyncio.to_thread(_page_of_postgres_ms),
            "ms",
            "",
            "<= 50",
        ),
        row(
            f"resume of one among {PAUSED} / alone",
            statistics.median(among) / alone,
            "x",
            f"alone, {alone * 1e3:.1f} ms",
            "<= 1.2",
        ),
    ]


def run() -> list[Row]:
    """Measure and return the rows."""
    with tempfile.TemporaryDirectory(prefix="pp-") as directory:
        return asyncio.run(_measure(Path(directory)))
