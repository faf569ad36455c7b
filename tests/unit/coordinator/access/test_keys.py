"""Keys: how they are made, found, revoked and authenticated, and what is recorded of them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import Corrupt, InvalidInput, StorageRefused, UnsupportedFormat
from chronicle.ids import IdSource
from coordinator.access.audit import Audit
from coordinator.access.caller import (
    ANYONE,
    Caller,
    ExpiredKey,
    KeyOfAnotherHome,
    MissingKey,
    NotPermitted,
    Scope,
    TooManyRequests,
    UnknownKey,
    with_implied,
)
from coordinator.access.key_access import KeyAccess
from coordinator.access.keys import home_tag
from coordinator.access.lifetimes import seconds_of
from coordinator.access.local_key import ensure_local_key, read_local_key
from coordinator.access.quotas import Quota
from coordinator.access.rates import Rates
from coordinator.homes.sqlite.file import RecordsFile
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from podium.address import Address
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IDS = IdSource()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def file_of(keys: SqliteKeyRecords) -> RecordsFile:
    """Return the open file of keys."""
    assert isinstance(keys._database, RecordsFile)
    return keys._database


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[SqliteKeyRecords]:
    store = SqliteKeyRecords(tmp_path, "home1", IDS)
    yield store
    store.close()


def header(text: str) -> str:
    return f"Bearer {text}"


def test_a_key_is_found_by_its_text_alone(keys: SqliteKeyRecords, tmp_path: Path) -> None:
    key, text = keys.create("ci", "acme", [Scope.READ], 5, expires_ms=9)
    assert text.startswith(key.prefix)
    assert len(text) - len(key.prefix) >= 30
    assert keys.find(text) == key
    assert (key.name, key.tenant, key.scopes, key.created_ms, key.expires_ms) == (
        "ci",
        "acme",
        frozenset({Scope.READ}),
        5,
        9,
    )
    assert keys.find(text[:-1] + ("a" if text[-1] != "a" else "b")) is None
    assert text.encode() not in (tmp_path / "access.db").read_bytes()


def test_the_file_is_readable_for_its_owner_only(keys: SqliteKeyRecords, tmp_path: Path) -> None:
    keys.create("n", "default", [Scope.READ], 1)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_opening_the_file_again_leaves_the_locks_of_this_process(keys: SqliteKeyRecords, tmp_path: Path) -> None:
    """A close of any descriptor of a file releases all POSIX locks that the process has on it (fcntl(2))."""
    write = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    with keys._database.writing():
        SqliteKeyRecords(tmp_path, "home1", IDS).close()
        other = subprocess.run(
            [sys.executable, "-c", write, str(tmp_path / "access.db")], capture_output=True, text=True, check=False
        )
    assert "database is locked" in other.stderr


def test_a_file_without_a_write_ahead_log_gets_one(tmp_path: Path) -> None:
    SqliteKeyRecords(tmp_path, "home1", IDS).close()
    with closing(sqlite3.connect(tmp_path / "access.db")) as db:
        assert db.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    (tmp_path / "access.db-sums").unlink()
    with closing(SqliteKeyRecords(tmp_path, "home1", IDS)) as keys:
        key, text = keys.create("n", "default", [Scope.READ], 1)
        assert keys.find(text) == key
    with closing(sqlite3.connect(tmp_path / "access.db")) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_full_disk_is_named(keys: SqliteKeyRecords) -> None:
    (pages,) = file_of(keys)._writer.execute("PRAGMA page_count").fetchone()
    file_of(keys)._writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageRefused, match="full"):
        keys.create("n" * 100_000, "default", [Scope.READ], 1)
    file_of(keys)._writer.execute("PRAGMA max_page_count = 100000")
    assert keys.create("n", "default", [Scope.READ], 2)[0] in keys.listed()


def test_expired_tokens_are_removed(keys: SqliteKeyRecords) -> None:
    _, token = keys.create("t", "default", [Scope.READ], 1, expires_ms=5, agent=Address("a", "b"))
    assert keys.find(token) is not None
    keys.create("n", "default", [Scope.READ], 5)
    assert keys.find(token) is None


def test_files_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "access.db").write_text("not a database, but long enough to look like one" * 40)
    with pytest.raises(Corrupt, match="access.db is damaged"):
        SqliteKeyRecords(tmp_path, "home1", IDS)
    (tmp_path / "access.db").unlink()
    with closing(sqlite3.connect(tmp_path / "access.db")) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(Corrupt, match="not a database of keys"):
        SqliteKeyRecords(tmp_path, "home1", IDS)
    (tmp_path / "access.db").unlink()
    SqliteKeyRecords(tmp_path, "home1", IDS).close()
    with closing(sqlite3.connect(tmp_path / "access.db")) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version = {version + 1}")
    (tmp_path / "access.db-sums").unlink()
    with pytest.raises(UnsupportedFormat, match=f"format {version + 1}, and this code reads up to {version}$"):
        SqliteKeyRecords(tmp_path, "home1", IDS).close()


def test_quotas_are_replaced(keys: SqliteKeyRecords) -> None:
    keys.set_quotas({"acme": Quota(agents=3), "zeta": Quota()})
    keys.set_quotas({"acme": Quota(agents=4, messages_per_minute=60)})
    assert keys.quotas() == {"acme": Quota(agents=4, messages_per_minute=60)}


# -- authentication ----------------------------------------------------------------------------------------------------


async def test_a_key_gives_a_caller(keys: SqliteKeyRecords, clock: ManualClock) -> None:
    access = KeyAccess(keys, clock)
    key, text = keys.create("n", "acme", [Scope.WRITE], 1)
    expected = Caller(key.key_id, frozenset({Scope.READ, Scope.ANSWER, Scope.WRITE}), None, "acme")
    assert await access.authenticate(header(text)) == expected
    assert await access.authenticate(f"bearer   {text} ") == expected
    _, token = keys.create("t", "acme", [Scope.READ], 1, agent=Address("a", "b", "acme"))
    assert (await access.authenticate(header(token))).agent == Address("a", "b", "acme")
    await access.close()


@pytest.mark.parametrize(
    ("authorization", "error"),
    [
        (None, MissingKey),
        ("", MissingKey),
        ("Bearer", MissingKey),
        ("Bearer   ", MissingKey),
        ("Basic dXNlcjpwYXNz", MissingKey),
        ("Bearer secret", UnknownKey),
        ("Bearer pk_é", UnknownKey),
        ("Bearer pk_", UnknownKey),
        (f"Bearer pk_{home_tag('home2')}{'a' * 36}", KeyOfAnotherHome),
        (f"Bearer pk_{home_tag('home1')}{'a' * 36}", UnknownKey),
        (f"Bearer pk_{home_tag('home1')}{'a' * 10_000}", UnknownKey),
    ],
)
async def test_what_is_no_key(
    keys: SqliteKeyRecords, clock: ManualClock, authorization: str | None, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        await KeyAccess(keys, clock).authenticate(authorization)
    assert "aaaa" not in str(caught.value)


async def test_a_key_expires(keys: SqliteKeyRecords, clock: ManualClock) -> None:
    access = KeyAccess(keys, clock)
    _, text = keys.create("n", "default", [Scope.READ], 1, expires_ms=clock.now_ms() + 1000)
    await access.authenticate(header(text))
    clock.advance(1.0)
    with pytest.raises(ExpiredKey, match="expired"):
        await access.authenticate(header(text))
    await access.close()


async def test_a_revoked_key_is_refused_at_once_by_every_process(
    keys: SqliteKeyRecords, clock: ManualClock, tmp_path: Path
) -> None:
    access = KeyAccess(keys, clock)
    key, text = keys.create("n", "default", [Scope.READ], 1)
    own, own_text = keys.create("m", "default", [Scope.READ], 1)
    for each in (text, own_text):
        await access.authenticate(header(each))
    await access.close()
    with closing(SqliteKeyRecords(tmp_path, "home1", IDS)) as other:
        other.revoke(key.key_id)
    keys.revoke(own.key_id)
    for each in (text, own_text):
        with pytest.raises(UnknownKey, match="revoked"):
            await access.authenticate(header(each))


async def test_the_last_use_is_recorded_once_a_minute(keys: SqliteKeyRecords, clock: ManualClock) -> None:
    access = KeyAccess(keys, clock)
    _, text = keys.create("n", "default", [Scope.READ], 1)
    first_ms = clock.now_ms()
    for seconds in (0.0, 1.0, 58.0):
        clock.advance(seconds)
        await access.authenticate(header(text))
        await access.close()
        assert keys.listed()[0].last_used_ms == first_ms
    clock.advance(2.0)
    await access.authenticate(header(text))
    await access.close()
    assert keys.listed()[0].last_used_ms == clock.now_ms()


async def test_no_request_waits_for_a_writer(keys: SqliteKeyRecords, clock: ManualClock, tmp_path: Path) -> None:
    access = KeyAccess(keys, clock)
    used, unused = (keys.create("n", "default", [Scope.READ], 1)[1] for _ in range(2))
    await access.authenticate(header(used))
    await access.close()

    async def authenticate_all() -> None:
        clock.advance(61.0)
        for text in (used, unused):
            assert (await access.authenticate(header(text))).tenant == "default"
        with pytest.raises(UnknownKey):
            await access.authenticate(header(used[:-1] + ("a" if used[-1] != "a" else "b")))
        await access.close()

    with closing(sqlite3.connect(tmp_path / "access.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("DELETE FROM key")
        await authenticate_all()
        # Nor for one of this process, which waits for the other one.
        creating = asyncio.create_task(asyncio.to_thread(keys.create, "m", "default", [Scope.READ], 2))
        await until(file_of(keys)._write_guard.locked)
        await authenticate_all()
        other.execute("ROLLBACK")
    assert keys.listed()[0].last_used_ms != clock.now_ms(), "uses are not recorded meanwhile"
    assert (await creating)[0] in keys.listed()
    await authenticate_all()
    assert keys.listed()[0].last_used_ms == clock.now_ms()


async def test_a_key_has_a_limit_of_requests(keys: SqliteKeyRecords, clock: ManualClock) -> None:
    access = KeyAccess(keys, clock, Rates(per_s=0.5, burst=3, clock=clock))
    texts = [keys.create("n", "default", [Scope.READ], 1)[1] for _ in range(2)]
    for _ in range(3):
        await access.authenticate(header(texts[0]))
    with pytest.raises(TooManyRequests) as caught:
        await access.authenticate(header(texts[0]))
    assert caught.value.retry_after_s == 2
    await access.authenticate(header(texts[1]))
    clock.advance(2.0)
    await access.authenticate(header(texts[0]))
    await access.close()


# -- scopes ------------------------------------------------------------------------------------------------------------


def test_scopes_imply_those_before_them() -> None:
    assert with_implied([]) == frozenset()
    assert with_implied([Scope.READ]) == {Scope.READ}
    assert with_implied([Scope.ANSWER]) == {Scope.ANSWER}
    assert with_implied([Scope.WRITE]) == {Scope.READ, Scope.ANSWER, Scope.WRITE}
    assert with_implied([Scope.ADMIN, Scope.READ]) == frozenset(Scope)


def test_what_a_caller_may_do() -> None:
    caller = Caller("key_1", with_implied([Scope.WRITE]), None, "acme")
    caller.require(Scope.WRITE, Address("a", "b", "acme"))
    caller.require(Scope.READ)
    for scope, address in ((Scope.ADMIN, None), (Scope.READ, Address("a", "b")), (Scope.READ, Address("a", "b", "z"))):
        with pytest.raises(NotPermitted):
            caller.require(scope, address)
    token = Caller("tok_1", with_implied([Scope.READ]), Address("a", "b", "acme"), "acme")
    token.require(Scope.READ, Address("a", "b", "acme"))
    for scope, address in (
        (Scope.WRITE, Address("a", "b", "acme")),
        (Scope.READ, None),
        (Scope.READ, Address("a", "c", "acme")),
    ):
        with pytest.raises(NotPermitted):
            token.require(scope, address)
    ANYONE.require_operator()
    for who in (caller, token, Caller("key_2", frozenset(Scope), None, "acme")):
        with pytest.raises(NotPermitted):
            who.require_operator()


# -- the local key, durations, the audit record ------------------------------------------------------------------------


def test_the_local_key_is_made_once(keys: SqliteKeyRecords, tmp_path: Path) -> None:
    assert read_local_key(tmp_path) is None
    text = ensure_local_key(tmp_path, keys, 1)
    assert text is not None
    assert read_local_key(tmp_path) == text
    assert stat.S_IMODE((tmp_path / "local.key").stat().st_mode) == 0o600
    assert ensure_local_key(tmp_path, keys, 2) is None
    (key,) = keys.listed()
    assert (key.name, key.tenant, key.scopes) == ("local", "default", frozenset({Scope.ADMIN}))
    keys.revoke(key.key_id)
    again = ensure_local_key(tmp_path, keys, 3)
    assert again not in (None, text)
    assert read_local_key(tmp_path) == again


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("15m", 900), ("12h", 43_200), (" 90d", 7_776_000)])
def test_durations(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "d", "0d", "-1d", "1.5h", "1w", "99999d", "٣d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a duration"):
        seconds_of(text)


def test_the_audit_record(tmp_path: Path, clock: ManualClock) -> None:
    audit = Audit(tmp_path / "logs", clock)
    audit.note("key_1", "key.create", tenant="acme", key_id="key_2", client="127.0.0.1")
    audit.note(None, "agent.delete", agent="a/b", outcome="UnknownAgent")
    file = tmp_path / "logs" / "audit.log"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0] == {
        "ts": lines[0]["ts"],
        "who": "key_1",
        "tenant": "acme",
        "what": "key.create",
        "agent": None,
        "outcome": "ok",
        "client": "127.0.0.1",
        "key_id": "key_2",
    }
    assert (lines[1]["who"], lines[1]["agent"], lines[1]["outcome"]) == (None, "a/b", "UnknownAgent")


def test_buckets_are_forgotten_when_there_are_too_many(clock: ManualClock) -> None:
    rates = Rates(per_s=1, burst=1, clock=clock)
    assert rates.take("first") == 0
    assert rates.take("first") == 1
    for number in range(10_000):
        rates.take(str(number))
    assert rates.take("first") == 0


def test_a_link_loses_what_the_key_of_its_token_has_lost(keys: SqliteKeyRecords, tmp_path: Path) -> None:
    agent = Address("a", "b")
    maker, _ = keys.create("n", "default", [Scope.WRITE], 1)
    token, _ = keys.create("t", "default", [Scope.WRITE], 1, agent=agent, made_by=maker.key_id)
    link, text = keys.create(
        "l", "default", [Scope.ANSWER], 1, agent=agent, made_by=token.key_id, claims={"run": "msg_1"}, link=True
    )
    assert keys.find(text) == link
    with sqlite3.connect(tmp_path / "access.db") as db:  # no command does it; a later version may
        db.execute("UPDATE key SET scopes = 'read' WHERE key_id = ?", (maker.key_id,))
    db.close()
    found = keys.find(text)
    assert found is not None
    assert found.scopes == frozenset()
