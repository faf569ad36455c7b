"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["is_partial", "make_once", "replacing", "sync_directory"]

_PARTIAL: Final = re.compile(r"\.[0-9a-f]{16}\.partial")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield where a file is to be written that then takes the place of ``path`` in one step; nobody else writes there.

    With an error it is removed. What a killed process leaves is told by `is_partial`.

    Raises:
        OSError: it could not be put there.
    """
    with _partial(path) as partial:
        yield partial
        partial.replace(path)


def make_once(path: Path, text: str) -> None:
    """Make a file that survives the loss of power, unless there is one: of several who do so the first one's stays.

    Raises:
        OSError: it cannot be made.
    """
    with _partial(path) as partial, suppress(FileExistsError):
        _write(partial, text)
        try:
            os.link(partial, path)
        except OSError:
            if path.exists():
                return
            _write(path, text)  # a file system without hard links: whoever looks just now may find it empty
        sync_directory(path.parent)


def is_partial(path: Path) -> bool:
    """Say whether a file is one that is being written to be put elsewhere, or was when its process was killed."""
    return _PARTIAL.fullmatch(path.name) is not None and not path.is_dir()


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive the loss of power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:  # from here on the file is this call's, to remove with an error
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
