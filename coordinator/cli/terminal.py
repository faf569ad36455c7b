"""What only ``podium`` writes: tables, and warnings that do not end a command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from chronicle.cli_kit.terminal import one_line, say, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["table", "warn"]


def warn(text: str) -> None:
    """Write a warning to stderr."""
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
