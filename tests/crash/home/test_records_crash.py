"""Records of a home in PostgreSQL that several processes write: these are killed, and so is the server."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from coordinator.homes.postgres.records import PostgresHomeRecords
from tests.contract.postgres_server import PostgresServer, new_postgres
from tests.crash.home.records_work import HOME_ID, check_quotas
from tests.waiting import DEADLINE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
WORKERS = 4
FEW_LINES = 20
KILLS = 6


@pytest.fixture(scope="module")
def new_server() -> Iterator[PostgresServer]:
    with new_postgres() as server:
        yield server


@pytest.fixture
def server(new_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that the test may stop and start."""
    new_server.start()
    yield new_server
    new_server.stop_at_once()


@dataclass
class Worker:
    """A process that writes, and what it was answered."""

    log: Path
    process: subprocess.Popen[str]

    def lines(self) -> list[list[str]]:
        """Return the whole lines of its log."""
        text = self.log.read_text() if self.log.exists() else ""
        return [line.split() for line in text.split("\n")[:-1]]

    def wait_for(self, lines: int) -> None:
        """Wait until it was answered so often."""

        def is_further() -> bool:
            assert self.process.poll() is None, self.process.communicate()[1]
            return len(self.lines()) >= lines

        wait_until(is_further, "a process does not go on")


class Crowd:
    """Processes that write at the same time.

    Args:
        server: where they write.
        directory: for their logs.
    """

    def __init__(self, server: PostgresServer, directory: Path) -> None:
        self._server = server
        self._directory = directory
        self._schema = f"home_{uuid4().hex}"
        self.workers: list[Worker] = []

    def begin(self) -> Worker:
        """Start one more."""
        number = len(self.workers) + 1
        name = f"worker{number}"
        work = [sys.executable, "-m", "tests.crash.home.records_work", self._server.conninfo, self._schema]
        process = subprocess.Popen(
            [*work, str(self._directory), name, str(number)], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        self.workers.append(Worker(self._directory / name, process))
        return self.workers[-1]

    def end(self) -> None:
        """Have those that live end; they found nothing wrong."""
        (self._directory / "enough").touch()
        for worker in self.workers:
            if worker.process.returncode is None:
                _, errors = worker.process.communicate(timeout=DEADLINE_S)
                assert worker.process.returncode == 0, errors

    def check(self) -> None:
        """Check that all is there that was answered, and whole."""
        records = PostgresHomeRecords(self._server.conninfo, self._schema, lambda: HOME_ID, self._directory)
        assert records.damage() == {}
        keys, documents = records.keys(), records.documents()
        check_quotas(keys)
        assert keys.quotas()
        calls = {call.call_id for call in records.call_log().latest(None, 1_000_000)}
        answered = 0
        for worker in self.workers:
            said: dict[str, list[str]] = {}
            for kind, value in worker.lines():
                said.setdefault(kind, []).append(value)
                answered += kind != "revoking"
            for text in said.get("key", []):
                if text not in said.get("revoking", []):
                    assert keys.find(text) is not None, "an answered key is lost"
            for text in said.get("revoked", []):
                assert keys.find(text) is None, "a revoked key is there"
            assert set(said.get("call", [])) <= calls
            if "document" in said:
                written = documents.read(worker.log.name)
                assert written is not None
                name, turn = written.decode().split()
                assert (name, int(turn) >= int(said["document"][-1])) == (worker.log.name, True)
        common = documents.read("common")
        assert common is not None
        assert common.decode().split()[0] in {worker.log.name for worker in self.workers}
        assert keys.changes() > answered // 4


@contextmanager
def crowd(server: PostgresServer, directory: Path) -> Iterator[Crowd]:
    """Lend processes; those that still run at the end are killed."""
    made = Crowd(server, directory)
    with ExitStack() as ending:
        for _ in range(WORKERS):
            ending.callback(made.begin().process.kill)
        yield made


def test_processes_that_are_killed_lose_nothing_and_hinder_nobody(server: PostgresServer, tmp_path: Path) -> None:
    chance = random.Random(1)
    with crowd(server, tmp_path) as made:
        for _ in range(KILLS):
            living = [worker for worker in made.workers if worker.process.returncode is None]
            victim = chance.choice(living)
            victim.wait_for(len(victim.lines()) + chance.randrange(1, FEW_LINES))
            victim.process.kill()
            victim.process.communicate(timeout=DEADLINE_S)
            made.begin()
        for worker in made.workers:
            if worker.process.returncode is None:
                worker.wait_for(len(worker.lines()) + FEW_LINES)
        made.end()
        made.check()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_was_away_has_all_that_it_answered(server: PostgresServer, tmp_path: Path, how: str) -> None:
    with crowd(server, tmp_path) as made:
        for _ in range(2):
            for worker in made.workers:
                worker.wait_for(len(worker.lines()) + FEW_LINES)
            getattr(server, how)()
            server.start()
        for worker in made.workers:
            worker.wait_for(len(worker.lines()) + FEW_LINES)
        made.end()
        made.check()
