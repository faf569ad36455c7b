"""Telling whether an agent's source changed since a host imported it."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

__all__ = ["CodeStamps", "imported_sources"]

_STAMP_LENGTH: Final = 12
_SETTLED_NS: Final = 2_000_000_000
"""A file that changed this recently may change again within the same time stamp: some file systems count seconds."""
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_GONE: Final = "gone"


class CodeStamps:
    """Stamps of source files. A file is read again only when its size or its time of change is another."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, int], str]] = {}
        """The content's hash of each file, and what ``stat`` said of it."""

    def of(self, sources: Iterable[str]) -> str:
        """Return what identifies the content of files as they are now: 12 hexadecimal digits.

        A file that is gone, or cannot be read, gives a stamp of its own.
        """
        parts = (f"{source}\0{self._hash(source)}\0" for source in sorted(sources))
        return hashlib.sha256("".join(parts).encode(errors="surrogateescape")).hexdigest()[:_STAMP_LENGTH]

    def _hash(self, source: str) -> str:
        path = Path(source)
        try:
            found = path.stat()
            seen = (found.st_size, found.st_mtime_ns, found.st_ino)
            before = self._known.get(source)
            if before is not None and before[0] == seen:
                return before[1]
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            return _GONE
        if abs(time.time_ns() - found.st_mtime_ns) > _SETTLED_NS:
            self._known[source] = (seen, digest)
        return digest


def imported_sources(file: str, before: AbstractSet[str]) -> tuple[str, ...]:
    """Return an agent's file and the modules below its directory that were imported, as absolute paths.

    For a file of a package the directory is that which has the outermost package. What is installed in the directory,
    as in a virtual environment, does not count.

    Args:
        before: the names of the modules that were imported before the agent's file was.
    """
    directory = Path(file).parent
    while (directory / "__init__.py").is_file():
        directory = directory.parent
    found = {file}
    for name in sys.modules.keys() - before:
        source = getattr(sys.modules[name], "__file__", None)
        if isinstance(source, str) and source.endswith(".py"):
            path = Path(source).absolute()
            if path.is_relative_to(directory) and not _is_installed(path):
                found.add(str(path))
    return tuple(sorted(found))


def _is_installed(path: Path) -> bool:
    return not _INSTALLED.isdisjoint(path.parts) or path.is_relative_to(sys.prefix)
