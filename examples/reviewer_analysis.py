"""What the reviewer finds out about a project's files, with ``ast`` and ``tokenize``: facts as typed values.

Nothing here runs the reviewed code, knows of agents or keeps anything. A file that cannot be parsed is a fact like
any other: it is named, and the rest goes on.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTES = ("TODO", "FIXME", "XXX", "HACK")


class Place(BaseModel):
    """Somewhere in the project, and what is there."""

    path: str
    line: int = 0  # from 1; 0 is the whole file
    text: str


class Module(BaseModel):
    """One Python file."""

    lines: int
    functions: int = 0
    classes: int = 0
    problem: str = ""  # why it could not be parsed


class Project(BaseModel):
    """A project as a whole."""

    source: str
    files: int
    size: int  # bytes
    modules: dict[str, Module]

    @property
    def lines(self) -> int:
        """Lines of Python, blank ones and comments too."""
        return sum(module.lines for module in self.modules.values())


def survey(root: Path, source: str) -> Project:
    """Look at every file once."""
    files = [file for file in sorted(root.rglob("*")) if file.is_file()]
    return Project(
        source=source,
        files=len(files),
        size=sum(file.stat().st_size for file in files),
        modules={name: module(data) for name, data in python_files(root)},
    )


def python_files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Path below the root and content of every Python file, by path."""
    for file in sorted([*root.rglob("*.py"), *root.rglob("*.pyi")]):
        if file.is_file():
            yield file.relative_to(root).as_posix(), file.read_bytes()


def parse(data: bytes) -> ast.Module | str:
    """Return a file's syntax tree, or in words why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as its invalid escapes
            return ast.parse(data)
    except SyntaxError as error:
        return f"line {error.lineno or 0}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:  # zero bytes, nesting too deep for the parser
        return str(error) or type(error).__name__


def module(data: bytes) -> Module:
    """Count what is in one file."""
    lines = len(data.splitlines())
    tree = parse(data)
    if isinstance(tree, str):
        return Module(lines=lines, problem=tree)
    nodes = list(ast.walk(tree))
    return Module(
        lines=lines,
        functions=sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes),
        classes=sum(isinstance(node, ast.ClassDef) for node in nodes),
    )


def largest_files(root: Path, count: int) -> list[Place]:
    """Return the files with most bytes, largest first."""
    sizes = [(file.stat().st_size, file) for file in root.rglob("*") if file.is_file()]
    sizes.sort(key=lambda pair: (-pair[0], pair[1]))
    return [Place(path=file.relative_to(root).as_posix(), text=f"{size:,} bytes") for size, file in sizes[:count]]


def longest_functions(root: Path, count: int) -> list[Place]:
    """Return the functions and methods with most lines, decorators not counted, longest first."""
    found: list[tuple[int, str, int, str]] = []
    for path, data in python_files(root):
        tree = parse(data)
        if not isinstance(tree, str):
            found += [(end - line + 1, path, line, name) for name, line, end in functions(tree)]
    found.sort(key=lambda each: (-each[0], each[1], each[2]))
    return [Place(path=path, line=line, text=f"{name}, {length} lines") for length, path, line, name in found[:count]]


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Dotted name, first and last line of every function below a node, nested ones too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = prefix + child.name
            yield name, child.lineno, child.end_lineno or child.lineno
            yield from functions(child, name + ".")
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        else:
            yield from functions(child, prefix)


def notes(root: Path) -> list[Place]:
    """Return the comments in which the authors left themselves something to do."""
    found: list[Place] = []
    for path, data in python_files(root):
        found += [
            Place(path=path, line=line, text=text.lstrip("#: ")[:200])
            for line, text in comments(data)
            if any(note in text for note in NOTES)
        ]
    return found


def comments(data: bytes) -> Iterator[tuple[int, str]]:
    """Line and text of every comment, as far as the file can be read."""
    try:
        for token in tokenize.tokenize(io.BytesIO(data).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError, UnicodeDecodeError):
        return


def imports_of(root: Path, name: str) -> list[Place]:
    """Return where a module, or one below it, is imported. ``name`` is dotted, as after ``import``."""
    found: list[Place] = []
    for path, data in python_files(root):
        tree = parse(data)
        if isinstance(tree, str):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported = imported_names(node)
                if any(each == name or each.startswith(name + ".") for each in imported):
                    found.append(Place(path=path, line=node.lineno, text=ast.unparse(node)[:200]))
    return sorted(found, key=lambda place: (place.path, place.line))


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The dotted names that a statement may import; relative ones without their dots."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = f"{node.module}." if node.module else ""
    return [base + alias.name for alias in node.names]
