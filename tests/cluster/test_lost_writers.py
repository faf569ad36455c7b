"""A machine that loses its power in the middle of a transaction: what it has locked is free again."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from chronicle.journal.postgres.database import PostgresDatabase
from chronicle.journal.postgres.schema import JOURNAL
from tests.cluster.machines import new_network
from tests.contract.postgres_server import new_postgres
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys, time
from chronicle.journal.postgres.database import PostgresDatabase
from chronicle.journal.postgres.schema import JOURNAL
with PostgresDatabase(sys.argv[1], "journal", JOURNAL, 1).writing() as db:
    db.execute("LOCK TABLE branch")
    db.wait()
    print("locked", flush=True)
    time.sleep(100_000)
"""


def test_the_server_ends_the_transaction_of_a_machine_that_has_lost_its_power(tmp_path: Path) -> None:
    with new_network(tmp_path / "machines") as network:
        server, writer = network.add("db", "writer")
        with new_postgres(address=server.address) as postgres, server.network():
            postgres.start()
            try:
                conninfo = f"host={server.address} user=journal dbname=postgres"
                with closing(PostgresDatabase(conninfo, "journal", JOURNAL, 1)) as database:
                    writer.start("python", "-c", PROGRAM, conninfo)
                    wait_until(lambda: "locked" in (writer.directory / "log").read_text())
                    writer.lose_power()
                    with database.writing() as db:
                        db.execute("SET LOCAL lock_timeout TO '100s'")
                        db.execute("LOCK TABLE branch")
            finally:
                postgres.stop_at_once()
