"""No function takes ten parameters: what belongs together is an object."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
MAX_PARAMETERS = 9
COMMANDS = "coordinator/cli/commands/"
"""The parameters of a command are its options."""


def test_no_function_takes_ten_parameters() -> None:
    found = {
        f"{path}:{name}"
        for package in ("chronicle", "podium", "coordinator")
        for file in sorted((ROOT / package).rglob("*.py"))
        if not (path := file.relative_to(ROOT).as_posix()).startswith(COMMANDS)
        for name, count in parameters(ast.parse(file.read_text(encoding="utf-8")), "")
        if count > MAX_PARAMETERS
    }
    assert not found


def parameters(tree: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield the functions of a module with the number of their parameters, ``self`` not counted."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            yield prefix + node.name, len([name for name in names if name not in {"self", "cls"}])
        inside = prefix + f"{node.name}." if isinstance(node, ast.ClassDef) else prefix
        yield from parameters(node, inside)
