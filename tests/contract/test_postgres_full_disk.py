"""A PostgreSQL whose disk is full in the middle of turns: it is said, nothing is lost, and turns go on with room."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from chronicle.errors import Unavailable
from chronicle.journal.postgres import PostgresJournalStore
from chronicle.journal.verify import verify_session
from podium import AgentContext, BaseAgent, DeltaState
from podium.testing import AgentHarness
from tests.contract.postgres_server import PostgresServer, find_binaries, give_away, new_postgres
from tests.leftovers import new_directory
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from podium.testing import Exchange

pytestmark = [
    pytest.mark.skipif(find_binaries() is None, reason="PostgreSQL is not installed: make setup-tests"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system to fill"),
]

SEGMENT = 16 << 20
"""A file of the server's log."""


class Noter(BaseAgent):
    """It stores what nothing can compress, below the size from which on it would be a blob."""

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[State], _: dict[str, Any]) -> None:
        ctx.state.count += 1
        await ctx.send_message(os.urandom(24_000).hex())


@contextmanager
def small_disk(directory: Path, size: int) -> Iterator[Path]:
    """Mount a file system, which belongs to the server's user."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)
    try:
        give_away(directory)
        yield directory
    finally:
        wait_until(lambda: not subprocess.run(["umount", directory], check=False).returncode, "the disk is used")


def make_room(disk: Path) -> None:
    """Make a small disk a large one."""
    subprocess.run(["mount", "-o", "remount,size=256m", disk], check=True)


def move_to(disk: Path, directory: Path) -> None:
    """Move a directory to another disk, and leave a link in its place."""
    subprocess.run(["cp", "-a", directory, disk], check=True)
    shutil.rmtree(directory)
    directory.symlink_to(disk / directory.name)


async def until_it_waits(turns: asyncio.Task[list[Exchange]], log: pytest.LogCaptureFixture) -> None:
    """Return when a commit has no room; turns before it are answered."""
    async with asyncio.timeout(120):
        while "commit_outcome_unknown" not in log.text:
            assert not turns.done(), turns
            await asyncio.sleep(0.01)


async def talk(agent: AgentHarness, count: int) -> list[Exchange]:
    """Send messages, each of which is sent again until it is admitted, under one key."""
    answers = []
    for number in range(count):
        while True:
            with suppress(Unavailable):
                answers.append(await agent.send("more", idempotency_key=f"message {number}"))
                break
            await asyncio.sleep(0.05)
    return answers


def check(agent: AgentHarness, answers: list[Exchange]) -> None:
    """Check that each message was answered, and handled by one turn and in one attempt."""
    assert [answer.ok for answer in answers] == [True] * len(answers)
    assert agent.state == {"count": len(answers)}
    assert agent.events("turn.failed") == []
    report = verify_session(agent.store, agent.store.session(agent.address.name))
    assert report.ok, report.damage


async def test_a_turn_without_room_for_its_rows_waits_and_its_reason_is_said(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    with new_directory("full-disk-") as home:
        home.chmod(0o755)
        with small_disk(home / "tables", 3 << 20) as disk, psycopg.connect(server, autocommit=True) as db:
            db.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
            conninfo = f"{server} options='-c default_tablespace=small'"
            with closing(PostgresJournalStore(conninfo, schema="noted")) as store:
                async with AgentHarness(Noter, store=store) as agent, asyncio.TaskGroup() as group:
                    turns = group.create_task(talk(agent, 80))
                    await until_it_waits(turns, caplog)
                    assert "the disk of its server is full" in caplog.text
                    assert "No space left on device" in caplog.text
                    with pytest.raises(Unavailable, match="is full: make room on it"):
                        agent.admit(os.urandom(1 << 20).hex())
                    make_room(disk)
                    check(agent, await turns)
            db.execute("DROP SCHEMA noted CASCADE")
            db.execute("DROP TABLESPACE small")


async def test_a_server_that_its_full_disk_ends_goes_on_after_its_start(caplog: pytest.LogCaptureFixture) -> None:
    with new_postgres() as server:
        data = Path(server.host) / "data"
        with small_disk(Path(server.host) / "log-disk", 2 * SEGMENT + (4 << 20)) as disk:
            move_to(disk, data / "pg_wal")
            server.start()
            try:
                fill_log(server)
                with closing(PostgresJournalStore(server.conninfo, schema="noted")) as store:
                    async with AgentHarness(Noter, store=store) as agent, asyncio.TaskGroup() as group:
                        turns = group.create_task(talk(agent, 60))
                        await until_it_waits(turns, caplog)
                        make_room(disk)
                        with suppress(ProcessLookupError):  # it has ended, if it could not recover by itself
                            await asyncio.to_thread(server.kill)
                        await asyncio.to_thread(server.start)
                        check(agent, await turns)
                assert "PANIC" in (Path(server.host) / "log").read_text(), "there was room"
            finally:
                server.stop_at_once()


def fill_log(server: PostgresServer) -> None:
    """Write to the server's log until little is left of its second file."""
    with psycopg.connect(server.conninfo, autocommit=True) as db:
        db.execute("SELECT pg_switch_wal()")
        written = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
        while SEGMENT - int((db.execute(written).fetchone() or (0,))[0]) % SEGMENT > SEGMENT // 8:
            db.execute("SELECT pg_logical_emit_message(false, '', repeat('x', 100000))")
