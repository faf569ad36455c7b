"""The source files of an agent: what its file has imported of its project, in the process that imported it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from chronicle.canonical import Json

__all__ = ["imported_sources", "marks_of"]

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


def imported_sources(file: str, before: AbstractSet[str]) -> tuple[str, ...]:
    """Return an agent's file and the modules imported from below its directory, as absolute paths.

    For a file in a package the directory is the parent of the outermost package. Installed packages in the directory,
    as in a virtual environment, are excluded.

    Args:
        before: names of the modules in ``sys.modules`` before the import of the agent's file.
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


def marks_of(sources: Iterable[str]) -> dict[str, Json]:
    """Return what changes with the content of files: size and modification time of each, in nanoseconds."""
    marks: dict[str, Json] = {}
    for source in sources:
        try:
            found = Path(source).stat()
        except OSError:
            marks[source] = None
        else:
            marks[source] = [found.st_size, found.st_mtime_ns]
    return marks


def _is_installed(path: Path) -> bool:
    return not _INSTALLED.isdisjoint(path.parts) or path.is_relative_to(sys.prefix)
