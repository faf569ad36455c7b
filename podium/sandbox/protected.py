"""Files of a workspace that others run: hooks and configuration of git, start files of shells.

A command in a sandbox may have made them say anything, and who uses git or a shell there afterwards is not in a
sandbox. So they are after each command what they were before it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from podium.errors import SandboxRefused
from podium.sandbox.git_config import harmless

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PROTECTED", "Remembered", "put_back", "remember"]

PROTECTED: Final = (
    *(".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir"),
    *(
        ".bashrc",
        ".bash_profile",
        ".bash_login",
        ".bash_logout",
        ".profile",
        ".zshrc",
        ".zshenv",
        ".zprofile",
        ".envrc",
    ),
)
"""Below each writable directory. A repository further down is its owner's to be careful with."""

_MAX_BYTES: Final = 1 << 20
"""Of one file: more is no hook, and is not kept in memory."""
_Content = bytes | str | dict[str, "tuple[int, _Content]"] | None
"""A file's bytes, a link's target, a directory's entries with their modes; ``None``: nothing, or none of these."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was at each path, with its mode."""

    directories: tuple[Path, ...]
    repositories: dict[Path, tuple[int, _Content]]
    """Each ``.git`` itself; of a directory only that it is one."""
    files: dict[Path, tuple[int, _Content]]


def remember(directories: Iterable[Path]) -> Remembered:
    """Read what is to be as it is now.

    Raises:
        SandboxRefused: a file is too large to be kept.
    """
    found = tuple(directories)
    files = {directory / name: _read(directory / name) for directory in found for name in PROTECTED}
    return Remembered(found, {directory / ".git": _read_repository(directory / ".git") for directory in found}, files)


def put_back(before: Remembered) -> tuple[Path, ...]:
    """Make it so again, while nothing else writes there; return what had changed.

    A repository that was made meanwhile stays, without hooks, and with the part of its configuration that runs nothing.
    Where ``.git`` was a directory and is none any more, it is one that has only what is protected.
    """
    for directory in before.directories:
        _open(directory)
        _open(directory / ".git")
    changed = []
    for path, was in before.repositories.items():
        now = _read_repository(path)
        if now[1] != was[1] and (was[1] is not None or not isinstance(now[1], dict)):
            _remove(path)
            _write(path, *was)
            changed.append(path)
    for path, was in before.files.items():
        now = _read_changed(path)
        if _is_new_config(path, before):
            was = _harmless(now)  # noqa: PLW2901
        if now != was:
            if not path.parent.exists():
                path.parent.mkdir()
            _remove(path)
            _write(path, *was)
            changed.append(path)
    return tuple(changed)


def _is_new_config(path: Path, before: Remembered) -> bool:
    """Whether a path is the configuration of a repository that was not there before."""
    return path.parts[-2:] == (".git", "config") and before.repositories[path.parent][1] is None


def _harmless(config: tuple[int, _Content]) -> tuple[int, _Content]:
    mode, content = config
    if not isinstance(content, bytes):
        return 0, None
    return mode, harmless(content.decode(errors="replace")).encode()


def _open(directory: Path) -> None:
    """Let the owner into a directory that a command has closed."""
    mode = directory.stat(follow_symlinks=False).st_mode if directory.is_dir() and not directory.is_symlink() else 0o700
    if mode & 0o700 != 0o700:
        directory.chmod(stat.S_IMODE(mode) | 0o700)


def _read_repository(path: Path) -> tuple[int, _Content]:
    if path.is_dir() and not path.is_symlink():
        return 0o755, {}
    return _read(path)


def _read_changed(path: Path) -> tuple[int, _Content]:
    """Read what a command may have made unreadable, or far too large; then it is not what it was."""
    try:
        return _read(path)
    except (PermissionError, SandboxRefused):
        return -1, None


def _read(path: Path) -> tuple[int, _Content]:
    try:
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            if found.st_size > _MAX_BYTES:
                raise SandboxRefused(f"{path} is larger than 1 MiB: a sandbox keeps hooks and start files as they are")
            return found.st_mode, path.read_bytes()
        if stat.S_ISLNK(found.st_mode):
            return found.st_mode, os.readlink(path)  # noqa: PTH115
        if stat.S_ISDIR(found.st_mode):
            return found.st_mode, {name: _read(path / name) for name in sorted(os.listdir(path))}  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return 0, None
    return found.st_mode, None


def _write(path: Path, mode: int, content: _Content) -> None:
    match content:
        case bytes():
            path.write_bytes(content)
        case str():
            path.symlink_to(content)
            return
        case dict():
            path.mkdir()
            for name, (its_mode, its_content) in content.items():
                _write(path / name, its_mode, its_content)
        case None:
            return
    path.chmod(stat.S_IMODE(mode))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        _open(path)
        for each in path.iterdir():
            _remove(each)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
