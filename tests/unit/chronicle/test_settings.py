"""The settings of chronicle: directories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.settings import read_settings

if TYPE_CHECKING:
    import pytest


def test_directories_need_no_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    default = read_settings({}, tmp_path)
    assert default.cache_dir == tmp_path / ".cache" / "chronicle"
    assert default.state_dir == tmp_path / ".local/state" / "chronicle"
    given = read_settings({"CHRONICLE_CACHE_DIR": "/y", "XDG_STATE_HOME": "/z"}, tmp_path)
    assert (given.cache_dir, given.state_dir) == (Path("/y"), Path("/z/chronicle"))


def test_relative_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative = read_settings({"XDG_CACHE_HOME": "c", "CHRONICLE_STATE_DIR": "s"}, Path("/home/u"))
    assert relative.cache_dir == tmp_path / "c" / "chronicle"
    assert relative.state_dir == Path("/home/u/s")
