"""A PostgreSQL that is reached by TLS with a password, which is changed while a journal is open."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from chronicle.errors import Unavailable
from chronicle.journal.postgres import PostgresJournalStore
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract import Writer
from tests.certificates import write_certificate
from tests.contract.postgres_server import find_binaries, give_away, new_postgres
from tests.s3_server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.postgres_server import PostgresServer

pytestmark = pytest.mark.skipif(find_binaries() is None, reason="PostgreSQL is not installed: make setup-tests")

ADDRESS = "127.0.0.1"
RULES = "hostssl all keeper all scram-sha-256\nhostnossl all keeper all reject\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """A server that lets one user in by TLS and a password only."""
    monkeypatch.setenv("PGPORT", str(free_port()))
    with new_postgres(address=ADDRESS) as server:
        data = Path(server.host) / "data"
        write_certificate(data / "server.crt", data / "server.key", address=ADDRESS)
        for name in ("server.crt", "server.key"):
            give_away(data / name)
            (data / name).chmod(0o600)
        rules = data / "pg_hba.conf"
        rules.write_text(RULES + rules.read_text())
        with (data / "postgresql.conf").open("a") as settings:
            settings.write("ssl = on\n")
        server.start()
        try:
            set_password(server, "first")
            yield server
        finally:
            server.stop_at_once()


def set_password(server: PostgresServer, password: str) -> None:
    """Make the user, or change its password."""
    with psycopg.connect(server.conninfo, autocommit=True) as db:
        found = db.execute("SELECT 1 FROM pg_roles WHERE rolname = 'keeper'").fetchone()
        db.execute(f"{'ALTER' if found else 'CREATE'} ROLE keeper LOGIN SUPERUSER PASSWORD '{password}'".encode())


def end_connections(server: PostgresServer) -> None:
    """Have the server end those of the user."""
    with psycopg.connect(server.conninfo, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'keeper'")


def test_a_changed_password_is_read_again_and_the_server_proves_itself(server: PostgresServer, tmp_path: Path) -> None:
    passwords, trusted = tmp_path / "passwords", Path(server.host) / "data" / "server.crt"
    passwords.touch(mode=0o600)
    passwords.write_text("*:*:*:keeper:first\n")
    place = f"host={ADDRESS} user=keeper dbname=postgres passfile={passwords}"
    verified = f"{place} sslmode=verify-full sslrootcert={trusted}"
    with closing(PostgresJournalStore(verified, schema="kept")) as store:
        writer = Writer.on(store)
        writer.turns(1)
        with psycopg.connect(server.conninfo) as db:
            query = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'keeper'"
            assert db.execute(query).fetchone() == (True,)
        set_password(server, "second")
        end_connections(server)
        with pytest.raises(Unavailable, match="password authentication failed"):
            store.head(writer.session.main_branch_id)
        passwords.write_text("*:*:*:keeper:second\n")
        writer.turns(1)
        assert verify_session(store, writer.session).ok
    with pytest.raises(Unavailable, match="no pg_hba.conf entry|rejects connection"):
        PostgresJournalStore(f"{place} sslmode=disable", schema="kept")
    other = tmp_path / "other.crt"
    write_certificate(other, tmp_path / "other.key", address=ADDRESS)
    with pytest.raises(Unavailable, match="certificate verify failed"):
        PostgresJournalStore(f"{place} sslmode=verify-full sslrootcert={other}", schema="kept")
