"""`RemoteJournal`: a journal whose store another process has, which decides what its callers may do.

A call of the port travels as the method's name and its arguments, and is executed there
(`coordinator.store`). Errors are those of the store; without an answer it is `Unavailable`, as without a database.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.journal import record_wire
from chronicle.journal.port import JournalStore
from chronicle.journal.ports.reserve import NO_RESERVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chronicle.control.calls import Calls
    from chronicle.ids import BranchId
    from chronicle.journal.ports.reserve import Reserve
    from chronicle.journal.records import Event

__all__ = ["MAX_EVENTS", "remote_journal"]

MAX_EVENTS: Final = 256
"""Events of one answer."""
_METHODS: Final = frozenset(name for name in dir(JournalStore) if not name.startswith("_")) - {"audit", "all_objects"}
"""The methods of the port, but for those that hold something open."""


def remote_journal(calls: Calls) -> JournalStore:
    """Return the journal of a server; it has no `audit` and no `all_objects`. `close` closes the calls."""
    return cast("JournalStore", _RemoteJournal(calls))


class _RemoteJournal:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _METHODS:
            raise AttributeError(name)
        method = partial(self._call, name)
        setattr(self, name, method)
        return method

    def events(
        self,
        branch_id: BranchId,
        after_seq: int = 0,
        to_seq: int | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """See the port: events come in pages, up to what is the head now."""
        to_seq = self._call("head", branch_id).seq if to_seq is None else to_seq
        page = self._call("events", branch_id, after_seq, to_seq, types)
        return self._pages(page, branch_id, to_seq, types)

    def _pages(
        self, page: tuple[Event, ...], branch_id: BranchId, to_seq: int, types: Sequence[str] | None
    ) -> Iterator[Event]:
        yield from page
        while page and len(page) == MAX_EVENTS:
            page = self._call("events", branch_id, page[-1].seq, to_seq, types)
            yield from page

    @property
    def reserve(self) -> Reserve:
        """None: the store's process has it."""
        return NO_RESERVE

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

    def _call(self, method: str, *arguments: object, **named: object) -> Any:
        answer = self._calls.call("journal", method=method, arguments=record_wire.dumps((arguments, named)))
        return record_wire.loads(answer)
