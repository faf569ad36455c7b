r"""Output of a command: data to stdout, messages to stderr; stored text cannot control the terminal.

Names, replies and files are written by agents and users. Text that goes to a terminal is shown without its control
characters, so that it cannot move the cursor, set the window's title or forge output. JSON is the same bytes for every
destination: a character that a terminal could act on is written as ``\uXXXX``, which means the same.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "json_text",
    "one_line",
    "say",
    "shown",
    "strip_controls",
    "write",
    "write_json",
    "write_line",
    "write_lines",
]

_INVISIBLE: Final = r"\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
"""Characters that reorder or hide the text around them: direction marks and overrides, line and paragraph separators,
annotations, tags, zero-width spaces. Without the two joiners, which emoji and scripts need."""
_CONTROLS: Final = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_INVISIBLE}]")
"""C0 without tab and newline, DEL, C1 (0x9b starts an escape sequence on some terminals), and `_INVISIBLE`."""
_UNSAFE_IN_JSON: Final = re.compile(rf"[\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
"""Characters that JSON leaves unescaped: C1, `_INVISIBLE`, and lone surrogates, which UTF-8 cannot encode."""


def strip_controls(text: str) -> str:
    """Return text without its control characters; tabs and newlines stay."""
    return _CONTROLS.sub("", text)


def shown(text: str, *, tty: bool | None = None) -> str:
    """Return text for stdout: without control characters if it is a terminal, else unchanged.

    Args:
        tty: whether the destination is a terminal; stdout is asked by default.
    """
    return strip_controls(text) if (sys.stdout.isatty() if tty is None else tty) else text


def one_line(text: str, *, keep_tabs: bool = False) -> str:
    """Return text with each control character, newlines included, as its Python escape: printable, and one line."""
    return "".join(char if char.isprintable() or (keep_tabs and char == "\t") else ascii(char)[1:-1] for char in text)


def write(text: str, *, flush: bool = True) -> None:
    """Write text to stdout unchanged. Characters that its encoding lacks are written as backslash escapes."""
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    if flush:
        sys.stdout.flush()


def write_line(text: str = "") -> None:
    """Write a line of data to stdout, safe for a terminal."""
    write(shown(text) + "\n")


def write_lines(lines: Iterable[bytes], write_one: Callable[[str], None]) -> None:
    """Write lines of bytes, each with its newline: unchanged into a pipe or a file, as text onto a terminal.

    Args:
        write_one: writes a line of text, without its newline, to a terminal.
    """
    if sys.stdout.isatty():
        for line in lines:
            write_one(line.decode("utf-8", "backslashreplace").removesuffix("\n"))
        return
    sys.stdout.flush()
    for line in lines:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON that is safe to show and to encode; integers of any size keep their digits."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    return _UNSAFE_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def write_json(value: object) -> None:
    """Write a value to stdout as one line of JSON."""
    write(json_text(value) + "\n")


def say(text: str) -> None:
    """Write a message for the user to stderr."""
    print(shown(text, tty=sys.stderr.isatty()).encode(errors="backslashreplace").decode(), file=sys.stderr, flush=True)
