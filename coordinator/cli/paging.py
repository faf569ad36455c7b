"""A page of a list as commands show it: how long it is, where it begins, and what follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from chronicle.cli_kit.terminal import say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coordinator.cli.target import Target
    from coordinator.operations.cursors import Rest
    from coordinator.operations.objects import Page

__all__ = [
    "AllOption",
    "Bounds",
    "CursorOption",
    "LimitOption",
    "bounds",
    "collect",
    "most",
    "say_later_events",
    "say_rest",
]

_DEFAULT_ITEMS: Final = 100
"""Rows that a command shows, unless it is told otherwise."""
_ALL_ITEMS: Final = 2**31
"""More rows than any list has."""
_MAX_ITEMS: Final = 1000
"""Limit of a page over HTTP: `coordinator.operations.cursors.MAX_ITEMS`, which is slow to import."""
_COUNTED: Final = 1000
"""Rows that are counted behind a page at most, in lists that do not count all: `coordinator.operations.runs`."""

LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help=f"The most rows; {_DEFAULT_ITEMS} by default.")
]
CursorOption = Annotated[
    str | None,
    typer.Option("--cursor", metavar="CURSOR", help="Go on where a call before ended, which printed the cursor."),
]
AllOption = Annotated[bool, typer.Option("--all", help="All rows, unless --limit says how many.")]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which part of a list a command shows."""

    limit: int
    cursor: str | None
    page_items: int = _ALL_ITEMS
    """Limit of a page."""


def most(limit: int | None, *, everything: bool) -> int:
    """Return the most rows to show.

    Args:
        limit: the command's `LimitOption`.
        everything: its `AllOption`.
    """
    return limit if limit is not None else _ALL_ITEMS if everything else _DEFAULT_ITEMS


def bounds(limit: int | None, cursor: str | None, *, everything: bool, target: Target | None = None) -> Bounds:
    """Return the part of a list that the options of a command name; see `most`.

    Args:
        target: the home that has the list.
    """
    page_items = _MAX_ITEMS if target is not None and target.url else _ALL_ITEMS
    return Bounds(most(limit, everything=everything), cursor, page_items)


async def collect(
    fetch: Callable[[int, str | None], Awaitable[Page[Any]]], wanted: Bounds
) -> tuple[list[dict[str, Any]], Rest]:
    """Return the items of as many pages of a list as a command shows, and what follows them.

    Args:
        fetch: returns the page of at most so many items at a cursor.
    """
    items: list[dict[str, Any]] = []
    cursor = wanted.cursor
    while True:
        page = await fetch(min(wanted.limit - len(items), wanted.page_items), cursor)
        items += [item.as_json() for item in page.items]
        cursor = page.next_cursor
        if cursor is None or len(items) >= wanted.limit:
            return items, {"next_cursor": cursor, "remaining": page.remaining}


def say_rest(rest: Rest) -> None:
    """Say how many rows were not shown, and how to see them."""
    if rest["next_cursor"] is not None:
        left = f"{rest['remaining']:,}" if rest["remaining"] is not None else f"more than {_COUNTED:,}"
        say(f"… and {left} more: --cursor {rest['next_cursor']}, --limit N or --all")


def say_later_events(after: int, last: int) -> None:
    """Say how many events of a log were not shown at most, and how to see them.

    Args:
        after: the seq of the last event that was shown.
        last: that of the agent's last event. Those that the options leave out are not counted one by one.
    """
    say(f"… and up to {last - after:,} more, to {last}: --after {after}, --limit N or --all")
