"""The records of a home, in each place where a home may keep them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

import psycopg
import pytest

from chronicle.errors import Corrupt, Unavailable, UnsupportedFormat
from chronicle.journal.postgres.session_lock import SessionLock
from coordinator.access.caller import Scope, UnknownKey
from coordinator.access.quotas import Quota
from coordinator.home import Home
from coordinator.homes.opening import open_records
from coordinator.homes.postgres.records import PostgresHomeRecords
from coordinator.homes.sqlite.records import SqliteHomeRecords
from podium.errors import HomeError
from tests.contract.home_records import HomeRecordsContract, keep
from tests.unit.coordinator.models.recorded import record
from tests.waiting import wait_until

if TYPE_CHECKING:
    from coordinator.homes.records import HomeRecords


class TestSqlite(HomeRecordsContract):
    """In files beside the journal."""

    @pytest.fixture
    def records(self, tmp_path: Path) -> HomeRecords:
        """Those of a new home."""
        return SqliteHomeRecords(Home(tmp_path / "home").create())


def end_sessions(server: str) -> None:
    """End all sessions of the server's clients, and wait until they have ended."""
    of_others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"SELECT pg_terminate_backend(pid) {of_others}")
        wait_until(lambda: admin.execute(f"SELECT count(*) {of_others}").fetchone() == (0,), "sessions are left")


class TestPostgres(HomeRecordsContract):
    """In a schema of a PostgreSQL database."""

    @pytest.fixture
    def schema(self, request: pytest.FixtureRequest) -> str:
        """A schema of its own."""
        return f"records_{abs(hash(request.node.nodeid))}"

    @pytest.fixture
    def records(self, server: str, schema: str) -> HomeRecords:
        """Those of a new home."""
        return PostgresHomeRecords(server, schema, lambda: "abcdefgh2345", Path("/home"), create=True)

    def test_two_processes_open_a_new_schema_at_once(self, server: str, schema: str) -> None:
        made = [
            PostgresHomeRecords(server, schema, lambda: "abcdefgh2345", Path("/home"), create=True) for _ in range(4)
        ]
        with ThreadPoolExecutor(4) as pool:
            keys = list(pool.map(lambda records: records.keys().create("n", "acme", [Scope.READ], 1), made))
        assert len(made[0].keys().listed()) == len(keys) == 4

    def test_a_change_that_was_not_committed_is_none(self, records: PostgresHomeRecords) -> None:
        keys = records.keys()
        key, _ = keys.create("n", "acme", [Scope.READ], 1)
        before = keys.changes()
        with pytest.raises(UnknownKey):
            keys.create("m", "acme", [Scope.READ], 2, made_by="key_none")
        assert (keys.listed(), keys.changes()) == ([key], before)

    def test_a_connection_that_the_server_ended_is_made_again(self, server: str, records: PostgresHomeRecords) -> None:
        keys = records.keys()
        _, text = keys.create("n", "acme", [Scope.READ], 1)
        end_sessions(server)
        assert keys.find(text) is not None

    def test_a_newer_version_and_lost_tables_are_named(
        self, server: str, schema: str, records: PostgresHomeRecords
    ) -> None:
        records.documents().write("a", b"1")
        with psycopg.connect(server, autocommit=True) as other:
            other.execute(f"UPDATE {schema}.format SET (version, usable_from) = (2, 2)")
            with pytest.raises(UnsupportedFormat, match="the records of a home in schema .* has format 2"):
                PostgresHomeRecords(server, schema, lambda: "abcdefgh2345", Path("/home")).documents()
            other.execute(f"DROP TABLE {schema}.document")
        with pytest.raises(Corrupt, match="the records of a home in .* is damaged"):
            records.documents().read("a")
        assert "document" in records.damage()["records"]

    def test_a_row_that_cannot_be_read_is_damage(self, server: str, schema: str, records: PostgresHomeRecords) -> None:
        keep(records, record("call_1"))
        with psycopg.connect(server, autocommit=True) as other:
            other.execute(f"UPDATE {schema}.call SET attempts = 'nonsense'")
        assert list(records.damage()) == ["records"]

    def test_a_server_that_is_away(self) -> None:
        with pytest.raises(Unavailable, match="the records of a home in /nowhere/db schema podium"):
            PostgresHomeRecords("host=/nowhere dbname=db", "podium", lambda: "abcdefgh2345", Path("/home")).keys()

    def test_one_service_has_the_home_until_it_ends_or_its_connection_does(
        self, server: str, schema: str, records: PostgresHomeRecords
    ) -> None:
        other = PostgresHomeRecords(server, schema, lambda: "abcdefgh2345", Path("/other"))
        claim, others = records.service_claim(), other.service_claim()
        claim.hold()
        claim.hold()
        with pytest.raises(HomeError, match=r"has this home, podium \w{8} on .*:/home: end that one first"):
            others.hold()
        end_sessions(server)
        claim.hold()
        with pytest.raises(HomeError):
            others.hold()
        place = f"{gethostname()}:/home"
        name = f"podium {sha256(place.encode()).hexdigest()[:8]} on {place}"
        with psycopg.connect(server, autocommit=True, application_name=name) as earlier:
            claim.release()
            earlier.execute("SELECT pg_advisory_lock(x'43484a4c'::int, hashtext(%s))", (f"{schema} service",))
            claim = records.service_claim()
            claim.hold()  # in place of an earlier session of the same directory, which the server has still
        claim.release()
        others.hold()
        with pytest.raises(HomeError, match=":/other: end that one first"):
            records.service_claim().hold()
        others.release()

    def test_a_claim_that_is_released_while_it_is_looked_after_does_not_come_back(
        self, server: str, records: PostgresHomeRecords, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        claim, other = records.service_claim(), records.service_claim()
        claim.hold()

        def is_alive(_: object) -> bool:
            claim.release()  # as by another thread
            return False

        monkeypatch.setattr(SessionLock, "_is_alive", staticmethod(is_alive))
        with pytest.raises(Unavailable, match="was released"):
            claim.hold()
        with psycopg.connect(server) as db:
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            wait_until(lambda: db.execute(held).fetchone() == (0,), "the lock is held")
        monkeypatch.undo()
        other.hold()
        other.release()

    def test_directories_with_long_names_are_told_apart(self, server: str, schema: str) -> None:
        one, other = (
            PostgresHomeRecords(server, schema, lambda: "abcdefgh2345", Path("/d" * 40, name)).service_claim()
            for name in ("one", "other")
        )
        one.hold()
        with pytest.raises(HomeError, match="another service has this home"):
            other.hold()
        one.hold()
        one.release()

    def test_they_move_to_a_server_and_back(self, tmp_path: Path, records: PostgresHomeRecords) -> None:
        one = SqliteHomeRecords(Home(tmp_path / "one").create())
        with closing(one.keys()) as keys:
            key, text = keys.create("n", "acme", [Scope.READ], 1)
            keys.set_quotas({"acme": Quota(agents=1)})
        made = [record(f"call_{number:04}", started_ms=number) for number in range(1100)]
        keep(one, *made)
        records.receive(one)
        assert records.keys().find(text) == key
        assert records.keys().quotas() == {"acme": Quota(agents=1)}
        assert records.call_log().latest(None, 2000) == made[::-1]
        back = SqliteHomeRecords(Home(tmp_path / "back").create())
        back.receive(records)
        with closing(back.keys()) as keys:
            assert keys.find(text) == key
            assert keys.quotas() == {"acme": Quota(agents=1)}
        assert back.call_log().count(None) == 1100

    def test_what_was_never_kept_is_not_made(self, tmp_path: Path, records: PostgresHomeRecords) -> None:
        home = Home(tmp_path / "one").create()
        SqliteHomeRecords(home).receive(records)
        assert not list(home.path.glob("*.db"))


def test_a_copy_has_all_but_the_documents(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    records = open_records(home)
    with closing(records.keys()) as keys:
        _, text = keys.create("n", "acme", [Scope.READ], 1)
        keep(records, record("call_1"))
        copy = tmp_path / "copy"
        copy.mkdir()
        copied = open_records(Home(copy))
        Home(copy).take_id(home.id)
        copied.receive(records)
    with closing(copied.keys()) as keys:
        assert keys.find(text) is not None
    assert copied.call_log().latest(None, 9) == [record("call_1")]
    assert copied.damage() == {}


def test_reading_creates_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    before = sorted(home.path.iterdir())
    records = open_records(home)
    assert records.quotas() is None
    assert records.call_log().latest(None, 9) == []
    assert records.documents().read("quarantine.json") is None
    assert records.damage() == {}
    assert sorted(home.path.iterdir()) == before
