"""Lists of any length, which a home gives in pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from coordinator.client.results import Agent, Artifact, FileVersion, InboxMessage, Reminder, Result, read_result
from coordinator.client.texts import address_of, clean_path

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from coordinator.client.backends.port import Backend, Wire

__all__ = ["PAGE_ITEMS", "AsyncPages", "Page", "items_of"]

PAGE_ITEMS: Final = 100
"""Items of a page, unless the caller says how many."""

_R = TypeVar("_R", bound=Result)


@dataclass(frozen=True, slots=True)
class Page(Generic[_R]):
    """A page of a list, and what follows it."""

    items: Sequence[_R]
    next_cursor: str | None
    """The cursor of the next page; ``None`` at the end."""
    remaining: int
    """Items after this page."""


class AsyncPages:
    """Lists of a home, a page at a time; from `AsyncPodium.pages`.

    ``limit`` is the most items of the page, 1 to 1000; ``cursor`` the `Page.next_cursor` of the page
    before, which serves the same list with the same filters only.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def agents(
        self,
        *,
        agent_type: str | None = None,
        tenant: str | None = None,
        awake: bool = False,
        limit: int = PAGE_ITEMS,
        cursor: str | None = None,
    ) -> Page[Agent]:
        """Return a page of the home's agents, by address; see `AsyncPodium.agents`."""
        return _page(Agent, await self._backend.agents(agent_type, tenant, limit, cursor, awake=awake))

    async def inbox(self, agent: str, *, limit: int = PAGE_ITEMS, cursor: str | None = None) -> Page[InboxMessage]:
        """Return a page of the pending and parked messages of an agent, by position."""
        return _page(InboxMessage, await self._backend.inbox(address_of(agent), limit, cursor))

    async def reminders(self, agent: str, *, limit: int = PAGE_ITEMS, cursor: str | None = None) -> Page[Reminder]:
        """Return a page of the reminders of an agent, by name."""
        return _page(Reminder, await self._backend.reminders(address_of(agent), limit, cursor))

    async def artifacts(
        self, agent: str, *, turn: int | None = None, limit: int = PAGE_ITEMS, cursor: str | None = None
    ) -> Page[Artifact]:
        """Return a page of the artifacts of an agent up to a turn, oldest first."""
        return _page(Artifact, await self._backend.artifacts(address_of(agent), turn, limit, cursor))

    async def file_history(
        self, agent: str, path: str, *, turn: int | None = None, limit: int = PAGE_ITEMS, cursor: str | None = None
    ) -> Page[FileVersion]:
        """Return a page of the versions of a path up to a turn, oldest first.

        Raises:
            ResourceNotFound: there never was such a path.
        """
        found = await self._backend.file_history(address_of(agent), clean_path(path), turn, limit, cursor)
        return _page(FileVersion, found)


class _Rest(Result):
    next_cursor: str | None
    remaining: int


def _page(kind: type[_R], page: Wire) -> Page[_R]:
    rest = read_result(_Rest, page)
    return Page([read_result(kind, item) for item in page["items"]], rest.next_cursor, rest.remaining)


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
