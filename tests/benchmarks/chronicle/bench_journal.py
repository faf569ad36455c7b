"""The journal on SQLite, and on PostgreSQL where it is installed: ``python -m tests.benchmarks journal``.

Each figure is a ratio to a floor measured right beside it, repeatedly; medians of at least five.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import psycopg

from chronicle.ids import BranchId, IdSource
from chronicle.journal.committer import GroupCommitter
from chronicle.journal.postgres import PostgresJournalStore
from chronicle.journal.records import Draft, Snapshot
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.journal.verify import verify_session
from tests.benchmarks.chronicle.journal_load import NEW_BYTES, TURN_BYTES, Agent, floor, text
from tests.contract.postgres_server import find_binaries, running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

ROOT: Final = Path(__file__).parents[3]
REPEATS: Final = 5
TURNS: Final = 400
BATCH: Final = 50
PROCESSES: Final = 8
AGENTS: Final = 100


def run() -> list[Row]:
    """Measure, and return the rows."""
    return [commit(), growth(), *stored(), processes(), group(), verification(), opening(), forking(), *on_postgres()]


def commit() -> Row:
    """A three-event commit against one plain INSERT, a batch of each in turn."""
    ratios, rates = [], []
    for _ in range(REPEATS):
        with home() as path, floor(path / "floor.db") as inserts_s, journal(path) as store:
            agent = Agent(store, "hello/alice")
            for _ in range(TURNS // BATCH):
                floor_s = inserts_s(BATCH)
                ratios.append(floor_s / sum(agent.turns(BATCH)))
                rates.append(BATCH / floor_s)
    return row(
        "commit of three events, one message consumed", ratios, ">= 0.5", f"INSERT of 1.2 KB, {median(rates):.0f}/s"
    )


def growth() -> Row:
    """The rate of turns 901 to 1,000 against that of another's turns 1 to 100, a few of each in turn."""
    ratios = []
    for _ in range(REPEATS):
        with home() as of_old, home() as of_young, journal(of_old) as old_store, journal(of_young) as young_store:
            old, young = Agent(old_store, "hello/alice"), Agent(young_store, "hello/alice")
            old.turns(900, snapshots=True)
            old_s, young_s = [], []
            for _ in range(10):
                old_s += old.turns(10, snapshots=True)
                young_s += young.turns(10, snapshots=True)
        ratios.append(median(young_s) / median(old_s))
    return row("turns 901-1,000", ratios, ">= 0.9", "turns 1-100")


def stored() -> list[Row]:
    """The file after 1,000 turns, against what they added."""
    with home() as path:
        with journal(path) as store:
            Agent(store, "hello/alice").turns(1_000, snapshots=True)
        alone = (path / "journal.db").stat().st_size / (1_000 * NEW_BYTES)
    with home() as path:
        with journal(path) as store:
            agents = [Agent(store, f"hello/{number}") for number in range(20)]
            for _ in range(100):
                for agent in agents:
                    agent.turns(1, snapshots=True)
        together = (path / "journal.db").stat().st_size / (2_000 * NEW_BYTES)
    floor = "2.4 KB a turn"
    return [
        row("bytes stored, 1,000 turns of one agent", [alone], "<= 2", floor),
        row("bytes stored, 100 turns each of 20 agents", [together], "<= 2", floor),
    ]


def processes() -> Row:
    """Eight processes writing at once against one."""
    ratios, rates = [], []
    for _ in range(REPEATS):
        one = together(1, TURNS)
        ratios.append(together(PROCESSES, TURNS // 2) / one)
        rates.append(one)
    return row("8 processes, in sum", ratios, ">= 0.8", f"1 process, {median(rates):.0f} commits/s")


def together(count: int, turns: int) -> float:
    """Return the commits a second of several processes in sum."""
    with home() as path:
        with journal(path):
            pass
        workers = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.benchmarks.chronicle.journal_load",
                    path / "journal.db",
                    f"a/{number}",
                    str(turns),
                ],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(count)
        ]
        for worker in workers:
            if worker.stdout is None or worker.stdout.readline() != "ready\n":
                raise RuntimeError("a writing process did not start")
        for worker in workers:
            if worker.stdin is not None:
                worker.stdin.write("go\n")
                worker.stdin.flush()
        seconds = [float(worker.communicate(timeout=300)[0]) for worker in workers]
    return count * turns / max(seconds)


def group() -> Row:
    """A hundred agents of one process committing at once against one agent."""
    ratios, rates = [], []
    for _ in range(REPEATS):
        one, many = asyncio.run(at_once(1, TURNS)), asyncio.run(at_once(AGENTS, TURNS // 20))
        ratios.append(many / one)
        rates.append(one)
    return row("group commit, 100 agents at once", ratios, ">= 1.5", f"1 agent, {median(rates):.0f} commits/s")


async def at_once(count: int, turns: int) -> float:
    """Return the commits a second of several agents in sum."""
    with home() as path, journal(path) as store:
        committer = GroupCommitter(store)
        agents = [Agent(store, f"hello/{number}") for number in range(count)]
        prepared = [[agent.drafts(turn, agent.admit()) for turn in range(1, turns + 1)] for agent in agents]

        async def turn_after_turn(agent: Agent, turns_of_agent: list[list[Draft]]) -> None:
            for drafts in turns_of_agent:
                agent.head = await committer.commit(agent.commit_of(drafts))

        start = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number, (agent, drafts) in enumerate(zip(agents, prepared, strict=True)):
                tasks.create_task(turn_after_turn(agent, drafts), name=f"agent-{number}")
        seconds = time.perf_counter() - start
        committer.close()
        return count * turns / seconds


def verification() -> Row:
    """Events verified a second, against a bare SHA-256 chain over the same rows."""
    ratios, rates = [], []
    with home() as path, journal(path) as store:
        agent = Agent(store, "hello/alice")
        agent.turns(2_000)
        with closing(sqlite3.connect(path / "journal.db")) as db:
            for _ in range(REPEATS):
                start = time.perf_counter()
                digest, events = b"", 0
                for values in db.execute("SELECT * FROM event ORDER BY id"):
                    digest = sha256(digest + values[-1]).digest()
                    events += 1
                bare = time.perf_counter() - start
                start = time.perf_counter()
                report = verify_session(store, agent.session)
                ratios.append(bare / (time.perf_counter() - start))
                rates.append(events / bare)
                if not report.ok or report.events != events:
                    raise RuntimeError(f"the journal does not verify: {report}")
    return row("verify, events a second", ratios, ">= 0.5", f"bare sha256 chain, {median(rates):.0f} rows/s")


def opening() -> Row:
    """Reading what an agent of 100,000 events needs to open, against one of 100; the snapshots have one size."""
    return row("open at 100,000 events", long_against_short(open_once), "<= 2", "open at 100 events")


def forking() -> Row:
    """Forking at event 100,000 against event 10."""
    return row("fork at event 100,000", long_against_short(fork_once), "<= 1.5", "fork at event 100")


def on_postgres() -> list[Row]:
    """A three-event commit against one plain INSERT on a PostgreSQL server, where one is installed."""
    binaries = find_binaries()
    if binaries is None:
        return []
    ratios, rates = [], []
    with running_server() as conninfo, psycopg.connect(conninfo, autocommit=True) as db:
        db.execute("SET synchronous_commit TO on")
        db.execute("CREATE TABLE turn (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, bytes BYTEA)")
        store = PostgresJournalStore(conninfo)
        for repeat in range(REPEATS):
            rows = [text(TURN_BYTES).encode() for _ in range(TURNS)]
            start = time.perf_counter()
            for each in rows:
                db.execute("INSERT INTO turn (bytes) VALUES (%s)", (each,))
            floor = TURNS / (time.perf_counter() - start)
            ratios.append(TURNS / sum(Agent(store, f"hello/{repeat}").turns(TURNS)) / floor)
            rates.append(floor)
        store.close()
    return [row("commit on PostgreSQL", ratios, "", f"INSERT of 1.2 KB, {median(rates):.0f}/s")]


def open_once(store: SqliteJournalStore, agent: Agent, number: int) -> None:
    """Do what opening does: head, newest snapshot, events after it."""
    del number
    head = store.head(agent.head.branch_id)
    snapshot = store.snapshot(head.branch_id)
    if snapshot is None:
        raise RuntimeError("there is no snapshot")
    list(store.events(head.branch_id, after_seq=snapshot.seq, to_seq=head.seq))


def fork_once(store: SqliteJournalStore, agent: Agent, number: int) -> None:
    """Fork at the head."""
    store.fork_branch(agent.head.branch_id, agent.head.seq, BranchId(f"br_{agent.head.seq}_{number}"), 1)


def long_against_short(action: Callable[[SqliteJournalStore, Agent, int], None]) -> list[float]:
    """Return ratios of the seconds that an action takes on a long and on a short branch."""
    ids = IdSource()
    with home() as path, journal(path) as store:
        agents = [Agent(store, "hello/short"), Agent(store, "hello/long")]
        for agent, batches in zip(agents, (1, 1_000), strict=True):
            for _ in range(batches):
                drafts = [Draft(ids.event(1), "note", {"n": number}, 1, 1) for number in range(100)]
                agent.head = store.commit(agent.commit_of(drafts))
            near_head = Snapshot(agent.head.branch_id, agent.head.seq - 20, b"state " * 10_000)
            last = agent.commit_of([Draft(ids.event(1), "note", None, 1, 1)])
            agent.head = store.commit(replace(last, snapshot=near_head))
        ratios = []
        for repeat in range(5 * REPEATS):
            seconds = []
            for agent in agents:
                start = time.perf_counter()
                action(store, agent, repeat)
                seconds.append(time.perf_counter() - start)
            ratios.append(seconds[1] / seconds[0])
        return ratios


def row(name: str, ratios: list[float], target: str, floor: str) -> Row:
    """Return the median as a row."""
    return {"name": name, "value": round(median(ratios), 3), "unit": "x", "target": target, "floor": floor}


@contextmanager
def home() -> Iterator[Path]:
    """A directory on the disk that the checkout is on: a file system in memory has no syncs."""
    path = Path(tempfile.mkdtemp(prefix=".bench-", dir=ROOT))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def journal(path: Path) -> Iterator[SqliteJournalStore]:
    """A journal in a directory, closed at the end."""
    store = SqliteJournalStore(path / "journal.db")
    try:
        yield store
    finally:
        store.close()


def main() -> None:
    """Print the rows."""
    for each in run():
        print(f"{each['name']:45} {each['value']:8.2f} {each['unit']}  {each['target']:8} {each['floor']}")


if __name__ == "__main__":
    main()
