"""Garbage is collected all the time while mounts are written, committed, forked, read and killed: nothing is missing.

`tests/crash/blobs/test_gc_race.py` does so with workspaces in process. Here are real mounts, on two nodes, whose
servers are killed with SIGKILL, as are the processes that commit and those that collect and merge. In the end every
commit is compared with what was written down of it, and read and hashed.

The grace is some seconds here and an hour in use: a commit must be in the journal within the grace after its blobs are.
Processes say how long their commits took; where the machine was too slow for that, all is done again with twice the
grace.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Unavailable
from chronicle.fuse.mountpoints import availability, mounts
from chronicle.fuse.server.client import list_mounts
from chronicle.fuse.zygote import launcher
from chronicle.repository import Repository
from chronicle.repository import mounts as mounting
from chronicle.repository.maintenance import collect_garbage, verify
from chronicle.testing.workspace_contract import files_in
from tests.crash.blobs.gc_work import body
from tests.fuse.conftest import wait_for_end
from tests.fuse.gc_mount_work import MAIN, Records, lines_of, main_mount, socket_elsewhere, store_of

if TYPE_CHECKING:
    from chronicle.fuse.mountpoints.availability import Transport

CHECKOUT = Path(__file__).parents[3]
ROLES = ["write", "read", "fork", "elsewhere"]
KILLS = 4
"""Of one mount's servers in `KILLS_S`; one whose servers die more often is given up."""
KILLS_S = 31.0
DEADLINE_S = 120
"""For processes to end when their time is over."""


@dataclass
class Told:
    """What came of a race, all processes together."""

    done: Counter[str] = field(default_factory=Counter)
    """Role → pieces of its work."""
    slowest_s: float = 0.0
    """Of all commits, from the first attempt on."""
    collected: Counter[str] = field(default_factory=Counter)
    """Packs ``dropped`` and ``merged``, and collections ``killed``."""
    killed_servers: int = 0

    def is_enough(self) -> bool:
        collected = self.collected
        return (
            all(self.done[role] > 1 for role in ROLES)
            and collected["dropped"] > 5
            and collected["merged"] > 5
            and collected["killed"] > 1
            and self.killed_servers > 5
        )


def is_in_time(told: Told, grace_s: float) -> bool:
    """Whether commits were fast enough for the grace, with room for what is not measured of them."""
    return told.slowest_s < grace_s / 2


class Race:
    def __init__(self, directory: Path, seconds: float, grace_s: float) -> None:
        self.directory = directory
        self.grace_s = grace_s
        self.until = time.monotonic() + seconds
        self.random = random.Random(seconds)
        self.sockets = [store_of(directory).socket, socket_elsewhere(directory)]
        self.killed: dict[str, list[float]] = {}
        self.killed_servers = 0
        self.processes = {role: self.start(role, grace_s) for role in (*ROLES, "collect")}

    def start(self, role: str, grace_s: float) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.fuse.gc_mount_work", role, str(self.directory), str(grace_s)],
            cwd=CHECKOUT,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self) -> Told:
        """Let processes work, and kill what serves them, for a while and until enough came of it."""
        processes = self.processes.values()
        deadline = self.until + DEADLINE_S
        try:
            while time.monotonic() < self.until or not self.told().is_enough():
                if any(process.poll() is not None for process in processes):
                    break
                assert time.monotonic() < deadline, f"they get nowhere: {self.told()}"
                time.sleep(self.random.uniform(0.1, 0.6))
                self.kill_a_server()
            (self.directory / "stop").touch()
            while any(process.poll() is None for process in processes) and time.monotonic() < deadline + DEADLINE_S:
                time.sleep(0.01)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGABRT)  # it prints its stacks and ends
            said = {role: process.communicate(timeout=DEADLINE_S)[1] for role, process in self.processes.items()}
        failed = [f"{role}:\n{said[role]}" for role, process in self.processes.items() if process.returncode != 0]
        told = self.told()
        # What failed as commits took too long for the grace is done again; see above.
        assert not failed or not is_in_time(told, self.grace_s), "\n".join(failed)
        return told

    def told(self) -> Told:
        told = Told(killed_servers=self.killed_servers)
        for path in self.directory.glob("told-*"):
            for numbers in lines_of(path):
                told.slowest_s = max(told.slowest_s, numbers.pop("commit_s", 0))
                told.done[path.name.removeprefix("told-")] += numbers.pop("done", 0)
                told.collected.update(numbers)
        return told

    def kill_a_server(self) -> None:
        found = []
        for socket in self.sockets:
            with suppress(Unavailable):
                found += list_mounts(socket)
        now = time.monotonic()
        for mount in self.random.sample(found, len(found)):
            deaths = self.killed.setdefault(str(mount["mountpoint"]), [])
            pid = mount["pid"]
            assert isinstance(pid, int)
            if pid and sum(death > now - KILLS_S for death in deaths) < KILLS:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    deaths.append(now)
                    self.killed_servers += 1
                return


def race(directory: Path, seconds: float, grace_s: float, transport: Transport) -> Told:
    directory.mkdir()
    repository = store_of(directory)
    mounting.mount(repository, MAIN, main_mount(directory), with_caller=True, transport=transport)
    try:
        told = Race(directory, seconds, grace_s).run()
        print(told)
    finally:
        pid = launcher.is_running(repository.socket)
        launcher.shut_down(repository.socket)
        if pid is not None:
            wait_for_end(pid)
        mounts.unmount_all_under(directory)
        print((repository.socket.parent / "log").read_text())
    return told


def check_all(repository: Repository, directory: Path) -> None:
    """See that every commit is what it was meant to be, and can be read, also when all garbage is gone."""
    for alone in (False, True):
        if alone:
            assert collect_garbage(repository, alone=True).damaged == []
        assert [check.problem for check in verify(repository) if check.problem is not None] == []
    records = Records(directory).read()
    with repository.blobs(kept=False) as blobs:
        seen: dict[str, dict[str, bytes | str | None]] = {}
        for workspace in repository.workspaces():
            for commit in repository.commits(workspace):
                if commit.ref.tree_id not in seen:
                    seen[commit.ref.tree_id] = files_in(blobs, commit.ref.tree_id)
                expected = {path: body(seed) for path, seed in records[workspace, commit.turn].items()}
                assert seen[commit.ref.tree_id] == expected, f"{workspace}@{commit.turn}"


def go_on_until_in_time(tmp_path: Path, seconds: float, transport: Transport) -> None:
    grace_s = 2.0
    for attempt in range(4):
        directory = tmp_path / f"attempt{attempt}"
        told = race(directory, max(seconds, 3 * grace_s), grace_s, transport)
        if is_in_time(told, grace_s):
            break
        grace_s *= 2
    else:
        pytest.fail(f"commits take {told.slowest_s} s on this machine")
    check_all(store_of(directory), directory)


@pytest.mark.timeout(600)
def test_collecting_while_mounts_are_used_and_killed(tmp_path: Path) -> None:
    go_on_until_in_time(tmp_path, 6, availability.DEFAULT_TRANSPORT)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_collecting_for_minutes_while_mounts_are_used_and_killed(tmp_path: Path, transport: Transport) -> None:
    go_on_until_in_time(tmp_path, 120, transport)
