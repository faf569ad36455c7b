"""Garbage is collected all the time while processes commit, fork and read: nothing that is reachable is ever missing.

The grace is a few seconds here and an hour in use: a commit must be in the journal within the grace after its blobs
are. Processes say how long their commits took; where the machine was too slow for the grace, it is doubled and all is
done again.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.errors import ChronicleError
from chronicle.repository import Repository
from chronicle.repository.maintenance import _reached, verify

CHECKOUT = Path(__file__).parents[3]
ROLES = ["write", "write", "fork", "read"]


def race(repository: Repository, grace_s: float, seconds: float) -> tuple[int, int, float]:
    """Let processes work while this one collects; return the packs dropped, the work done, and the slowest commit.

    If commits took too long for the grace, whatever failed for it is none of the tested code's faults.
    """
    with repository.used("first") as workspace:
        workspace.write("file0", b"first\n")
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.crash.blobs.gc_work",
                role,
                str(repository.directory),
                f"{role}{n}",
                str(seconds),
            ],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n, role in enumerate(ROLES)
    ]
    dropped = 0
    failures: list[object] = []
    try:
        while any(process.poll() is None for process in processes):
            try:
                dropped += collect(repository.blobs_url, lambda: _reached(repository), GcRules(grace_s=grace_s)).dropped
            except ChronicleError as error:
                failures.append(error)
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()
    told = [process.communicate(timeout=60) for process in processes]
    failures.extend(said for process, (_, said) in zip(processes, told, strict=True) if process.returncode != 0)
    numbers = [line.split() for line, _ in told]
    slowest_s = max(float(slowest) for _, slowest in numbers)
    assert not failures or not is_in_time(slowest_s, grace_s), failures
    return dropped, sum(int(done) for done, _ in numbers), slowest_s


def is_in_time(slowest_s: float, grace_s: float) -> bool:
    """Whether commits were fast enough for the grace, with room for what is not measured of them."""
    return slowest_s < grace_s / 2


def go_on_until_in_time(tmp_path: Path, seconds: float) -> None:
    grace_s = 2.0
    for attempt in range(4):
        repository = Repository(tmp_path / f"store{attempt}")
        dropped, done, slowest_s = race(repository, grace_s, max(seconds, 4 * grace_s))
        if is_in_time(slowest_s, grace_s):
            break
        grace_s *= 2
    else:
        pytest.fail(f"commits take {slowest_s} s on this machine")
    checks = list(verify(repository))
    assert [check for check in checks if check.problem is not None] == []
    assert len(checks) > len(ROLES)
    assert dropped > 0
    assert done > len(ROLES)


def test_collecting_while_others_work(tmp_path: Path) -> None:
    go_on_until_in_time(tmp_path, 12)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_collecting_for_minutes_while_others_work(tmp_path: Path) -> None:
    go_on_until_in_time(tmp_path, 180)
