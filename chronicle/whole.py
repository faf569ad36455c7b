"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["is_partial", "make_once", "replacing"]


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
    """Make a file, unless there is one: of several who do so at once the first one's stays.

    Raises:
        OSError: it cannot be made.
    """
    with _partial(path) as partial:
        partial.write_text(text, encoding="utf-8")
        try:
            with suppress(FileExistsError):
                os.link(partial, path)
        except OSError:  # a file system without hard links
            partial.replace(path)


def is_partial(name: str) -> bool:
    """Say whether a file of that name is being written to be put elsewhere, or was when its process died."""
    return name.startswith(".") and name.endswith(".partial")


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)
