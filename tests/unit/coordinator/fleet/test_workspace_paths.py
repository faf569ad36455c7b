"""Places of agents: their paths, who may have them, and what a new tenant finds."""

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
from coordinator.fleet.tenancies import Tenancies, Tenant, clear_place
from coordinator.fleet.workspace_paths import Places
from coordinator.home import Home
from podium.address import Address
from podium.errors import HomeError

ALICE = Address("hello", "alice")


def test_a_place_depends_on_the_home_and_the_address_alone(tmp_path: Path) -> None:
    home_id = Home(tmp_path / "home").create().id
    place = Places(Path("/tmp"), home_id).of(ALICE)
    assert len(str(place)) == 37
    assert place == Places(Path("/tmp"), home_id).of(Address.parse("hello/alice"))
    assert place != Places(Path("/tmp"), home_id).of(Address("hello", "bob"))
    assert len(str(Places(Path("/tmp"), home_id).of(Address("a" * 64, "ß" * 128)))) == 37
    moved = (tmp_path / "home").rename(tmp_path / "moved")
    assert Places(Path("/tmp"), Home(moved).create().id).of(ALICE) == place
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
    with pytest.raises(HomeError, match="no id of a home"):
        _ = home.id


def test_the_directory_is_this_users_alone(tmp_path: Path) -> None:
    places = Places(tmp_path, "home")
    places.make()
    places.make()
    assert places.directory.stat().st_mode & 0o777 == 0o700
    places.directory.chmod(0o755)
    with pytest.raises(HomeError, match="can be entered by others"):
        places.make()
    places.directory.rmdir()
    places.directory.symlink_to(tmp_path)
    with pytest.raises(HomeError, match="PODIUM_WORKSPACES"):
        places.make()
    with pytest.raises(HomeError, match="cannot be made"):
        Places(tmp_path / "none", "home").make()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_that_another_user_made_first_is_refused(tmp_path: Path) -> None:
    places = Places(tmp_path, "home")
    places.make()
    os.chown(places.directory, 65534, 65534)
    with pytest.raises(HomeError, match="belongs to another user"), places.claimed(tmp_path / "a"):
        pass


def test_a_copy_of_a_home_is_refused_while_the_service_of_the_other_runs(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    shutil.copytree(home.path, tmp_path / "copy")
    copy = Home(tmp_path / "copy").create()
    assert copy.id == home.id
    places = Places(tmp_path, home.id)
    with places.claimed(home.path):
        places.check(home.path)
        (tmp_path / "link").symlink_to(home.path)
        places.check(tmp_path / "link")
        with pytest.raises(HomeError, match=r"copy.*have the same id.*remove .*copy/id"):
            places.check(copy.path)
        with pytest.raises(HomeError, match="have the same id"), places.claimed(copy.path):
            pass
    places.check(copy.path)
    with places.claimed(copy.path):
        pass
    assert not places.directory.exists()
    (copy.path / "id").unlink()
    assert copy.create().id != home.id


def test_a_service_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    places = Places(tmp_path, "home")
    script = "import os, sys; from pathlib import Path; from coordinator.fleet.workspace_paths import Places\n"
    script += "with Places(Path(sys.argv[1]), 'home').claimed(Path('/one')): os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=Path(__file__).parents[4], check=False)
    assert places.directory.exists()
    with places.claimed(Path("/other")):
        assert (places.directory / "home").read_text() == "/other\n"


def test_a_place_has_one_tenant_at_a_time(tmp_path: Path) -> None:
    tenancies = Tenancies(tmp_path, "home")
    place = Path("/somewhere/alice")
    first = Tenant("host_1", 3, str(ALICE), "home")
    with ExitStack() as held:
        note = tenancies.take(place, first)
        held.callback(os.close, note)
        with pytest.raises(StaleEpoch):
            tenancies.take(place, Tenant("host_0", 2, str(ALICE), "home"))
        with pytest.raises(Conflict, match="have the same place"):
            tenancies.take(place, replace(first, agent="hello/bob", host_id="host_9"))
        with tenancies.ending(place, "host_1") as mine:
            assert not mine, "its process lives"
    with tenancies.ending(place, "host_0") as mine:
        assert not mine
    os.close(tenancies.take(place, Tenant("host_2", 4, str(ALICE), "home")))
    with tenancies.ending(place, "host_1") as mine:
        assert not mine, "it has a new tenant"
    with tenancies.ending(place, "host_2") as mine:
        assert mine
    assert list(tmp_path.iterdir()) == []
    with tenancies.ending(place, "host_2") as mine:
        assert not mine


def test_a_note_says_whose_home_it_is_of(tmp_path: Path) -> None:
    place = Path("/somewhere/alice")
    os.close(Tenancies(tmp_path, "home").take(place, Tenant("host_1", 1, str(ALICE), "home")))
    with Tenancies(tmp_path, "copy").ending(place, "host_1") as tenant:
        assert tenant is not None
        assert tenant.home == "home"
    (tmp_path / "alice").write_text('{"format": 1, "host_id": "host_1", "epoch": 1, "agent": "hello/alice"}')
    with Tenancies(tmp_path, "home").ending(place, "host_1") as tenant:
        assert tenant == Tenant("host_1", 1, str(ALICE), "")


def test_a_note_that_was_cut_short_hinders_nobody(tmp_path: Path) -> None:
    (tmp_path / "alice").write_text('{"host_id": "ho')
    os.close(Tenancies(tmp_path, "home").take(Path("/somewhere/alice"), Tenant("host_1", 1, str(ALICE), "home")))
    assert '"host_1"' in (tmp_path / "alice").read_text()


def test_what_was_written_where_nothing_was_mounted_is_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "alice"
    clear_place(place, "host_1")
    place.mkdir()
    clear_place(place, "host_1")
    assert list(tmp_path.iterdir()) == [place]
    (place / "ghost").write_text("written by path")
    clear_place(place, "host_1")
    assert not place.exists()
    assert (tmp_path / "alice.left-host_1" / "ghost").read_text() == "written by path"
    place.symlink_to(tmp_path)
    clear_place(place, "host_1")
    assert not place.is_symlink()
    assert tmp_path.exists()
