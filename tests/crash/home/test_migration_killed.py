"""``podium migrate`` is killed before each of its writes: the home is whole in one place, and a second call ends it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from coordinator.access.caller import Scope
from coordinator.home import Home
from coordinator.homes.identity import read_identity
from coordinator.homes.opening import create_home, open_records, records_at
from coordinator.migration import move_home
from podium.errors import HomeError
from tests.contract.home_records import keep
from tests.contract.test_home_in_postgres import url_of
from tests.s3_server import BUCKET, S3Server, point_at
from tests.unit.coordinator.cli.cli_home import HomeMaker
from tests.unit.coordinator.models.recorded import record

if TYPE_CHECKING:
    pass

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in a directory, with an agent, a key, a call and a document."""
    made = HomeMaker(tmp_path / "home")
    agent = made.agent("counter/a")
    for number in range(2):
        agent.turn(f"turn {number}", {"out.txt": f"text {number}".encode()})
    agent.admit("still to come")
    records = open_records(Home(made.path))
    keep(records, record("call_1"))
    with closing(records.keys()) as keys:
        keys.create("n", "acme", [Scope.READ], 1)
    records.documents().write("quarantine.json", b"{}")
    made.close()
    return made.path


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_before_a_write(
    home: Path, server: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    point_at(monkeypatch, s3.endpoint, tmp_path / "cache")
    journal_url, blobs_url = url_of(server, f"home_{uuid4().hex}"), f"s3://{BUCKET}/{uuid4().hex}"
    before = content_of(Home(home))
    work = [sys.executable, "-m", "tests.crash.home.migration_work", str(home), journal_url, blobs_url, str(step)]
    ended = subprocess.run(work, cwd=ROOT, capture_output=True, timeout=500, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    writes = [line.split() for line in ended.stdout.splitlines()]
    states = [check(tmp_path, stop, f"{journal_url}_{stop}", f"{blobs_url}-{stop}", before) for stop, *_ in writes]
    assert states == sorted(states, key=["new", "moving", "switched"].index)
    assert set(states) == {"new", "moving", "switched"}
    if step == 1:
        kinds = {kind for _, kind, *_ in writes}
        assert kinds == {"os.mkdir", "os.rename", "os.remove", "write", "create", "execute", "delete"}


def content_of(home: Home) -> list[object]:
    """Return what a home has, wherever it is."""
    with closing(home.journal(create=False, read_only=True)) as store:
        sessions = store.sessions()
        found: list[object] = [*sessions, *(store.head(session.main_branch_id) for session in sessions)]
        found += [store.pending(session.session_id) for session in sessions]
    records = open_records(home)
    with closing(records.keys()) as keys:
        found += [keys.listed()]
    return [*found, records.call_log().latest(None, 9), records.documents().read("quarantine.json")]


def check(tmp_path: Path, stop: str, journal_url: str, blobs_url: str, before: list[object]) -> str:
    """Check what a kill left, and that the next call ends the move; return how far it was."""
    home, new = Home(tmp_path / f"home-{stop}").open(), Home(tmp_path / f"new-{stop}")
    assert content_of(home) == before
    found = read_identity(records_at(journal_url, lambda: home.id, home.path).documents(), journal_url)
    assert found is None or (found.home_id == home.id and found.is_moving)
    if found is not None:
        with pytest.raises(HomeError, match=f"the home {home.id} is being moved to postgresql://"):
            create_home(new, blobs_url, journal_url)
    state = "new" if found is None else "switched" if home.is_shared else "moving"
    move_home(home, journal_url, blobs_url, lambda _: None)
    moved = Home(home.path).open()
    assert (moved.journal_url, moved.blobs_url) == (journal_url, blobs_url)
    assert content_of(moved) == before
    assert not list((home.path / "blobs").iterdir())
    assert {"journal.db", "access.db", "models.db", "quarantine.json", "blobs"} <= {
        path.name for path in (home.path / "moved").iterdir()
    }
    assert list((home.path / "moved" / "blobs").iterdir())
    assert not {path.name for path in home.path.iterdir()} & {"journal.db", "access.db", "models.db", "quarantine.json"}
    assert create_home(new, journal_url=journal_url).id == home.id
    return state
