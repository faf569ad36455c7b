"""A turn of thirty steps with files, killed after each of them: the same end, each step run once.

Garbage is collected between the attempts, and the node is lost twice: the trees of steps are what it goes on from.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chronicle.fuse.mountpoints import availability

needs_mounts = pytest.mark.skipif(availability.available() is not None, reason="mounts are not available here")
ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["directory", pytest.param("mount", marks=needs_mounts)])
def test_the_end_is_that_of_a_turn_that_nothing_killed(tmp_path: Path, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.turn.step_work", tmp_path, kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr
