"""``podium upgrade`` on a home in a directory, whose journal is of an older format."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from chronicle.journal.sqlite import schema
from coordinator.cli.exits import ExitCode
from coordinator.gateway_record import gateway_lock
from coordinator.home import Home
from coordinator.homes.opening import open_records
from tests import next_format
from tests.contract.home_records import keep
from tests.next_format import OLDER
from tests.unit.coordinator.cli.cli_home import HomeMaker, Podium
from tests.unit.coordinator.models.recorded import record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def podium(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Podium:
    """A home with an agent, keys and calls."""
    made = HomeMaker(tmp_path / "home")
    made.agent("counter/a").turn("one", {"out.txt": b"one"})
    made.close()
    records = open_records(Home(made.path))
    records.keys().close()
    keep(records, record("call_1"))
    return Podium(made.path, capsys)


def formats(podium: Podium, *arguments: str) -> dict[str, tuple[int, int | None, bool]]:
    parts = podium.json("upgrade", *arguments)["parts"]
    return {part["name"]: (part["format"], part["newer"], part["is_additive"]) for part in parts}


def test_a_home_of_this_format_is_left_as_it_is(podium: Podium) -> None:
    found = {"directory": (1, None, False), "journal": (OLDER, None, False)}
    found |= {"keys": (1, None, False), "calls": (1, None, False)}
    assert formats(podium) == formats(podium, "--yes") == found
    assert "journal.db" in podium("upgrade")
    assert "all parts have the formats of this podium" in podium.err
    Home(podium.home / "new").create()
    assert formats(Podium(podium.home / "new", podium._capsys)) == {"directory": (1, None, False)}


def test_an_older_journal_is_upgraded_after_a_backup(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    next_format.use(monkeypatch.setattr)
    before = (podium.home / "journal.db").read_bytes()
    assert formats(podium)["journal"] == (OLDER, OLDER + 1, False)
    assert f"to {OLDER + 1}, alone" in podium("upgrade")
    assert "nothing was changed; podium upgrade --yes upgrades them" in podium.err
    assert (podium.home / "journal.db").read_bytes() == before
    with Home(podium.home).service_lock():
        podium("upgrade", "--yes", code=ExitCode.HOME_ERROR)
        assert "runs: end it first (podium down)" in podium.err
    with gateway_lock(Home(podium.home)):
        podium("upgrade", "--yes", code=ExitCode.GATEWAY_RUNS)
    assert formats(podium)["journal"] == (OLDER, OLDER + 1, False)
    upgraded = podium.json("upgrade", "--yes")
    assert upgraded["upgraded"]
    assert formats(podium)["journal"] == (schema.VERSION, None, False)
    assert (podium.home / f"journal.db.v{OLDER}.backup").exists()
    with closing(Home(podium.home).journal(read_only=True)) as store:
        assert [session.name for session in store.sessions()] == ["counter/a"]
    assert podium("cat", "counter/a", "out.txt") == "one"


def test_a_newer_part_is_refused(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        next_format.use(patched.setattr)
        podium("upgrade", "--yes")
    podium("upgrade", code=ExitCode.HOME_TOO_NEW)
    assert f"format {OLDER + 1}, and this code reads up to {OLDER}; upgrade podium" in podium.err
