"""Tails of agents' recorded events: those after a seq, and further ones as they are committed, for many readers.

Commits are made by the processes of agents, which know no readers. So the head of each branch that somebody waits for
is looked at in short intervals, once for all of its readers.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import structlog

from chronicle.errors import ChronicleError
from coordinator.streams.fan_out import Reader, TaskOwner
from coordinator.streams.position import InvalidPosition
from coordinator.streams.sse import encode_event
from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from podium.address import Address

__all__ = ["EventHistory", "EventTailReader", "EventTails", "TailedEvent", "parse_seq"]

_POLL_S: Final = 0.2
"""Interval of looks at the head of a branch."""
_PAGE: Final = 100
"""Events that are read at a time."""

_log = structlog.stdlib.get_logger(__name__)


class RecordedEvent(Protocol):
    """An event; `coordinator.operations.objects.Event` is one."""

    @property
    def seq(self) -> int:
        """Its number."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        ...


class EventsPage(Protocol):
    """A page of events; `coordinator.operations.objects.EventPage` is one."""

    @property
    def items(self) -> Sequence[RecordedEvent]:
        """The events."""
        ...

    @property
    def next_cursor(self) -> str | None:
        """``None`` if there are no more."""
        ...


class EventHistory(Protocol):
    """Where events are read; `coordinator.operations.agents.HomeAgents` is one."""

    async def version(self, address: Address) -> int:
        """Return the seq of an agent's last event.

        Raises:
            UnknownAgent: there is no such agent.
        """
        ...

    async def events(self, address: Address, *, after_seq: int, types: Sequence[str], limit: int) -> EventsPage:
        """Return a page of an agent's events."""
        ...


class TailedEvent(NamedTuple):
    """An event as readers get it."""

    seq: int
    event: bytes
    """The SSE event."""


def parse_seq(text: str) -> int:
    """Return the seq in the id of an event of a tail.

    Raises:
        InvalidPosition: it is not one.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidPosition(
            f"{text[:200]!r} is not the id of a recorded event: send the seq of the last one received"
        )
    return int(text)


class EventTails(TaskOwner):
    """The tails that clients of this process read. Use it as an async context manager."""

    def __init__(self, history: EventHistory) -> None:
        super().__init__()
        self._history = history
        self._watches: dict[Address, _Watch] = {}
        self._closed = False

    def close(self) -> None:
        """End the tails of all readers, who can resume them at another process; open no others."""
        self._closed = True
        for watch in self._watches.values():
            watch.stop()

    async def check(self, address: Address, after_seq: int) -> None:
        """Check that a tail can be opened.

        Raises:
            UnknownAgent: there is no such agent.
            InvalidPosition: the agent has no such event yet.
        """
        if after_seq > (version := await self._history.version(address)):
            raise InvalidPosition(f"{address.name} has no event {after_seq}; its last one is {version}")

    @contextmanager
    def open(
        self, address: Address, after_seq: int = 0, types: Sequence[str] = (), history: EventHistory | None = None
    ) -> Iterator[EventTailReader]:
        """Open a tail while the context lasts; `check` it before.

        Args:
            after_seq: the seq of the last event that the reader has.
            types: only events of these types; of all if empty.
            history: where this reader's events are read; by default where all are.
        """
        watch = self._watches.get(address)
        if watch is None or watch.task.done():  # it ended, and its readers have not all left yet
            watch = self._watches[address] = _Watch(self._history, address)
            watch.task = self._tasks.create_task(watch.run(), name=f"watch {address}")
        reader = EventTailReader(history or self._history, address, watch, after_seq, types)
        watch.readers.add(reader)
        if self._closed:
            reader.end()
        try:
            yield reader
        finally:
            watch.readers.discard(reader)
            if not watch.readers:
                watch.task.cancel()
                if self._watches.get(address) is watch:
                    del self._watches[address]


class _Watch:
    """Looks at the head of one agent's branch."""

    def __init__(self, history: EventHistory, address: Address) -> None:
        self._history = history
        self._address = address
        self.readers: set[EventTailReader] = set()
        self.task: asyncio.Task[None]
        self.version = 0

    def stop(self) -> None:
        """End the readers' tails, and look no longer."""
        self.task.cancel()
        for reader in self.readers:
            reader.end()

    async def run(self) -> None:
        """Look until the task is cancelled; end the readers' tails if the agent cannot be read any more."""
        try:
            while True:
                version = await self._history.version(self._address)
                if version != self.version:
                    self.version = version
                    for reader in self.readers:
                        reader.look(version)
                await asyncio.sleep(_POLL_S)
        except (ChronicleError, PodiumError) as error:  # it was deleted, or the journal cannot be read
            _log.info("events_not_read", agent_id=str(self._address), error=str(error))
        except Exception:  # noqa: BLE001  a bug: the other tails go on
            _log.exception("event_tail_failed", agent_id=str(self._address))
        finally:
            for reader in self.readers:
                reader.end()


class EventTailReader(Reader):
    """One reader of a tail, made by `EventTails.open`."""

    def __init__(
        self, history: EventHistory, address: Address, watch: _Watch, after_seq: int, types: Sequence[str]
    ) -> None:
        super().__init__()
        self._history = history
        self._address = address
        self._types = types
        self._after = after_seq
        self._version = watch.version

    @property
    def is_complete(self) -> bool:
        """Whether the whole stream was returned: never, as there may always be another event."""
        return False

    async def next(self) -> list[TailedEvent]:
        """Wait for events, and return them; none at the end of the tail, which can be resumed.

        Raises:
            ChronicleError, PodiumError: the events cannot be read.
        """
        while not self._over:
            self._ready.clear()
            if self._version > self._after and (events := await self._read(self._version)):
                return events
            if self._version <= self._after:
                await self._ready.wait()
        return []

    def look(self, version: int) -> None:
        """Have the reader look for events up to a version."""
        if version < self._after:  # the agent was deleted, and another one has its name
            self._over = True
        self._version = version
        self._ready.set()

    async def _read(self, version: int) -> list[TailedEvent]:
        """Return the next page of events up to a version; they may all be of other types."""
        page = await self._history.events(self._address, after_seq=self._after, types=self._types, limit=_PAGE)
        last = page.items[-1].seq if page.items else 0
        self._after = last if page.next_cursor is not None else max(version, last)
        return [TailedEvent(event.seq, encode_event(event.as_json(), str(event.seq))) for event in page.items]
