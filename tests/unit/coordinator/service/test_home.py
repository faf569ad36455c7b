"""Homes: made where they may be, refused elsewhere."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

from chronicle.errors import Corrupt
from coordinator.home import Home
from podium.errors import HomeError, HomeNotWritable, HomeTooNew


def test_a_home_is_made_in_a_new_or_empty_directory_and_opened_again(tmp_path: Path) -> None:
    Home(tmp_path / "new" / "home").create()
    Home(tmp_path / "new" / "home").create()
    (tmp_path / "empty").mkdir()
    Home(tmp_path / "empty").create().open()


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "passwd").touch()
    with pytest.raises(HomeError, match=r"not a podium home and not empty \(it has 'passwd'\)"):
        Home(tmp_path).create()
    assert [path.name for path in tmp_path.iterdir()] == ["passwd"]


def test_a_creation_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    Home(tmp_path).create()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    Home(tmp_path).create()
    (tmp_path / "format").write_text(json.dumps({"format": 99}))
    with pytest.raises(HomeTooNew, match="upgrade podium"):
        Home(tmp_path).create()


@pytest.mark.parametrize(
    "text",
    ["", "99", "[]", "?", "\xff", '{"format": 1}', '{"format": 0}\n', '{"format": 2}\n', '{"format": 2, "blobs": 1}\n'],
)
def test_a_damaged_format_is_named_and_said_how_to_mend(tmp_path: Path, text: str) -> None:
    Home(tmp_path).create()
    (tmp_path / "format").write_text(text, encoding="latin-1")
    with pytest.raises(Corrupt, match=r'format is damaged: it should hold one line, \{"format": 1\} if'):
        Home(tmp_path).open()
    (tmp_path / "format").write_text('{"format": 1}\n')
    assert Home(tmp_path).open().blobs_url == f"file://{tmp_path / 'blobs'}"


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HomeNotWritable, match="cannot be written"):
        Home(tmp_path / "file").create()


def test_one_service_locks_a_home(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    assert not home.service_alive()
    with home.service_lock() as held:
        assert held
        assert home.service_alive()
        with Home(tmp_path).service_lock() as again:
            assert not again
    assert not home.service_alive()


def test_a_home_has_one_service_by_whatever_path_it_is_named(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    (tmp_path / "link").symlink_to(home.path)
    other = Home(tmp_path / "other").create()
    assert Home(tmp_path / "link").socket_path == home.socket_path == Home(home.path).socket_path != other.socket_path


def test_the_directory_of_a_running_service_is_known_when_its_home_is_removed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    before = home.run_dir
    shutil.rmtree(home.path)
    assert home.run_dir == before


def test_the_directory_for_sockets_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "run"
    monkeypatch.setenv("PODIUM_RUN_DIR", str(named))
    home = Home(tmp_path / "home").create()
    assert home.make_run_dir() == home.run_dir == named
    assert home.socket_path == named / "service.sock"
    assert named.stat().st_mode & 0o777 == 0o700
    home.remove_run_dir()
    assert tmp_path.is_dir()
    assert not named.exists()
    named.mkdir()
    named.chmod(0o777)
    with pytest.raises(HomeError, match="writable by others"):
        home.make_run_dir()


def test_a_named_directory_for_sockets_that_is_something_else_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "run"
    named.mkdir(0o700)
    monkeypatch.setenv("PODIUM_RUN_DIR", str(named))
    home, other = Home(tmp_path / "home").create(), Home(tmp_path / "other").create()
    (named / "mine").write_text("mine")
    with pytest.raises(HomeError, match="has other files"):
        home.make_run_dir()
    home.remove_run_dir()
    assert (named / "mine").read_text() == "mine"

    (named / "mine").unlink()
    assert home.make_run_dir() == home.make_run_dir() == named
    (named / "service.sock").touch()
    with pytest.raises(HomeError, match="of another home"):
        other.make_run_dir()
    other.remove_run_dir()
    assert (named / "service.sock").exists()
    assert home.make_run_dir() == named
    home.remove_run_dir()
    assert not named.exists()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary directory, for the while."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def test_the_directory_for_sockets_is_there_only_for_a_service(tmp_path: Path, temporary: Path) -> None:
    home, other = Home(tmp_path / "home").create(), Home(tmp_path / "other").create()
    assert home.socket_path.parent == home.run_dir != other.run_dir
    assert list(temporary.iterdir()) == []
    for made in (home, other, home):
        assert made.make_run_dir().is_dir()
    (home.run_dir / "ray").mkdir()
    (home.run_dir / "ray" / "session").touch()
    home.remove_run_dir()
    assert list(temporary.rglob("*")) == [other.run_dir.parent, other.run_dir]
    other.remove_run_dir()
    other.remove_run_dir()
    assert list(temporary.iterdir()) == []


def test_a_directory_for_sockets_that_others_can_write_is_not_trusted(tmp_path: Path, temporary: Path) -> None:
    home = Home(tmp_path / "home").create()
    home.make_run_dir().chmod(0o777)
    with pytest.raises(HomeError, match="writable by others"):
        _ = home.socket_path
    with pytest.raises(HomeError):
        home.make_run_dir()
