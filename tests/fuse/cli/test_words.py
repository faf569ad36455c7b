"""What ``chronicle`` says where somebody may be puzzled, and what its documentation says of a mount."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.cli import ExitCode
from tests.fuse.command import Command, running_command

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def chronicle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield from running_command(tmp_path, capsys)


@pytest.fixture
def moved(chronicle: Command) -> Iterator[Path]:
    """The root of a mount whose store was renamed; it is put back afterwards."""
    root = chronicle.mount()
    (root / "a").write_text("one")
    away = chronicle.store.with_name("away")
    chronicle.store.rename(away)
    yield root
    away.rename(chronicle.store)


@pytest.mark.parametrize("arguments", [["log"], ["commit", "-m", "x"], ["stats"], ["history", "a"]])
def test_a_store_that_is_gone_from_below_a_mount_is_named(
    chronicle: Command, moved: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(moved)
    said = chronicle(*arguments, code=ExitCode.NOT_FOUND)
    assert f"the store {chronicle.store} of the workspace that is mounted at {moved} was removed or renamed" in said
    assert f"; `chronicle unmount --force {moved}` gives the mount up" in said


def test_unmounting_without_the_store_says_so_first(chronicle: Command, moved: Path) -> None:
    assert "was removed or renamed: put it back" in chronicle("unmount", moved, code=ExitCode.NOT_FOUND)


def test_unmounting_works_when_the_store_is_put_back(chronicle: Command) -> None:
    root = chronicle.mount()
    away = chronicle.store.with_name("away")
    chronicle.store.rename(away)
    chronicle("unmount", root, code=ExitCode.NOT_FOUND)
    away.rename(chronicle.store)
    chronicle.unmount()


def test_a_newer_store_is_named_with_both_formats(chronicle: Command) -> None:
    chronicle.mount()
    chronicle.unmount()
    (chronicle.store / "format").write_text('{"chronicle-store": 99}')
    said = chronicle.on_store("log", code=ExitCode.TOO_NEW)
    assert "a newer version made the store" in said
    assert "its format is 99, this version reads up to 2; upgrade podium" in said


def test_the_root_of_a_new_workspace_has_the_time_at_which_it_was_made(chronicle: Command) -> None:
    before_s = time.time()
    root = chronicle.mount()
    found = root.stat()
    assert before_s - 1 <= found.st_mtime <= time.time() + 1
    assert found.st_mtime_ns == found.st_ctime_ns
    chronicle.unmount()
    assert chronicle.mount().stat().st_mtime_ns == found.st_mtime_ns
    (root / "a").touch()
    assert root.stat().st_mtime_ns > found.st_mtime_ns
    os.utime(root, (0, 0))
    assert root.stat().st_mtime == 0


@pytest.mark.parametrize("option", ["--quota-bytes", "--quota-file-size"])
def test_a_quota_of_no_bytes_lets_files_be_made_and_nothing_written(chronicle: Command, option: str) -> None:
    (chronicle.mount() / "old").write_text("kept")
    chronicle.unmount()
    root = chronicle.mount(option, "0")
    (root / "new").touch()
    for name in ("new", "old"):
        with pytest.raises(OSError, match="quota|too large") as refused, (root / name).open("ab", buffering=0) as file:
            file.write(b"x")
        assert refused.value.errno in (errno.EDQUOT, errno.EFBIG)
    assert (root / "old").read_text() == "kept"
    (root / "old").unlink()


def test_a_quota_of_no_files_lets_nothing_be_made(chronicle: Command) -> None:
    root = chronicle.mount("--quota-files", "0")
    for make in ((root / "a").touch, (root / "d").mkdir):
        with pytest.raises(OSError, match="quota") as refused:
            make()
        assert refused.value.errno == errno.EDQUOT


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts an overlayfs")
def test_a_mount_is_the_lower_directory_of_an_overlayfs_and_not_the_upper_one(
    chronicle: Command, tmp_path: Path
) -> None:
    root = chronicle.mount()
    (root / "a").write_text("one")
    merged = tmp_path / "merged"
    for directory in (root / "upper", root / "work", tmp_path / "upper", tmp_path / "work", tmp_path / "low", merged):
        directory.mkdir()

    def overlay(lower: Path, upper: Path, work: Path) -> int:
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        return subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", options, str(merged)], capture_output=True, check=False
        ).returncode

    if overlay(tmp_path / "low", tmp_path / "upper", tmp_path / "work") != 0:
        pytest.skip("no overlayfs here at all")
    subprocess.run(["umount", merged], check=True)
    for directory in (tmp_path / "upper", tmp_path / "work"):
        shutil.rmtree(directory)
        directory.mkdir()
    assert overlay(root, tmp_path / "upper", tmp_path / "work") == 0
    try:
        (merged / "a").write_text("two")
        assert ((merged / "a").read_text(), (root / "a").read_text()) == ("two", "one")
    finally:
        subprocess.run(["umount", merged], check=True)
    assert overlay(tmp_path / "low", root / "upper", root / "work") != 0
