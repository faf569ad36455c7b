r"""Writing to the terminal: data to stdout, talk to stderr, and nothing an agent wrote can steer the terminal.

Text of agents and users (replies, names, paths) is shown on a terminal without its control characters, so that it
cannot move the cursor, retitle the window or forge output. Into a pipe or a file it goes as it is. JSON is the same
bytes either way: what a terminal could act on is written as ``\uXXXX``, which means the same.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["json_text", "one_line", "say", "shown", "table", "warn", "write", "write_json", "write_line"]

_INVISIBLE: Final = r"\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
"""What changes the order or the place of the characters around it, or hides text: marks and overrides of direction,
separators of lines, annotations, tags, spaces without a width. Not the two joiners, which emoji and scripts need."""
_CONTROLS: Final = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_INVISIBLE}]")
"""C0 but tab and newline, DEL, and C1, of which 0x9b starts an escape sequence on some terminals; and `_INVISIBLE`."""
_UNSAFE_IN_JSON: Final = re.compile(rf"[\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
"""Beyond what JSON escapes anyway: C1, `_INVISIBLE`, and what UTF-8 cannot encode."""


def shown(text: str, *, tty: bool | None = None) -> str:
    """Return text as it may be shown: without control characters when stdout (or what ``tty`` says) is a terminal."""
    return _CONTROLS.sub("", text) if (sys.stdout.isatty() if tty is None else tty) else text


def write(text: str) -> None:
    """Write text to stdout as it stands, at once. What the encoding cannot hold is escaped with backslashes."""
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def write_line(text: str = "") -> None:
    """Write a line of data to stdout, safe for a terminal."""
    write(shown(text) + "\n")


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON that is safe to show and to encode; whole numbers of any size keep their digits."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    return _UNSAFE_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def write_json(value: object) -> None:
    """Write a value to stdout as one line of JSON."""
    write(json_text(value) + "\n")


def say(text: str) -> None:
    """Say something to the user, on stderr."""
    print(shown(text, tty=sys.stderr.isatty()).encode(errors="backslashreplace").decode(), file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Say on stderr what is wrong."""
    say(f"podium: {text}")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows to stdout under headings; into a pipe at full width, never cut."""
    from rich.console import Console  # noqa: PLC0415 - only tables need it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    tty = sys.stdout.isatty()
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold" if tty else "")
    for heading in headings:
        grid.add_column(heading, overflow="fold", no_wrap=not tty)
    for row in rows:
        grid.add_row(*(Text(one_line(cell)) for cell in row))
    console = Console(file=sys.stdout, width=None if tty else 1_000_000, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(grid)
    write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def one_line(text: str) -> str:
    """Return text that stays on its line: control characters, newlines too, as Python escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
