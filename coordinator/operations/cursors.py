"""Cursors of paged lists: opaque text that names a place in one list, and is refused by any other list."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, cast

from chronicle.canonical import decode_input
from chronicle.errors import InvalidInput
from coordinator.operations.errors import InvalidCursor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MAX_ITEMS", "Rest", "cursor_after", "place_after", "rest_of"]

MAX_ITEMS: Final = 1000
"""Limit of the items of a page."""

_Place = TypeVar("_Place", int, str)
_Item = TypeVar("_Item")


class Rest(TypedDict):
    """Position behind a page."""

    next_cursor: str | None
    """The cursor of the next page; ``None`` at the end."""
    remaining: int | None
    """Items after the page; ``None`` where there are more than are counted."""


def cursor_after(name: str, of: Sequence[str | None], place: int | str) -> str:
    """Return the cursor of what follows a place in a list.

    Args:
        name: the kind of list.
        of: whose list it is, and its filters: a cursor serves the same list only.
        place: the last item's place.
    """
    text = json.dumps([name, *of, place], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_after(cursor: str | None, name: str, of: Sequence[str | None], first: _Place) -> _Place:
    """Return the place that a cursor names; ``first`` without a cursor.

    Raises:
        InvalidCursor: it is none, or of another list.
    """
    if cursor is None:
        return first
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        *whose, place = cast("list[Any]", decode_input(data))
    except (ValueError, binascii.Error, TypeError, InvalidInput):
        raise InvalidCursor("this is no cursor; take the next_cursor of the page before") from None
    if whose != [name, *of] or type(place) is not type(first):
        raise InvalidCursor(
            "this cursor is of another list, or of one with other filters; take the next_cursor of the page before"
        )
    return place


def rest_of(
    found: Sequence[_Item], limit: int, name: str, of: Sequence[str | None], place: Callable[[_Item], int | str]
) -> Rest:
    """Return what follows a page of a list that is in memory.

    Args:
        found: the items of the list, from the first one of the page on.
        limit: the most items of the page.
        name, of: as of `cursor_after`.
        place: returns an item's place.
    """
    more = len(found) > limit
    return {
        "next_cursor": cursor_after(name, of, place(found[limit - 1])) if more else None,
        "remaining": max(len(found) - limit, 0),
    }
