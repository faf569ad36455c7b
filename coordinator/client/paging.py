"""Lists of any length, which a home gives in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from coordinator.client.results import read_result

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from coordinator.client.backends.port import Wire
    from coordinator.client.results import Result

__all__ = ["items_of"]

_R = TypeVar("_R", bound="Result")


async def items_of(kind: type[_R], fetch: Callable[[str | None], Awaitable[Wire]]) -> AsyncGenerator[_R]:
    """Yield the items of all pages of a list.

    Args:
        fetch: returns the page at a cursor.
    """
    cursor: str | None = None
    while True:
        page = await fetch(cursor)
        for item in page["items"]:
            yield read_result(kind, item)
        cursor = page.get("next_cursor")
        if cursor is None:
            return
