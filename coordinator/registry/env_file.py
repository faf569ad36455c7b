r"""Environment files: a line ``NAME=value`` for each variable.

Blank lines and lines that begin with ``#`` are ignored; ``export`` before a name is, too. A value in single quotes is
taken as it is; in double quotes ``\n``, ``\t``, ``\r``, ``\"`` and ``\\`` stand for characters; without quotes it ends
at `` #`` or at the end of the line. Nothing is substituted. Values may be secrets: no message shows one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_env_file"]

_LINE: Final = re.compile(r"(?:export\s+)?(?P<name>[^=]*?)\s*=\s*(?P<value>.*)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SINGLE: Final = re.compile(r"'([^']*)'\s*(?:#.*)?")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of an environment file, in its order.

    Raises:
        InvalidInput: it cannot be read, or a line is not valid; the message has the line's number and not its content.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    variables: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            name, value = _variable(stripped)
        except ValueError as error:
            raise InvalidInput(f"{path}, line {number}: {error}") from None
        if name in lines:
            raise InvalidInput(
                f"{path}, line {number}: {name} was set in line {lines[name]} already; remove one of them"
            )
        variables[name], lines[name] = value, number
    return variables


def _variable(line: str) -> tuple[str, str]:
    """Return name and value.

    Raises:
        ValueError: the line sets no variable; the message shows no value.
    """
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError("it is not NAME=value; begin comments with #")
    name = found["name"]
    if not _NAME.fullmatch(name):
        raise ValueError("the name before = cannot be used; take letters, digits and _, and no digit first")
    value = _value(name, found["value"])
    if "\0" in value:
        raise ValueError(f"the value of {name} has a NUL character, which no variable can have")
    return name, value


def _value(name: str, text: str) -> str:
    if text.startswith("'"):
        quoted = _SINGLE.fullmatch(text)
    elif text.startswith('"'):
        quoted = _DOUBLE.fullmatch(text)
    else:
        return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip()
    if quoted is None:
        raise ValueError(f"the quotes around the value of {name} do not match; a value is in one line")
    return quoted[1] if text.startswith("'") else _ESCAPE.sub(lambda escape: _unescaped(name, escape[1]), quoted[1])


def _unescaped(name: str, character: str) -> str:
    if character not in _ESCAPED:
        raise ValueError(f"the value of {name} has an unknown escape; write two backslashes for one")
    return _ESCAPED[character]
