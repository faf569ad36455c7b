"""Files of a workspace that others run: hooks and configuration of git, start files of shells.

A command in a sandbox may have made them say anything, and who uses git or a shell there afterwards is not in a
sandbox. So they are after each command what they were before it. Another command may write there meanwhile, so nothing
is opened through a link that it could have made.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from podium.errors import SandboxRefused
from podium.sandbox.git_config import harmless
from podium.sandbox.trees import opened, remove

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PROTECTED", "Remembered", "protected", "put_back", "remember"]

_OF_GIT: Final = ("hooks", "config", "config.worktree", "commondir")
_START_FILES: Final = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile"),
    *(".zshrc", ".zshenv", ".zprofile", ".envrc"),
)
PROTECTED: Final = (*(f".git/{name}" for name in _OF_GIT), *_START_FILES)
"""Below each writable directory. A repository further down is its owner's to be careful with."""

_MAX_BYTES: Final = 1 << 20
"""Of one file: more is no hook, and is not kept in memory."""
_MAX_DEPTH: Final = 8
"""Of directories in ``.git/hooks``."""
_Content = bytes | str | dict[str, "tuple[int, _Content]"] | None
"""A file's bytes, a link's target, a directory's entries with their modes; ``None``: nothing, or none of these."""
_Entry = tuple[int, _Content]
_NOTHING: Final[_Entry] = (0, None)
_REPOSITORY: Final[_Entry] = (0o755, {})


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was there, with its mode."""

    directories: tuple[Path, ...]
    git: dict[Path, _Entry]
    """Each ``.git`` itself; of a directory only that it is one."""
    files: dict[Path, dict[str, _Entry]]
    """By writable directory or ``.git``, and name."""


_REMEMBERED: Final[dict[tuple[Path, ...], tuple[Remembered, int]]] = {}
"""By the directories of the commands that run: what the first of them has found, and how many they are."""


@contextmanager
def protected(directories: Iterable[Path]) -> Iterator[list[Path]]:
    """Put the files back at the end of a command, and add what it had changed to the list that this yields.

    Commands of this process that overlap in the same directories share what the first one has found: else one would put
    back what another has written.

    Raises:
        SandboxRefused: as `remember`.
    """
    key, changed = tuple(directories), list[Path]()
    before, others = _REMEMBERED.get(key) or (remember(key), 0)
    _REMEMBERED[key] = before, others + 1
    try:
        yield changed
    finally:
        others = _REMEMBERED.pop(key)[1] - 1
        if others:
            _REMEMBERED[key] = before, others
        changed += put_back(before)


def remember(directories: Iterable[Path]) -> Remembered:
    """Read what is to be as it is now.

    Raises:
        SandboxRefused: a file is too large to be kept.
    """
    before = Remembered(tuple(directories), {}, {})
    for directory in before.directories:
        with _within(directory, before.directories) as at:
            before.files[directory] = {name: _read(at, name, directory) for name in _START_FILES}
            try:
                with opened(".git", at) as git:
                    before.git[directory] = _REPOSITORY
                    of_git = {name: _read(git, name, directory / ".git") for name in _OF_GIT}
            except (FileNotFoundError, NotADirectoryError):
                before.git[directory] = _read(at, ".git", directory)
                of_git = dict.fromkeys(_OF_GIT, _NOTHING)
            before.files[directory / ".git"] = of_git
    return before


def put_back(before: Remembered) -> tuple[Path, ...]:
    """Make it so again, when nothing of the command runs; return what had changed.

    A repository that was made meanwhile stays, without hooks, and with the part of its configuration that runs nothing.
    Where ``.git`` was a directory and is none any more, it is one that has only what is protected. A writable directory
    within another one that is not there any more stays away.
    """
    changed: list[Path] = []
    for directory in before.directories:
        try:
            with _within(directory, before.directories, anyhow=True) as at:
                changed += _put_back(at, directory, before)
        except (FileNotFoundError, NotADirectoryError):
            if not _outer(directory, before.directories):
                raise
    return tuple(changed)


def _put_back(at: int, directory: Path, before: Remembered) -> Iterator[Path]:
    was = before.git[directory]
    is_repository = _is_directory(at, ".git")
    if was is _REPOSITORY:
        differs = not is_repository
    else:
        differs = not _is(at, ".git", was) and not (was == _NOTHING and is_repository)
    if differs:
        remove(".git", at)
        _write(at, ".git", was)
        yield directory / ".git"
    if _is_directory(at, ".git"):
        with opened(".git", at, anyhow=True) as git:
            if was == _NOTHING:
                before.files[directory / ".git"]["config"] = _harmless_config(git)
            yield from _files_put_back(git, directory / ".git", before)
    yield from _files_put_back(at, directory, before)


def _files_put_back(at: int, directory: Path, before: Remembered) -> Iterator[Path]:
    for name, was in before.files[directory].items():
        if not _is(at, name, was):
            remove(name, at)
            _write(at, name, was)
            yield directory / name


def _harmless_config(git: int) -> _Entry:
    """Return the configuration of a repository without what runs programs or reaches elsewhere."""
    try:
        mode, content = _read(git, "config", Path())
    except (PermissionError, SandboxRefused):
        return _NOTHING
    return (mode, harmless(content.decode(errors="replace")).encode()) if isinstance(content, bytes) else _NOTHING


@contextmanager
def _within(directory: Path, among: Sequence[Path], *, anyhow: bool = False) -> Iterator[int]:
    """Open a writable directory: what is below another one may be a link by now."""
    outer = _outer(directory, among)
    if not outer:
        with opened(os.path.realpath(directory), anyhow=anyhow) as at:
            yield at
        return
    with ExitStack() as path:
        at = path.enter_context(opened(os.path.realpath(outer[0]), anyhow=anyhow))
        for name in directory.relative_to(outer[0]).parts:
            at = path.enter_context(opened(name, at, anyhow=anyhow))
        yield at


def _outer(directory: Path, among: Sequence[Path]) -> list[Path]:
    """Return the directories that it is in, the outermost first."""
    found = [each for each in among if each != directory and directory.is_relative_to(each)]
    return sorted(found, key=lambda each: len(each.parts))


def _is_directory(at: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _is(at: int, name: str, was: _Entry) -> bool:
    """Whether an entry is as it was; what cannot be read, or is far too large or deep, is not."""
    try:
        return _read(at, name, Path()) == was
    except (PermissionError, SandboxRefused):
        return False


def _read(at: int, name: str, place: Path, depth: int = 0) -> _Entry:
    """Read an entry of a directory.

    Raises:
        SandboxRefused: it is too large, or too deep, to be kept.
    """
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return found.st_mode, os.readlink(name, dir_fd=at)
        if stat.S_ISDIR(found.st_mode):
            if depth > _MAX_DEPTH:
                raise SandboxRefused(f"{place / name} is too deep: a sandbox keeps hooks as they are")
            with opened(name, at) as directory:
                names = sorted(os.listdir(directory))  # noqa: PTH208
                return found.st_mode, {each: _read(directory, each, place / name, depth + 1) for each in names}
        if not stat.S_ISREG(found.st_mode):
            return found.st_mode, None
        return _read_file(at, name, place)
    except (FileNotFoundError, NotADirectoryError):
        return _NOTHING


def _read_file(at: int, name: str, place: Path) -> _Entry:
    # Not blocking: it may be a pipe by now.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    with os.fdopen(file, "rb") as opened_file:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            return mode, None
        content = opened_file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise SandboxRefused(
                f"{place / name} is larger than 1 MiB: a sandbox keeps hooks and start files as they are"
            )
        return mode, content


def _write(at: int, name: str, entry: _Entry) -> None:
    mode, content = entry
    match content:
        case bytes():
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=at)
            with os.fdopen(file, "wb") as opened_file:
                opened_file.write(content)
                os.fchmod(file, stat.S_IMODE(mode))
        case str():
            os.symlink(content, name, dir_fd=at)
        case dict():
            os.mkdir(name, 0o700, dir_fd=at)
            with opened(name, at) as directory:
                for inner, its in content.items():
                    _write(directory, inner, its)
                os.fchmod(directory, stat.S_IMODE(mode))
        case None:
            return
