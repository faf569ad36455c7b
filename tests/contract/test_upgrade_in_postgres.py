"""``podium upgrade`` on a home in PostgreSQL, with made-up next formats of its schemas."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from chronicle.journal.postgres.schema import JOURNAL, Migration
from chronicle.testing.journal_contract import Writer
from coordinator.access.caller import Scope
from coordinator.cli.exits import ExitCode
from coordinator.home import Home
from coordinator.homes.opening import create_home, open_records
from coordinator.homes.postgres.database import _RECORDS
from tests.contract.test_home_in_postgres import url_of
from tests.s3_server import BUCKET, S3Server, point_at
from tests.unit.coordinator.cli.cli_home import Podium

if TYPE_CHECKING:
    from chronicle.journal.postgres.schema import SchemaKind

KINDS = {"journal": ("chronicle.journal.postgres.store.JOURNAL", JOURNAL)}
KINDS |= {"records": ("coordinator.homes.postgres.database._RECORDS", _RECORDS)}


@pytest.fixture
def home(server: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of the older format, with a session and a key."""
    point_at(monkeypatch, s3.endpoint, tmp_path / "cache")
    url = url_of(server, f"home_{uuid4().hex}")
    home = create_home(Home(tmp_path / "home"), f"s3://{BUCKET}/{uuid4().hex}", url)
    with closing(home.journal()) as store:
        Writer.on(store).turns(1)
    open_records(home).keys().create("n", "acme", [Scope.READ], 1)
    return home


@pytest.fixture
def podium(home: Home, capsys: pytest.CaptureFixture[str]) -> Podium:
    return Podium(home.path, capsys)


def use_next(monkeypatch: pytest.MonkeyPatch, name: str, *, is_additive: bool) -> None:
    """Have this process use a made-up next format of the journal or the records, with one table more."""
    place, kind = KINDS[name]
    monkeypatch.setattr(place, next_of(kind, is_additive=is_additive))


def next_of(kind: SchemaKind, *, is_additive: bool) -> SchemaKind:
    table = "CREATE TABLE colour (name TEXT)"
    tables = f"{kind.tables.rstrip().rstrip(';')};\n{table};"
    migrations = {**kind.migrations, kind.version: Migration(f"{table};", is_additive=is_additive)}
    return replace(kind, version=kind.version + 1, tables=tables, migrations=migrations)


def formats(podium: Podium, *arguments: str) -> dict[str, tuple[int, int | None]]:
    parts = podium.json("upgrade", *arguments)["parts"]
    return {part["name"]: (part["format"], part["newer"]) for part in parts}


def test_a_home_of_this_format_is_left_as_it_is(podium: Podium) -> None:
    found = {"directory": (2, None), "journal": (JOURNAL.version, None), "records": (1, None), "identity": (1, None)}
    assert formats(podium) == formats(podium, "--yes") == found


@pytest.mark.parametrize("name", ["journal", "records"])
def test_what_is_not_additive_is_upgraded_when_nothing_uses_the_home(
    home: Home, podium: Podium, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    this = KINDS[name][1].version
    elsewhere = create_home(Home(home.path.with_name("elsewhere")), journal_url=home.journal_url)
    claim = open_records(elsewhere).service_claim()
    claim.hold()
    use_next(monkeypatch, name, is_additive=False)
    assert formats(podium)[name] == (this, this + 1)
    assert f"to {this + 1}, alone" in podium("upgrade")
    podium("ps" if name == "journal" else "models", code=ExitCode.HOME_ERROR)
    assert "podium upgrade" in podium.err
    podium("upgrade", "--yes", code=ExitCode.HOME_ERROR)
    assert "another service has this home, podium" in podium.err
    assert formats(podium)[name] == (this, this + 1)
    claim.release()
    podium("upgrade", "--yes")
    assert formats(podium)[name] == (this + 1, None)
    assert open_records(home).keys().listed()
    with closing(home.journal()) as store:
        assert store.sessions()


@pytest.mark.parametrize("name", ["journal", "records"])
def test_what_is_additive_is_upgraded_while_older_versions_run(
    home: Home, podium: Podium, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    this = KINDS[name][1].version
    with home.service_lock():
        claim = open_records(home).service_claim()
        claim.hold()
        with monkeypatch.context() as patched:
            use_next(patched, name, is_additive=True)
            assert f"to {this + 1}, additive" in podium("upgrade")
            podium("upgrade", "--yes")
            assert formats(podium)[name] == (this + 1, None)
        assert formats(podium)[name] == (this + 1, None), "this one knows the older format only"
        open_records(home).keys().create("n", "acme", [Scope.READ], 1)
        with closing(home.journal()) as store:
            Writer.on(store, "hello/bob").turns(1)
        claim.release()
