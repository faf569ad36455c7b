"""`RepeatedOperations`: operations on agents that a repeated request does not repeat.

The answer of an operation is kept beside the agent's session, under the client's key, as the objects that requests make
are. It is stored after the operation: a gateway that is killed in between makes the operation again for a repeat.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

from chronicle.errors import NotFound
from chronicle.ids import IdSource
from chronicle.journal.objects import ObjectName, new_object, object_body
from coordinator.operations.objects.result import Result, read_result
from coordinator.sessions.repetition import repeated, repetition_of
from podium.agent_record import find_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import JsonObject
    from chronicle.journal.port import JournalStore
    from coordinator.operations.agents import HomeAgents
    from podium.address import Address

__all__ = ["RepeatedOperations"]

_ANSWER: Final = "answer"
"""The kind of the object that has an answer."""
_T = TypeVar("_T", bound=Result)


class RepeatedOperations:
    """The operations of a home that clients repeat.

    Args:
        home: whose stores and clock are used; the caller closes it.
    """

    def __init__(self, home: HomeAgents) -> None:
        self._home = home
        self._ids = IdSource()
        self._running: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By key: a repeat that comes meanwhile waits."""

    async def once(
        self,
        address: Address,
        operation: str,
        key: str | None,
        asked: JsonObject,
        kind: type[_T],
        run: Callable[[], Awaitable[_T]],
    ) -> _T:
        """Return the answer of an operation; of the same request under the same key, the answer that it got before.

        Args:
            address: of the agent.
            operation: its name, such as ``rewind``.
            key: the client's idempotency key; ``None``: it is made.
            asked: the body.
            kind: the answer's type.
            run: makes the operation.

        Raises:
            IdempotencyConflict: the key was used with another body.
        """
        repetition = repetition_of(f"POST {address.name} {operation}", key, asked)
        if repetition is None:
            return await run()

        def known(store: JournalStore, blobs: BlobStore) -> _T | None:
            there = repeated(store, address.tenant, repetition)
            return None if there is None else read_result(kind, object_body(there, blobs))

        async with self._running.setdefault(f"{address.tenant} {repetition.key}", asyncio.Lock()):
            if (there := await self._home.stores.read(known)) is not None:
                return there
            answer = await run()
            now_ms = self._home.clock.now_ms()

            def keep(store: JournalStore, blobs: BlobStore) -> None:
                with suppress(NotFound):  # the agent was deleted meanwhile
                    _ = store.put_object(
                        new_object(
                            blobs,
                            ObjectName(_ANSWER, self._ids.other("ans_", now_ms), address.tenant),
                            now_ms,
                            answer.as_json(),
                            session_id=find_session(store, address).session_id,
                            repetition=repetition,
                        )
                    )

            await self._home.stores.write(keep)
            return answer
