"""Workspace paths of agents: who may lock them, and what a new owner finds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from chronicle.errors import Conflict, StaleEpoch
from coordinator.home import Home
from coordinator.host.node.path_locks import PathLocks, PathOwner, clear_path
from coordinator.host.node.workspace_paths import WorkspacePaths
from podium.address import Address
from podium.errors import HomeError

ALICE = Address("hello", "alice")


def test_a_path_depends_on_the_home_and_the_address_alone(tmp_path: Path) -> None:
    home_id = Home(tmp_path / "home").create().id
    path = WorkspacePaths(Path("/tmp"), home_id).of(ALICE)
    assert len(str(path)) == 37
    assert path == WorkspacePaths(Path("/tmp"), home_id).of(Address.parse("hello/alice"))
    assert path != WorkspacePaths(Path("/tmp"), home_id).of(Address("hello", "bob"))
    assert len(str(WorkspacePaths(Path("/tmp"), home_id).of(Address("a" * 64, "ß" * 128)))) == 37
    moved = (tmp_path / "home").rename(tmp_path / "moved")
    assert WorkspacePaths(Path("/tmp"), Home(moved).create().id).of(ALICE) == path
    assert Home(tmp_path / "other").create().id != home_id


def test_a_copy_of_a_home_has_the_same_id_and_another_identity(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    shutil.copytree(home.path, tmp_path / "copy")
    (tmp_path / "link").symlink_to(home.path)
    copy = Home(tmp_path / "copy").create()
    assert copy.id == home.id
    assert copy.identity != home.identity
    assert Home(tmp_path / "link").create().identity == home.identity
    before = home.identity
    assert Home(home.path.rename(tmp_path / "moved")).create().identity == before


def test_a_home_of_an_older_version_gets_an_id_once(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    (tmp_path / "id").unlink()
    with pytest.raises(HomeError, match="has no id yet"):
        _ = home.id
    assert home.create().id == Home(tmp_path).create().id
    (tmp_path / "id").write_text("../../etc\n")
    with pytest.raises(HomeError, match="is not a home id"):
        _ = home.id


def test_the_directory_is_this_users_alone(tmp_path: Path) -> None:
    paths = WorkspacePaths(tmp_path, "home")
    paths.create()
    paths.create()
    assert paths.directory.stat().st_mode & 0o777 == 0o700
    paths.directory.chmod(0o755)
    with pytest.raises(HomeError, match="is accessible to others"):
        paths.create()
    paths.directory.rmdir()
    paths.directory.symlink_to(tmp_path)
    with pytest.raises(HomeError, match="PODIUM_WORKSPACES"):
        paths.create()
    with pytest.raises(HomeError, match="cannot be created"):
        WorkspacePaths(tmp_path / "none", "home").create()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_that_another_user_made_first_is_refused(tmp_path: Path) -> None:
    paths = WorkspacePaths(tmp_path, "home")
    paths.create()
    os.chown(paths.directory, 65534, 65534)
    with pytest.raises(HomeError, match="belongs to another user"), paths.claimed(tmp_path / "a"):
        pass


def test_a_copy_of_a_home_is_refused_while_the_service_of_the_other_runs(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    shutil.copytree(home.path, tmp_path / "copy")
    copy = Home(tmp_path / "copy").create()
    assert copy.id == home.id
    paths = WorkspacePaths(tmp_path, home.id)
    with paths.claimed(home.path):
        paths.check(home.path)
        (tmp_path / "link").symlink_to(home.path)
        paths.check(tmp_path / "link")
        with pytest.raises(HomeError, match=r"copy.*have the same id.*remove .*copy/id"):
            paths.check(copy.path)
        with pytest.raises(HomeError, match="have the same id"), paths.claimed(copy.path):
            pass
    paths.check(copy.path)
    with paths.claimed(copy.path):
        pass
    assert not paths.directory.exists()
    (copy.path / "id").unlink()
    assert copy.create().id != home.id


def test_a_killed_service_releases_its_claim(tmp_path: Path) -> None:
    paths = WorkspacePaths(tmp_path, "home")
    script = "import os, sys; from pathlib import Path\n"
    script += "from coordinator.host.node.workspace_paths import WorkspacePaths\n"
    script += "with WorkspacePaths(Path(sys.argv[1]), 'home').claimed(Path('/one')): os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=Path(__file__).parents[4], check=False)
    assert paths.directory.exists()
    with paths.claimed(Path("/other")):
        assert (paths.directory / "home").read_text() == "/other\n"


def test_a_path_has_one_owner_at_a_time(tmp_path: Path) -> None:
    locks = PathLocks(tmp_path, "home")
    path = Path("/somewhere/alice")
    first = PathOwner("host_1", 3, str(ALICE), "home")
    with ExitStack() as held:
        note = locks.acquire(path, first)
        held.callback(os.close, note)
        with pytest.raises(StaleEpoch):
            locks.acquire(path, PathOwner("host_0", 2, str(ALICE), "home"))
        with pytest.raises(Conflict, match="have the same workspace path"):
            locks.acquire(path, replace(first, agent="hello/bob", host_id="host_9"))
        with locks.releasing(path, "host_1") as mine:
            assert not mine, "its process lives"
    with locks.releasing(path, "host_0") as mine:
        assert not mine
    os.close(locks.acquire(path, PathOwner("host_2", 4, str(ALICE), "home")))
    with locks.releasing(path, "host_1") as mine:
        assert not mine, "it has a new owner"
    with locks.releasing(path, "host_2") as mine:
        assert mine
    assert list(tmp_path.iterdir()) == []
    with locks.releasing(path, "host_2") as mine:
        assert not mine


def test_a_note_says_whose_home_it_is_of(tmp_path: Path) -> None:
    path = Path("/somewhere/alice")
    os.close(PathLocks(tmp_path, "home").acquire(path, PathOwner("host_1", 1, str(ALICE), "home")))
    with PathLocks(tmp_path, "copy").releasing(path, "host_1") as owner:
        assert owner is not None
        assert owner.home == "home"


def test_a_note_that_was_cut_short_hinders_nobody(tmp_path: Path) -> None:
    (tmp_path / "alice").write_text('{"host_id": "ho')
    os.close(PathLocks(tmp_path, "home").acquire(Path("/somewhere/alice"), PathOwner("host_1", 1, str(ALICE), "home")))
    assert '"host_1"' in (tmp_path / "alice").read_text()


def test_what_was_written_where_nothing_was_mounted_is_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "alice"
    clear_path(path, "host_1")
    path.mkdir()
    clear_path(path, "host_1")
    assert list(tmp_path.iterdir()) == [path]
    (path / "ghost").write_text("written by path")
    clear_path(path, "host_1")
    assert not path.exists()
    assert (tmp_path / "alice.left-host_1" / "ghost").read_text() == "written by path"
    path.symlink_to(tmp_path)
    clear_path(path, "host_1")
    assert not path.is_symlink()
    assert tmp_path.exists()
