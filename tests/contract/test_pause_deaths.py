"""An agent whose turns pause dies around each call that writes the journal: of the pause, the answer, what goes on.

The journals are a file and a real PostgreSQL server. Each paused turn gets two answers at once, of which one is taken
and is in the state, whatever died in between; the chain verifies. `turn_work` has the checks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.test_journal_postgres import url_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/journal.db"
    return url_of(request.getfixturevalue("server"), "pauses")


@pytest.mark.timeout(300)
def test_ended_around_each_call_that_writes_the_journal(url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.turn.turn_work", "pauses", tmp_path, url],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    turns = [int(number) for number in done.stdout.split()]
    assert turns == sorted(turns)
    assert turns[-1] > len(turns) // 2 > 8, "the pause, the answer and the turn are several calls"
