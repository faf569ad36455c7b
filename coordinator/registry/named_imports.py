"""The modules that source files name in import statements, also of functions that have not run yet.

What an agent imports while it handles a message is not known by importing its file. Names that code puts together, such
as for ``importlib.import_module``, are not found.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["named_imports", "search_path"]


def named_imports(sources: Iterable[Path], roots: Iterable[Path]) -> set[Path]:
    """Return source files, and those below some directories that they name in import statements, and these in turn.

    Args:
        sources: absolute paths.
        roots: the directories of the module path in which modules are searched.
    """
    searched = list(roots)
    found = set(sources)
    waiting = list(found)
    while waiting:
        file = waiting.pop()
        for base, name in _named(file):
            for root in [base] if base is not None else searched:
                new = set(_files_of(root, name)) - found
                found |= new
                waiting += new
    return found


def search_path(file: Path) -> set[Path]:
    """Return the directories of the module path in which the imports of an agent's file are searched.

    They are those that `podium.agent.loader.load_module` adds.
    """
    root = file.parent
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        root = root.parent
    return {root, file.parent}


def _named(file: Path) -> Iterator[tuple[Path | None, list[str]]]:
    """Yield the names of modules that a file imports, in parts, each with the directory that a relative one is in."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # to be refused by others if it matters
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield None, alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else None
            for alias in node.names:
                yield base, [*(node.module.split(".") if node.module else ()), alias.name]


def _files_of(root: Path, name: list[str]) -> Iterator[Path]:
    """Yield the files of a module and of the packages that it is in, as far as there are any."""
    place = root
    for part in name:
        place = place / part
        for file in (place / "__init__.py", place.with_name(f"{part}.py")):
            if file.is_file():
                yield file
                break
