"""Fail when files of the packages import each other in a circle: ``python3 tools/import_circles.py``.

Imports for types only and imports inside functions count too: a circle of any kind means that two files can only be
understood together. Needs nothing but the standard library.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGES = ("chronicle", "podium", "coordinator")


def modules(root: Path) -> dict[str, Path]:
    """Return the files of the packages by their module names."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(module: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Return which known modules a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in known else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return (found & known.keys()) - {module}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module, by Tarjan's algorithm."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in numbers:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], numbers[other])
        if lowest[module] == numbers[module]:
            at = stack.index(module)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for module in sorted(graph):
        if module not in numbers:
            visit(module)
    return found


def main() -> int:
    """Print each circle, and return how many there are."""
    known = modules(Path(__file__).parents[1])
    found = circles({module: imported(module, path, known) for module, path in known.items()})
    for circle in found:
        print("import circle:", " -> ".join([*circle, circle[0]]))
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
