"""Commits of a mounted workspace whose process dies on the way, or that come together with other commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import Conflict
from chronicle.fuse.server.client import FuseWorkspace, list_mounts
from chronicle.fuse.zygote import launcher
from chronicle.repository import Repository, commit_writer, mounts, store_directory
from chronicle.repository import repository as repository_module
from tests.fuse.conftest import end_service, wait_for_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.canonical import Json

CHECKOUT = Path(__file__).parents[3]
DEADLINE_S = 60
DIES = """
import os, signal, sys
from pathlib import Path
from chronicle.fuse.server.client import FuseWorkspace
from chronicle.repository import Repository
adopt = FuseWorkspace.adopt
def die(workspace, ref):
    if sys.argv[2] == "after":
        adopt(workspace, ref)
    os.kill(os.getpid(), signal.SIGKILL)
FuseWorkspace.adopt = die
Repository(Path(sys.argv[1])).commit("main", "its process dies before the mount hears all of it")
"""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    repository = Repository(tmp_path / "store")
    mounts.mount(repository, "main", tmp_path / "mnt", with_caller=True)
    yield repository
    end_service(repository.socket, tmp_path)


def turns(root: Path, count: int) -> list[str]:
    return [(root / ".chronicle" / "turn" / str(turn) / "file").read_text() for turn in range(1, count + 1)]


@pytest.mark.parametrize("then", ["commit", "diff", "restore"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_process_dies_around_the_adoption_is_a_turn_like_others(
    repository: Repository, tmp_path: Path, when: str, then: str
) -> None:
    root = tmp_path / "mnt"
    (root / "file").write_text("one")
    repository.commit("main", "first")
    (root / "file").write_text("two")
    command = [sys.executable, "-c", DIES, str(repository.directory), when]
    assert subprocess.run(command, cwd=CHECKOUT, timeout=DEADLINE_S, check=False).returncode == -signal.SIGKILL
    assert [commit.turn for commit in repository.commits("main")] == [1, 2]
    if then == "diff":
        with repository.compared("main", "2", "now") as (_, changes):
            assert changes == []
    elif then == "restore":
        assert len(repository.restore("main", "1")) == 1
    (root / "file").write_text("three")
    committed = repository.commit("main", "third")
    assert committed is not None
    assert committed.turn == 3
    assert turns(root, 3) == ["one", "two", "three"]
    rows: list[dict[str, Json]] = json.loads((root / ".chronicle" / "query" / "file").read_text())
    assert [row["op"] for row in rows if row["turn"] == 2] == ["write"]
    assert rows[-1]["turn"] == 3


def test_what_compares_waits_for_a_commit(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "mnt"
    (root / "file").write_text("one")
    repository.commit("main", "first")
    (root / "file").write_text("two")
    found = []

    def compare() -> None:
        with Repository(repository.directory).compared("main", "last", "now") as (_, changes):
            found.append(len(changes))

    other = threading.Thread(target=compare)
    put_into_the_journal = commit_writer.put_commit

    def commit(*arguments: object) -> object:
        (root / "file").write_text("three")
        other.start()
        other.join(0.5)  # time enough to come between, if it does not wait
        return put_into_the_journal(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(commit_writer, "put_commit", commit)
        repository.commit("main", "second")
    other.join(DEADLINE_S)
    assert found == [1]
    repository.commit("main", "third")
    assert turns(root, 3) == ["one", "two", "three"]


@pytest.mark.parametrize("opens", ["open_layer", "open_api_workspace"])
def test_what_is_opened_on_the_last_commit_is_opened_on_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: str
) -> None:
    repository = Repository(tmp_path / "store")
    with repository.used("main") as workspace:
        workspace.write("file", b"one")
    repository.commit("main", "first")
    with repository.used("main") as workspace:
        workspace.write("file", b"two")

    def commit() -> None:
        with suppress(Conflict):  # by then it is in use
            Repository(repository.directory).commit("main", "second")

    other = threading.Thread(target=commit)
    open_it = getattr(repository_module, opens)

    def open_later(*arguments: object) -> object:
        if other.ident is None:
            other.start()
            other.join(0.5)  # time enough to come between, if it does not wait
        return open_it(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(repository_module, opens, open_later)
        with repository.opened("main") if opens == "open_layer" else repository.used("main") as opened:
            assert [item.op for item in opened.history("file")] == ["write", "write"]
    other.join(DEADLINE_S)
    repository.commit("main", "second")
    assert repository.workspaces() == ["main"]
    with repository.used("main") as workspace:
        assert workspace.read("file") == b"two"
    assert len(repository.commits("main")) == 2


def test_of_several_who_mount_a_workspace_one_does(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "store")
    told: list[str] = []

    def mount(number: int) -> None:
        try:
            mounts.mount(Repository(repository.directory), "main", tmp_path / f"mnt{number}", with_caller=True)
            told.append("mounted")
        except Conflict as error:
            told.append(str(error))

    several = [threading.Thread(target=mount, args=(number,)) for number in range(4)]
    for one in several:
        one.start()
    for one in several:
        one.join(DEADLINE_S)
    (listed,) = list_mounts(repository.socket)
    at = str(listed["mountpoint"])
    assert sorted(told) == ["mounted", *[f"workspace 'main' is mounted at {at} already; unmount it first"] * 3]
    Path(at, "file").write_text("one")
    pid = launcher.is_running(repository.socket)
    assert pid is not None
    mounts.unmount(repository, Path(at))
    wait_for_end(pid)


def test_who_looks_while_it_is_being_mounted_looks_through_the_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "store")
    with repository.used("main") as workspace:
        workspace.write("file", b"one")
    begun = threading.Event()
    mount_it = mounts._mount

    def mount_slowly(*arguments: Any, **options: Any) -> None:
        begun.set()
        time.sleep(0.3)
        mount_it(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(mounts, "_mount", mount_slowly)
        other = threading.Thread(target=lambda: mounts.mount(repository, "main", tmp_path / "mnt", with_caller=True))
        other.start()
        assert begun.wait(DEADLINE_S)
        with Repository(repository.directory).opened("main") as opened:
            assert isinstance(opened, FuseWorkspace)
            assert len(opened.history("file")) == 1
        other.join(DEADLINE_S)
    pid = launcher.is_running(repository.socket)
    assert pid is not None
    mounts.unmount(repository, tmp_path / "mnt")
    wait_for_end(pid)


def test_waiting_for_a_workspace_makes_none(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "store")
    repository.create()
    with repository.workspace_lock("main"):
        pass
    assert not repository.is_unseen("main"), "nothing was ever written to it"


def test_nobody_waits_for_good(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_directory, "_TURN_DEADLINE_S", 0.1)
    with repository.workspace_lock("main"):
        with pytest.raises(Conflict, match="been committing, comparing, reading or mounting 'main' for 0 s; wait"):
            repository.commit("main", "never")
        with repository.opened("main") as opened:
            assert isinstance(opened, FuseWorkspace), "who only looks need not wait"
    assert repository.commits("main") == []
