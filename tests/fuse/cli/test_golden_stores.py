"""Workspaces of stores that earlier versions wrote go on: they are mounted, written and committed."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.fuse.command import Command, running_command
from tests.golden.homes import NAMES, extract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def chronicle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield from running_command(tmp_path, capsys)


@pytest.mark.parametrize("name", NAMES)
def test_a_workspace_goes_on(chronicle: Command, name: str, tmp_path: Path) -> None:
    shutil.copytree(extract(name, tmp_path / "golden") / "store", chronicle.store)
    point = chronicle.mount()
    assert (point / "late").read_text() == "not committed\n"
    assert (point / "f").read_text() == "TWO\nTHREE\n"
    assert (point / "y").read_text() == "B\n"
    assert os.getxattr(point / "f", "user.note") == b"hello"
    assert (point / "hole").stat().st_size == 1024 * 1024
    assert (point / ".chronicle/at/1/f").read_text() == "ONE\n"
    (point / "f").write_text("FOUR\n")
    (point / "x").rename(point / "w")
    chronicle.on_store("commit", "-m", "of a newer version")
    assert (point / ".chronicle/turn/1/a/b/c").read_text() == "B\n"
    chronicle.unmount()
    assert [commit["turn"] for commit in chronicle.json("log")] == [1, 2, 3, 4]
    assert chronicle.on_store("cat", "late@1") == "not committed\n"
    chronicle.on_store("verify")
