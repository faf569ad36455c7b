"""Output that only ``podium`` writes: tables, and warnings that do not end a command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from chronicle.cli_kit.terminal import one_line, say, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["table", "warn"]


def warn(text: str) -> None:
    """Write a warning to stderr."""
    say(f"podium: {text}")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows to stdout under headings; into a pipe at full width, never cut."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    write("\n".join(_folded(headings, cells) if sys.stdout.isatty() else _aligned([headings, *cells])) + "\n")


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines, each column as wide as its widest cell."""
    from rich.cells import cell_len  # noqa: PLC0415 - only tables need it

    sizes = [[cell_len(cell) for cell in row] for row in rows]
    widths = [max(column) for column in zip(*sizes, strict=True)]
    for row, lengths in zip(rows, sizes, strict=True):
        padded = (cell + " " * (width - size) for cell, size, width in zip(row, lengths, widths, strict=True))
        yield "  ".join(padded).rstrip()


def _folded(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines that are as wide as the terminal; long cells take several."""
    from rich.console import Console  # noqa: PLC0415 - only tables on a terminal need it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        grid.add_column(heading, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(grid)
    yield from (line.rstrip() for line in captured.get().splitlines())
