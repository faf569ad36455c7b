"""A database that may have gone back is noticed, by what it says of itself and by what a node has seen of it."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest

from chronicle.clock import ManualClock
from coordinator.homes.generation import Generation, least_epoch, read_generation
from coordinator.homes.postgres.database import open_schema
from coordinator.homes.postgres.generation import PostgresGeneration
from coordinator.homes.postgres.records import PostgresHomeRecords
from tests.contract.postgres_server import PostgresServer, new_postgres
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("caplog")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with new_postgres() as server:
        server.start()
        yield server
        server.stop_at_once()


class Node:
    """A directory of a home, and the home's records in a schema of a server."""

    def __init__(self, directory: Path, schema: str, conninfo: str) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.records = PostgresHomeRecords(conninfo, schema, lambda: "home", directory, create=True)

    def check(self) -> Generation:
        """Check as a process does that has just started."""
        generation = self.records.generation_watch().check()
        assert read_generation(self.records.documents()) == generation
        return generation


@pytest.fixture
def schema() -> str:
    return f"home_{uuid4().hex}"


@pytest.fixture
def node(server: PostgresServer, schema: str, tmp_path: Path) -> Node:
    return Node(tmp_path / "one", schema, server.conninfo)


def restored(node: Node, server: PostgresServer, schema: str) -> Node:
    """Restore a server's backup; return the node with connections to it as it is now."""
    server.stop()
    server.restore()
    server.start()
    return Node(node.directory, schema, server.conninfo)


def write(server: PostgresServer, size_bytes: int) -> None:
    """Have a server write to its log."""
    with psycopg.connect(server.conninfo, autocommit=True) as db:
        db.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', %s))", (size_bytes,))
        db.execute("CREATE TABLE IF NOT EXISTS synced (n int)")
        db.execute("INSERT INTO synced VALUES (1)")


def test_restarts_and_crashes_change_nothing(node: Node, server: PostgresServer, schema: str) -> None:
    assert node.check() == Generation()
    write(server, 100_000)
    assert node.check() == Generation()
    server.kill()
    server.start()
    again = Node(node.directory, schema, server.conninfo)
    assert again.check() == Generation()
    server.stop()
    server.start()
    assert Node(node.directory, schema, server.conninfo).check() == Generation()
    assert least_epoch(Generation()) == 0


def test_a_restored_database_begins_a_generation(
    node: Node, server: PostgresServer, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node.check()
    server.back_up()
    write(server, 1000)
    node.check()
    node = restored(node, server, schema)
    found = node.check()
    assert found.number == 2
    assert found.why is not None
    assert found.why.endswith("it was restored")
    assert node.check() == found, "once"
    assert Node(tmp_path / "other", schema, server.conninfo).check() == found, (
        "a new directory has it from the database"
    )
    assert least_epoch(found) == 1 << 32
    assert caplog.text.count("generation_raised") == 1


def test_a_restored_database_that_has_gone_on_is_noticed_by_its_record(
    node: Node, server: PostgresServer, schema: str
) -> None:
    node.check()
    server.back_up()
    write(server, 2_000_000)
    node.check()
    node = restored(node, server, schema)
    write(server, 20_000_000)
    found = node.check()
    assert found.number == 2
    assert "has an older record of the home" in str(found.why)


def test_a_database_without_its_record_begins_a_generation(node: Node, server: PostgresServer, schema: str) -> None:
    """As after the restore of a dump that is older than the record."""
    node.check()
    with psycopg.connect(server.conninfo, autocommit=True) as db:
        db.execute(f'DELETE FROM "{schema}".document')
    assert node.check().number == 2


def test_a_promoted_standby_begins_a_generation(node: Node, server: PostgresServer, schema: str) -> None:
    """Whatever it lacks: its log may be as long as the primary's was. A new directory notices it, too."""
    node.check()
    with new_postgres(server) as standby:
        standby.start()
        try:
            hosts = f"host={server.host},{standby.host} target_session_attrs=read-write"
            both = f"{hosts} user=journal dbname=postgres"
            write(server, 1000)
            wait_until(lambda: standby.has_all_of(server), "the standby did not follow")
            assert Node(node.directory, schema, both).check() == Generation()
            server.kill()
            standby.promote()
            found = Node(node.directory.with_name("new"), schema, both).check()
            assert found.number == 2
            assert "of timeline 2" in str(found.why)
            assert Node(node.directory, schema, both).check() == found
        finally:
            standby.stop_at_once()
            server.start()


def test_a_damaged_file_of_a_node_is_written_again(node: Node) -> None:
    node.check()
    (node.directory / "generation").write_text("{")
    assert node.check() == Generation()
    assert json.loads((node.directory / "generation").read_text())["generation"]["number"] == 1


@pytest.mark.parametrize("ahead_ms", [-60_000, 60_000])
def test_a_skewed_clock_is_reported_once(
    server: PostgresServer, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, ahead_ms: int
) -> None:
    records = open_schema(server.conninfo, schema, create=True)
    with closing(records):
        PostgresGeneration(records, tmp_path).check()
        assert "clock_skew" not in caplog.text
        watch = PostgresGeneration(records, tmp_path, ManualClock(time.time_ns() // 1_000_000 + ahead_ms))
        for _ in range(3):
            assert watch.check() == Generation()
    assert caplog.text.count("clock_skew") == 1
    assert f"ahead_of_database_s={'-' if ahead_ms < 0 else ''}" in caplog.text


def test_a_role_without_privileges_may_look(server: PostgresServer, schema: str, tmp_path: Path) -> None:
    role = f"role_{uuid4().hex[:8]}"
    with psycopg.connect(server.conninfo, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN")
        db.execute(f"GRANT CREATE ON DATABASE postgres TO {role}")
    conninfo = server.conninfo.replace("user=journal", f"user={role}")
    assert Node(tmp_path / "its", schema, conninfo).check() == Generation()
