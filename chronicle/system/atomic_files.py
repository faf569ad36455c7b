"""Atomic creation and replacement of files, and syncs that make them survive a power loss."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["create_once", "is_partial", "replacing", "sync_directory", "sync_file", "write_all"]

_PARTIAL: Final = re.compile(r"\.[0-9a-f]{16}\.partial")


@contextmanager
def replacing(path: Path, temporary: Path | None = None) -> Iterator[Path]:
    """Yield the path of a temporary file to write; on exit, rename it over ``path`` in one step.

    Nothing is synced here: a caller that needs durability syncs the file before the exit, and the directory after it
    (`sync_directory`). On an error the temporary file is removed. `is_partial` recognises one that a killed process
    left.

    Args:
        path: the file to replace or create.
        temporary: the temporary file, on the same file system; by default a hidden file of a random name beside
            ``path``, which is the caller's alone.

    Raises:
        OSError: the file could not be renamed.
    """
    partial = temporary or _partial(path)
    try:
        yield partial
        partial.rename(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def create_once(path: Path, text: str) -> None:
    """Create a durable file unless it exists; of several concurrent callers the first one's text stays.

    Raises:
        OSError: the file cannot be created.
    """
    partial = _partial(path)
    try:
        with suppress(FileExistsError):
            _write(partial, text)
            try:
                os.link(partial, path)
            except OSError:
                if path.exists():
                    return
                _write(path, text)  # a file system without hard links: a concurrent reader may find the file empty
            sync_directory(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def is_partial(path: Path) -> bool:
    """Return whether a path is a temporary file of this module, being written or left by a killed process."""
    return _PARTIAL.fullmatch(path.name) is not None and not path.is_dir()


def sync_directory(directory: Path) -> None:
    """Make a directory's entries survive a power loss."""
    _sync(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def sync_file(path: Path) -> None:
    """Make the content of a file survive a power loss, whichever descriptor wrote it."""
    _sync(path, os.O_RDONLY | os.O_CLOEXEC)


def write_all(fd: int, data: bytes) -> None:
    """Write all data at a descriptor's position: a single write(2) may be short."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _partial(path: Path) -> Path:
    return path.with_name(f".{secrets.token_hex(8)}.partial")


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:  # from here on this call owns the file, and removes it on an error
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
