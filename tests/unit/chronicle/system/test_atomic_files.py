"""Files that are there whole or not at all, and directories that several make at once."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import InvalidInput
from chronicle.repository import Repository
from chronicle.system.atomic_files import create_once, replacing
from coordinator.home import Home
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 30
TOGETHER = 4
DEADLINE_S = 60


def use_store(directory: Path) -> None:
    repository = Repository(directory)
    repository.create()
    with repository.journal("main"):
        pass


def use_home(directory: Path) -> None:
    Home(directory).create().journal().close()


def test_a_file_is_replaced_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"

    def fail() -> None:
        with replacing(path) as partial:
            partial.write_text("newer")
            tmp_path.read_text()

    with pytest.raises(IsADirectoryError):
        fail()
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_first_of_several_files_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create_once(path, "first")
    made = path.stat()
    create_once(path, "second")
    assert path.read_text() == "first"
    assert path.stat().st_ino == made.st_ino
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_made_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    create_once(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_half_a_file_is_not_left_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    real = os.fsync

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def fail(descriptor: int) -> None:
        if path.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "link", refuse)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left on device"):
            create_once(path, "text")
    assert list(tmp_path.iterdir()) == []
    create_once(path, "text")
    assert path.read_text() == "text"


def test_a_file_that_another_makes_first_stays_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("first")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", lambda _: False)  # it comes to be just after that
        create_once(path, "second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("use", [use_store, use_home])
def test_what_several_make_at_once_is_made_once(tmp_path: Path, use: Callable[[Path], None]) -> None:
    failed: list[BaseException] = []
    barrier = threading.Barrier(TOGETHER, timeout=DEADLINE_S)

    def make() -> None:
        for number in range(ROUNDS):
            barrier.wait()
            try:
                use(tmp_path / str(number))
            except Exception as error:  # noqa: BLE001 - shown below; the others go on
                failed.append(error)

    makers = [threading.Thread(target=make) for _ in range(TOGETHER)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(DEADLINE_S)
    assert failed == []


@pytest.mark.parametrize(("use", "error"), [(use_store, InvalidInput), (use_home, HomeError)])
def test_what_a_killed_process_began_to_make_is_made(
    tmp_path: Path, use: Callable[[Path], None], error: type[Exception]
) -> None:
    (tmp_path / "here").mkdir()
    with replacing(tmp_path / "here" / "format") as partial:
        partial.write_text("{")
        left = partial.read_text()
    (tmp_path / "here" / "format").unlink()
    (tmp_path / "here" / partial.name).write_text(left)
    use(tmp_path / "here")
    assert json.loads((tmp_path / "here" / "format").read_text())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".0123456789abcdef.partial").mkdir()
    with pytest.raises(error, match="not empty"):
        use(tmp_path / "other")
