"""Counts the lines of code of the product: without docstrings, comments, blank lines and the test kits.

``python tools/product_lines.py`` prints them for each package and in all. Docstrings of attributes count as docstrings.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("chronicle", "podium", "coordinator")
TEST_KITS: Final = "testing"
"""The name of their folders."""
_NO_CODE: Final = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def lines_of_code(source: str) -> int:
    """Return the number of lines of a file that have code."""
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE and token.string:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - texts)


def main() -> None:
    """Print the lines of each package."""
    found: Counter[str] = Counter()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if TEST_KITS not in path.relative_to(ROOT).parts:
                found[package] += lines_of_code(path.read_text(encoding="utf-8"))
    for package, lines in found.items():
        print(f"{package:12} {lines:7,}")
    print(f"{'all':12} {found.total():7,}")


if __name__ == "__main__":
    main()
