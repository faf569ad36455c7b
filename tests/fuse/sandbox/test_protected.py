"""Hooks and start files are put back, and trees removed, whatever a command has made of them or does meanwhile."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from podium.errors import SandboxRefused
from podium.sandbox.protected import _read_file, protected, put_back, remember
from podium.sandbox.trees import opened, remove

DEEP = 1200
"""Levels: more than Python's stack has frames, than there are descriptors, and than a path has bytes."""


def make_deep(directory: Path) -> None:
    at = os.open(directory, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("deeper", dir_fd=at)
        below = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.mkdir(".podium-0", dir_fd=at)
    os.close(os.open(".podium-0/file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.fchmod(at, 0)
    os.close(at)


def test_a_deep_tree_is_removed(tmp_path: Path) -> None:
    for name in (".podium-0", "tree"):
        (tmp_path / "top" / name).mkdir(parents=True)
        make_deep(tmp_path / "top" / name)
    (tmp_path / "top" / "a\nline").write_text("")
    os.mkfifo(tmp_path / "top" / "pipe")
    remove(str(tmp_path / "top"))
    remove(str(tmp_path / "top"))
    assert not [*tmp_path.iterdir()]


def test_a_link_is_removed_and_not_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
    remove(str(tmp_path / "tree"))
    assert (tmp_path / "outside" / "kept").exists()


def test_deep_hooks_are_put_back(tmp_path: Path) -> None:
    hooks = tmp_path / ".git" / "hooks"
    (hooks / "lib").mkdir(parents=True)
    (hooks / "pre-commit").write_text("mine")
    before = remember([tmp_path])
    make_deep(hooks / "lib")
    assert put_back(before) == (hooks,)
    assert [*(hooks / "lib").iterdir()] == []
    assert (hooks / "pre-commit").read_text() == "mine"
    make_deep(hooks / "lib")
    with pytest.raises(SandboxRefused, match="too deep"):
        remember([tmp_path])
    remove(str(hooks))


def test_a_closed_directory_stays_closed(tmp_path: Path) -> None:
    hooks = tmp_path / ".git" / "hooks"
    hooks.mkdir(parents=True)
    hooks.chmod(0o500)
    before = remember([tmp_path])
    assert hooks.stat().st_mode & 0o777 == 0o500
    hooks.chmod(0o777)
    assert put_back(before) == (hooks,)
    assert hooks.stat().st_mode & 0o777 == 0o500


def test_a_hard_link_does_not_keep_a_hook_within_reach(tmp_path: Path) -> None:
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(parents=True)
    hook.write_text("mine")
    before = remember([tmp_path])
    (tmp_path / "other").hardlink_to(hook)
    (tmp_path / "other").write_text("theirs")
    put_back(before)
    (tmp_path / "other").write_text("theirs, later")
    assert hook.read_text() == "mine"


def test_nothing_outside_is_written_while_a_link_is_swapped_in(tmp_path: Path) -> None:
    """Another command in the same workspace swaps .git for a link to a repository outside, again and again."""
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    for each in (workspace / ".git" / "hooks", outside / "hooks"):
        each.mkdir(parents=True)
        (each / "pre-commit").write_text("as it was" if outside in each.parents else "mine")
    (workspace / "link").symlink_to(outside)
    before = remember([workspace])
    stop = threading.Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            try:
                (workspace / ".git").rename(workspace / "repository")
                (workspace / "link").rename(workspace / ".git")
                (workspace / ".git").rename(workspace / "link")
                (workspace / "repository").rename(workspace / ".git")
                swaps += 1
            except OSError:  # it has been put back meanwhile
                if not (workspace / "link").is_symlink():
                    with suppress(OSError):
                        remove(str(workspace / "link"))
                        (workspace / "link").symlink_to(outside)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            with suppress(OSError):  # it has lost: nothing is as it should be, and nothing outside is touched
                put_back(before)
    finally:
        stop.set()
        thread.join()
    assert swaps
    assert [each.name for each in (outside / "hooks").iterdir()] == ["pre-commit"]
    assert (outside / "hooks" / "pre-commit").read_text() == "as it was"


def test_a_writable_directory_within_another_that_became_a_link_is_left_alone(tmp_path: Path) -> None:
    outer, outside = tmp_path / "outer", tmp_path / "outside"
    for each in (outer / "inner", outside):
        each.mkdir(parents=True)
    before = remember([outer, outer / "inner"])
    (outside / ".bashrc").write_text("theirs")
    (outer / "inner").rmdir()
    (outer / "inner").symlink_to(outside)
    put_back(before)
    assert (outside / ".bashrc").read_text() == "theirs"


def test_commands_that_overlap_put_back_what_was_there_before_the_first(tmp_path: Path) -> None:
    file = tmp_path / ".bashrc"
    first, second = ExitStack(), ExitStack()
    of_first = first.enter_context(protected([tmp_path]))
    file.write_text("of the first")
    of_second = second.enter_context(protected([tmp_path]))
    first.close()
    assert not file.exists()
    file.write_text("of the second")
    second.close()
    assert not file.exists()
    assert of_first == of_second == [file]
    file.write_text("the owner's")
    with protected([tmp_path]) as changed:
        file.write_text("of a third")
    assert (file.read_text(), changed) == ("the owner's", [file])


def test_a_pipe_that_was_swapped_in_for_a_file_is_not_read(tmp_path: Path) -> None:
    """After the look at what it is. Another command holds the pipe open: there is nothing to read, and no end."""
    os.mkfifo(tmp_path / ".bashrc")
    held = os.open(tmp_path / ".bashrc", os.O_RDWR)
    with opened(str(tmp_path)) as at:
        assert _read_file(at, ".bashrc", tmp_path)[1] is None
    os.close(held)
