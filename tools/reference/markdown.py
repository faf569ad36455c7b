"""Pieces of Markdown that the generated pages share."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["code", "docstring_of", "docstrings", "document", "from_docstring", "table"]

_NOTE: Final = "<!-- Generated from the code by `make docs`: change the code, not this page. -->"


def document(title: str, *parts: str) -> str:
    """Return a page: its title, the note that it is generated, and its parts, with an empty line between them."""
    return "\n\n".join([f"# {title}", _NOTE, *(part.strip() for part in parts if part.strip())]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; nothing without rows."""
    lines = [_row(cells) for cells in rows]
    return "\n".join([_row(head), "|" + "---|" * len(head), *lines]) if lines else ""


def code(text: str) -> str:
    """Return text as inline code."""
    return f"`{text}`"


def from_docstring(text: str | None) -> str:
    """Return a docstring as Markdown: its roles and double backquotes become inline code, its lines are joined."""
    paragraphs = re.split(r"\n\s*\n", (text or "").strip())
    joined = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return re.sub(r"(?::[a-z]+:)?(`+)([^`]+)\1", r"`\2`", joined)


def docstrings(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the docstring of each annotated name of a class, the string that follows it; empty if it has none."""
    found: dict[str, str] = {}
    for statement, following in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = docstring_of(following)
    return found


def docstring_of(statement: ast.stmt | None) -> str:
    """Return a docstring as Markdown; nothing if the statement is another one."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return from_docstring(text)
    return ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n\n", "<br>") for cell in cells) + " |"
