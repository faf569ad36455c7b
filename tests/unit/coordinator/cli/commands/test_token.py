"""``podium token``."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import SystemClock
from coordinator.access.caller import Caller, Scope
from coordinator.access.key_access import KeyAccess
from coordinator.access.local_key import ensure_local_key
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.home import Home
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from podium.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


@pytest.fixture
def keys(home: Home) -> Iterator[SqliteKeyRecords]:
    with closing(SqliteKeyRecords(home.path, home.id)) as keys:
        ensure_local_key(home.path, keys, 1)
        yield keys


def created(home: Home, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["token", "create", *arguments, "--home", str(home.path), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_token_with_claims(home: Home, keys: SqliteKeyRecords, capsys: pytest.CaptureFixture[str]) -> None:
    before_ms = SystemClock().now_ms()
    made = created(home, capsys, "notes/alice", "--scope", "write", "--claims", '{"sub": "ann"}')
    assert before_ms + 900_000 <= made["expires_at"] <= SystemClock().now_ms() + 900_000
    assert (made["agent"], made["scopes"], made["claims"]) == (
        "notes/alice",
        ["read", "answer", "write"],
        {"sub": "ann"},
    )

    async def authenticated() -> Caller:
        access = KeyAccess(keys, SystemClock())
        try:
            return await access.authenticate(f"Bearer {made['token']}")
        finally:
            await access.close()

    caller = asyncio.run(authenticated())
    assert (caller.key_id, caller.claims, caller.agent) == (
        made["token_id"],
        {"sub": "ann"},
        Address("notes", "alice"),
    )
    (line,) = [json.loads(line) for line in (home.logs / "audit.log").read_text().splitlines()]
    (local,) = keys.listed()
    assert (line["what"], line["who"], line["key_id"]) == ("token.create", local.key_id, made["token_id"])
    keys.revoke(local.key_id)
    assert keys.find(made["token"]) is None


def test_a_token_ends_with_the_key_that_is_named(
    home: Home, keys: SqliteKeyRecords, capsys: pytest.CaptureFixture[str]
) -> None:
    maker, _ = keys.create("app", "acme", [Scope.ADMIN], 1, expires_ms=SystemClock().now_ms() + 5_000)
    arguments = ("acme:notes/alice", "--made-by", maker.key_id, "--expires", "1d")
    assert created(home, capsys, *arguments)["expires_at"] == maker.expires_ms
    assert main(["token", "create", *arguments, "--home", str(home.path)]) == 0
    text = capsys.readouterr().out.strip()
    assert keys.find(text) is not None
    keys.revoke(maker.key_id)
    assert keys.find(text) is None


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("notes/alice", "--scope", "admin"), ExitCode.USAGE, "read, answer or write"),
        (("notes/alice", "--scope", "root"), ExitCode.USAGE, "read, answer or write"),
        (("notes/alice", "--expires", "2d"), ExitCode.USAGE, "86400 seconds"),
        (("notes/alice", "--claims", "ann"), ExitCode.USAGE, "JSON"),
        (("notes/alice", "--claims", "[1]"), ExitCode.USAGE, "a JSON object"),
        (("notes/alice", "--claims", json.dumps({"sub": "x" * 1024})), ExitCode.USAGE, "at most 1024 bytes"),
        (("notes",), ExitCode.INVALID_ADDRESS, "notes"),
        (("acme:notes/alice",), ExitCode.ACCESS_REFUSED, "tenant default"),
        (("notes/alice", "--made-by", "key_none"), ExitCode.NOT_FOUND, "podium keys list"),
        (("notes/alice", "--made-by", "READER"), ExitCode.ACCESS_REFUSED, "scope admin"),
    ],
)
def test_what_is_refused(
    home: Home,
    keys: SqliteKeyRecords,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: ExitCode,
    says: str,
) -> None:
    reader, _ = keys.create("reader", "default", [Scope.READ], 1)
    given = [reader.key_id if each == "READER" else each for each in arguments]
    assert main(["token", "create", *given, "--home", str(home.path)]) == code
    assert says in capsys.readouterr().err


def test_without_a_local_key_one_has_to_be_named(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "create", "notes/alice", "--home", str(home.path)]) == ExitCode.NOT_FOUND
    assert "--made-by" in capsys.readouterr().err
