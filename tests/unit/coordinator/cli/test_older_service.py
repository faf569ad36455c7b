"""A home of an earlier version whose service of that version still runs: its journal is not migrated under it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.journal.sqlite import schema
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.home import Home
from tests import next_format
from tests.golden.homes import extract

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose journal has an older format, and is at rest: what a crash left in its log is in its file."""
    home = extract("histories-1", tmp_path) / "home"
    next_format.use(monkeypatch.setattr)
    assert format_of(home) < schema.VERSION
    return home


def format_of(home: Path) -> int:
    """Return the format of a home's journal, as SQLite says; this brings the journal to rest."""
    with closing(sqlite3.connect(home / "journal.db")) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def files_of(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_a_command_that_writes_is_refused_until_the_service_has_ended(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, version = files_of(home), format_of(home)
    with Home(home).service_lock() as held:
        assert held
        assert main(["fold", "filer/ben", "--home", str(home)]) == ExitCode.UNAVAILABLE
        assert capsys.readouterr().err == (
            f"podium: {home}/journal.db has format {version} and is in use by an older version; end it, then try "
            "again; `podium down` ends the service\n"
        )
        assert files_of(home) == before
    assert main(["fold", "filer/ben", "--home", str(home)]) == ExitCode.OK
    assert "the history of filer/ben begins at turn" in capsys.readouterr().out
    assert format_of(home) == schema.VERSION
    assert (home / f"journal.db.v{version}.backup").exists()


def test_commands_that_read_say_who_upgrades_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(home)
    assert main(["state", "filer/ann", "--home", str(home)]) != ExitCode.OK
    assert "which is upgraded when it is opened to write" in capsys.readouterr().err
    assert files_of(home) == before


def test_the_service_of_this_version_migrates_it(home: Path) -> None:
    opened = Home(home)
    with opened.service_lock() as held:
        assert held
        opened.journal().close()
    assert format_of(home) == schema.VERSION
