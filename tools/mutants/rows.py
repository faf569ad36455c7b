"""The tests of each row, which name it in a comment or a docstring: ``# S2.14, S3.1-S3.4``."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["find_tests", "runs_alone", "starts_ray"]

_ROWS: Final = re.compile(r"\b(S\d|C)\.(\d+)(?:\s*[-–]\s*\1\.(\d+))?\b")
_STARTS_RAY: Final = ("tests/cluster/", "tests/e2e/")
_SHARES_SERVERS: Final = ("tests/fuse/",)
_LEFT_OUT: Final = ("tests/browser/", "tests/live/", "tests/npm/")
"""What a plain run of pytest has no browser, no key and no packages for."""


def find_tests(root: Path) -> dict[str, list[str]]:
    """Return the ids of the tests of each row, in the order of the rows' numbers.

    A start of Ray runs much that is not the row's: its tests count where no other test has the row.
    """
    found: dict[str, set[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(_LEFT_OUT):
            for row, test in _rows_in(path.read_text(encoding="utf-8")):
                found.setdefault(row, set()).add(f"{name}::{test}")
    for row, tests in found.items():
        found[row] = {test for test in tests if not starts_ray(test)} or tests
    return {row: sorted(found[row]) for row in sorted(found, key=_number)}


def starts_ray(test: str) -> bool:
    """Whether a test is in a folder whose tests start Ray."""
    return test.startswith(_STARTS_RAY)


def runs_alone(test: str) -> bool:
    """Whether servers work for a test whose lines are those of all tests that use them, if there are others."""
    return starts_ray(test) or test.startswith(_SHARES_SERVERS)


def _number(row: str) -> tuple[str, int]:
    section, _, number = row.partition(".")
    return section, int(number)


def _rows_in(source: str) -> Iterator[tuple[str, str]]:
    """Yield each row that a test names, with the test: ``name``, or ``Class::name``."""
    comments = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string
    lines = source.splitlines()
    for test, node in _tests_in(ast.parse(source)):
        first = min(each.lineno for each in (node, *node.decorator_list))
        while lines[first - 2].lstrip().startswith("#") and first > 1:  # comments right above
            first -= 1
        texts = [comments[line] for line in range(first, (node.end_lineno or first) + 1) if line in comments]
        for section, begin, end in _ROWS.findall("\n".join([*texts, ast.get_docstring(node) or ""])):
            for number in range(int(begin), int(end or begin) + 1):
                yield f"{section}.{number}", test


def _tests_in(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for each in inner:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                yield f"{node.name}::{each.name}" if isinstance(node, ast.ClassDef) else each.name, each
