"""Templates: texts with ``${args.NAME}``, an argument of the call, and ``${env.NAME}``, a variable of the program.

Variables become text when a file is loaded, before any argument is known, and arguments are put in once: neither can
name the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from chronicle.canonical import encode
from chronicle.error_pickling import Portable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from chronicle.canonical import Json

__all__ = ["Argument", "Piece", "TemplateError", "arguments_in", "filled", "read_template", "text_of"]

_REFERENCE: Final = re.compile(r"\$\{(?P<kind>args|env)\.(?P<name>[^}\s]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class TemplateError(Portable):
    """A template cannot be used.

    Attributes:
        offset: where in the template, in characters.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Argument:
    """The place of an argument."""

    name: str
    offset: int
    """In the template as it is written, in characters."""


Piece: TypeAlias = "str | Argument"


def read_template(text: str, parameters: Collection[str], environment: Mapping[str, str]) -> list[Piece]:
    """Return the pieces of a template: text, in which variables are put in, and arguments.

    Args:
        parameters: the names of the arguments that the tool has.
        environment: the variables.

    Raises:
        TemplateError: it names what is not there.
    """
    pieces: list[Piece] = []
    end = 0
    for found in _REFERENCE.finditer(text):
        pieces.append(text[end : found.start()])
        end = found.end()
        name, offset = found["name"], found.start()
        if _NAME.fullmatch(name) is None:
            raise TemplateError(f"{found[0]} names nothing; write ${{args.NAME}} or ${{env.NAME}}", offset)
        if found["kind"] == "env":
            if name not in environment:
                raise TemplateError(f"there is no variable {name} for {found[0]}", offset)
            pieces.append(environment[name])
        elif name in parameters:
            pieces.append(Argument(name, offset))
        else:
            known = ", ".join(parameters) or "none"
            raise TemplateError(f"{found[0]} is none of the parameters, which are {known}", offset)
    pieces.append(text[end:])
    return _joined(pieces)


def arguments_in(pieces: Sequence[Piece]) -> list[Argument]:
    """Return the arguments of a template, in order."""
    return [piece for piece in pieces if isinstance(piece, Argument)]


def filled(pieces: Sequence[Piece], values: Mapping[str, str]) -> str:
    """Return the text of a template, with values in the places of its arguments."""
    return "".join(piece if isinstance(piece, str) else values[piece.name] for piece in pieces)


def text_of(value: Json) -> str:
    """Return an argument as text: a text as it is, nothing for null, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode(value).decode()


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with texts that follow each other as one, and without empty ones."""
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece != "":
            joined.append(piece)
    return joined
