"""``chronicle``: paths as they are typed, in a mount and outside of one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from chronicle.cli import ExitCode
from tests.fuse.command import Command, running_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def chronicle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield from running_command(tmp_path, capsys)


@pytest.fixture
def root(chronicle: Command) -> Path:
    """A mounted workspace with a commit."""
    root = chronicle.mount()
    (root / "d" / "e").mkdir(parents=True)
    (root / "a").write_text("a in the root")
    (root / "d" / "a").write_text("a in d")
    chronicle.on_store("commit", "-m", "first")
    return root


def test_in_a_mount_they_begin_in_the_current_directory(
    chronicle: Command, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(root / "d")
    for written in ("a", "./a", "e/../a", "../d//a", "a/", root / "d" / "a", tmp_path / "link" / "d" / "a"):
        assert chronicle("cat", written) == "a in d"
        assert chronicle("cat", f"{written}@1") == "a in d"
        assert chronicle.on_store("cat", written) == "a in d"
        assert chronicle("history", written).count("\n") == 1
    assert chronicle("cat", "../a") == "a in the root"
    assert "mkdir" in chronicle("history", "e/")
    (root / "d" / "a").write_text("other")
    (root / "a").write_text("other")
    assert chronicle("restore", "a", "@1") == "M  d/a\n"
    (root / "d" / "a").write_text("other")
    assert chronicle("restore", ".", "@1") == "M  d/a\n"
    assert chronicle("restore", root / "a", "@1") == "M  a\n"
    (root / "a").write_text("other")
    assert chronicle("restore", "@1") == "M  a\n"
    assert "never existed" in chronicle("history", "b", code=ExitCode.NOT_FOUND)
    for written in ("../..", "../../other", tmp_path / "other", "/"):
        assert f"mounted at {root}" in chronicle("cat", written, code=ExitCode.USAGE)
    assert "empty" in chronicle("history", "", code=ExitCode.USAGE)
    monkeypatch.chdir(tmp_path)


def test_outside_of_a_mount_they_begin_at_the_root(
    chronicle: Command, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for written in ("d/a", "./d/a", "d/e/../a/", "d//a"):
        assert chronicle.on_store("cat", written) == "a in d"
    (root / "d" / "a").write_text("other")
    assert chronicle.on_store("restore", "./d/", "@1") == "M  d/a\n"
    assert "is outside of" in chronicle.on_store("cat", "d/../../a", code=ExitCode.USAGE)
    assert "not a path" in chronicle.on_store("cat", "/d/a", code=ExitCode.USAGE)
    # Another store's mount is outside, too.
    chronicle("mount", tmp_path / "store2", tmp_path / "mnt2")
    (tmp_path / "mnt2" / "d").mkdir()
    chronicle.store, other = tmp_path / "store2", chronicle.store
    monkeypatch.chdir(tmp_path / "mnt2" / "d")
    assert chronicle("cat", "d/a", "--store", other) == "a in d"
    monkeypatch.chdir(tmp_path)
    chronicle.mountpoint = tmp_path / "mnt2"
    chronicle.unmount()
    chronicle.store = other


def test_a_store_is_named_where_the_current_directory_is_gone(
    chronicle: Command, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert chronicle.on_store("cat", "d/a") == "a in d"
    assert os.fspath(root)
    monkeypatch.chdir(tmp_path)


def test_in_a_mount_its_workspace_is_meant(
    chronicle: Command, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chronicle.on_store("fork", "side")
    side = tmp_path / "side"
    chronicle("mount", chronicle.store, side, "-w", "side")
    (side / "a").write_text("a of side")
    (root / "a").write_text("a of main")
    monkeypatch.chdir(side / "d")
    assert chronicle("cat", "../a") == "a of side"
    assert chronicle("commit", "-m", "in side").startswith("commit 2 ")
    assert "in side" in chronicle("log")
    assert "in side" in chronicle.on_store("log")
    assert "in side" not in chronicle("log", "-w", "main")
    assert chronicle("diff", "--names") == ""
    assert chronicle("diff", "--names", "-w", "main") == "M  a\n"
    assert "continues side@2" in chronicle("fork", "third")
    monkeypatch.chdir(tmp_path)
    assert "in side" not in chronicle.on_store("log")
    chronicle("unmount", side)
