"""Homes: made where they may be, refused elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator.home import Home
from podium.errors import HomeError, HomeNotWritable, HomeTooNew


def test_a_home_is_made_in_a_new_or_empty_directory_and_opened_again(tmp_path: Path) -> None:
    Home(tmp_path / "new" / "home").create()
    Home(tmp_path / "new" / "home").create()
    (tmp_path / "empty").mkdir()
    Home(tmp_path / "empty").create().open()


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "passwd").touch()
    with pytest.raises(HomeError, match=r"no podium home and not empty \(it has 'passwd'\)"):
        Home(tmp_path).create()
    assert [path.name for path in tmp_path.iterdir()] == ["passwd"]


def test_a_creation_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    Home(tmp_path).create()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    Home(tmp_path).create()
    (tmp_path / "format").write_text(json.dumps({"format": 2}))
    with pytest.raises(HomeTooNew, match="upgrade podium"):
        Home(tmp_path).create()


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HomeNotWritable, match="cannot be written"):
        Home(tmp_path / "file").create()


def test_one_service_holds_a_home(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    assert not home.service_alive()
    with home.service_lock() as held:
        assert held
        assert home.service_alive()
        with Home(tmp_path).service_lock() as again:
            assert not again
    assert not home.service_alive()
