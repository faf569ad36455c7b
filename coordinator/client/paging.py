"""Lists of any length, which a home gives in pages.

Each is a row of the client's table, whose result is a page; a client returns all items of a list, or a page at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from coordinator.client.backends.port import Request
from coordinator.client.texts import address_of, clean_path
from coordinator.client.twin import Twin, iterating, making, waiting
from coordinator.operations import objects

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from coordinator.client.backends.port import Backend
    from coordinator.operations.objects import (
        Agent,
        Artifact,
        FileVersion,
        InboxMessage,
        Page,
        PausedRun,
        Reminder,
        Turn,
    )

__all__ = ["PAGE_ITEMS", "AsyncLists", "AsyncPages", "Lists", "Pages", "items_of"]

PAGE_ITEMS: Final = 100
"""Items of a page, unless the caller says how many."""

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class AsyncLists:
    """The lists of a home, whole; `coordinator.client.AsyncPodium` has them."""

    _backend: Backend

    async def agents(
        self, *, agent_type: str | None = None, tenant: str | None = None, awake: bool = False
    ) -> AsyncGenerator[Agent]:
        """Yield the home's agents, by address.

        Args:
            agent_type: only agents of this type.
            tenant: agents of this tenant; by default of the key's. Of another one it takes an operator's key. ``*``
                names all tenants of a home on this machine; the addresses then begin with those but ``default``.
            awake: only agents that are awake.
        """
        async for found in items_of(
            lambda at: self.pages().agents(agent_type=agent_type, tenant=tenant, awake=awake, cursor=at)
        ):
            yield found

    async def inbox(self, agent: str) -> list[InboxMessage]:
        """Return the pending, paused and parked messages of an agent, by position."""
        return [found async for found in items_of(lambda at: self.pages().inbox(agent, cursor=at))]

    async def paused(self, agent: str | None = None) -> AsyncGenerator[PausedRun]:
        """Yield the runs that are paused, and what each waits for.

        Args:
            agent: only those of this agent.
        """
        async for found in items_of(lambda at: self.pages().paused(agent, cursor=at)):
            yield found

    async def reminders(self, agent: str) -> list[Reminder]:
        """Return the reminders that an agent has set, by name."""
        return [found async for found in items_of(lambda at: self.pages().reminders(agent, cursor=at))]

    async def artifacts(self, agent: str) -> list[Artifact]:
        """Return the artifacts of an agent, oldest first."""
        return [found async for found in items_of(lambda at: self.pages().artifacts(agent, cursor=at))]

    async def turns(self, agent: str) -> AsyncGenerator[Turn]:
        """Yield the committed turns of an agent, oldest first.

        Raises:
            ResourceNotFound: no such agent.
        """
        async for found in items_of(lambda at: self.pages().turns(agent, cursor=at)):
            yield found

    def pages(self) -> AsyncPages:
        """Return the lists of the home, a page at a time."""
        return AsyncPages(self._backend)


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
        request = Request("GET", "/agents", "agents", lambda: objects.Page[objects.Agent], {"agent_type": "type"})
        return await self._backend.call(
            request, agent_type=agent_type, tenant=tenant, awake=awake, limit=limit, cursor=cursor
        )

    async def inbox(self, agent: str, *, limit: int = PAGE_ITEMS, cursor: str | None = None) -> Page[InboxMessage]:
        """Return a page of the pending, paused and parked messages of an agent, by position."""
        request = Request("GET", "inbox", "inbox", lambda: objects.Page[objects.InboxMessage])
        return await self._backend.call(request, address_of(agent), limit=limit, cursor=cursor)

    async def paused(
        self, agent: str | None = None, *, limit: int = PAGE_ITEMS, cursor: str | None = None
    ) -> Page[PausedRun]:
        """Return a page of the runs that are paused, of one agent or of all; see `AsyncPodium.paused`."""
        request = Request("GET", "/runs", "runs", lambda: objects.Page[objects.PausedRun], {"of_agent": "agent"})
        of = address_of(agent) if agent is not None else None
        return await self._backend.call(request, status="paused", of_agent=of, limit=limit, cursor=cursor)

    async def reminders(self, agent: str, *, limit: int = PAGE_ITEMS, cursor: str | None = None) -> Page[Reminder]:
        """Return a page of the reminders of an agent, by name."""
        request = Request("GET", "reminders", "reminders", lambda: objects.Page[objects.Reminder])
        return await self._backend.call(request, address_of(agent), limit=limit, cursor=cursor)

    async def artifacts(
        self, agent: str, *, turn: int | None = None, limit: int = PAGE_ITEMS, cursor: str | None = None
    ) -> Page[Artifact]:
        """Return a page of the artifacts of an agent up to a turn, oldest first."""
        request = Request("GET", "artifacts", "artifacts.artifact_page", lambda: objects.Page[objects.Artifact])
        return await self._backend.call(request, address_of(agent), turn=turn, limit=limit, cursor=cursor)

    async def turns(self, agent: str, *, limit: int = PAGE_ITEMS, cursor: str | None = None) -> Page[Turn]:
        """Return a page of the committed turns of an agent, oldest first."""
        request = Request("GET", "turns", "history.turn_page", lambda: objects.Page[objects.Turn])
        return await self._backend.call(request, address_of(agent), limit=limit, cursor=cursor)

    async def file_history(
        self, agent: str, path: str, *, turn: int | None = None, limit: int = PAGE_ITEMS, cursor: str | None = None
    ) -> Page[FileVersion]:
        """Return a page of the versions of a path up to a turn, oldest first.

        Raises:
            ResourceNotFound: there never was such a path.
        """
        request = Request("GET", "history/{path}", "files.file_history", lambda: objects.FileHistory)
        path = clean_path(path)
        return await self._backend.call(request, address_of(agent), path=path, turn=turn, limit=limit, cursor=cursor)


class Pages(Twin):
    """Lists of a home, a page at a time; see `AsyncPages`."""

    agents = waiting(AsyncPages.agents)
    inbox = waiting(AsyncPages.inbox)
    paused = waiting(AsyncPages.paused)
    reminders = waiting(AsyncPages.reminders)
    artifacts = waiting(AsyncPages.artifacts)
    turns = waiting(AsyncPages.turns)
    file_history = waiting(AsyncPages.file_history)


class Lists(Twin):
    """The blocking twin of `AsyncLists`."""

    agents = iterating(AsyncLists.agents)
    inbox = waiting(AsyncLists.inbox)
    paused = iterating(AsyncLists.paused)
    reminders = waiting(AsyncLists.reminders)
    artifacts = waiting(AsyncLists.artifacts)
    turns = iterating(AsyncLists.turns)
    pages = making(AsyncLists.pages, Pages)


class _Page(Protocol[_T_co]):
    @property
    def items(self) -> Sequence[_T_co]: ...

    @property
    def next_cursor(self) -> str | None: ...


async def items_of(fetch: Callable[[str | None], Awaitable[_Page[_T]]]) -> AsyncGenerator[_T]:
    """Yield the items of all pages of a list.

    Args:
        fetch: returns the page at a cursor.
    """
    cursor: str | None = None
    while True:
        page = await fetch(cursor)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
