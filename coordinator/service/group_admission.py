"""Admission of the messages of all clients with few syncs to disk: what arrives during one sync shares the next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chronicle.journal.batching import Batches

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from coordinator.client_messages import Admission, Admitted, Arrival

__all__ = ["GroupAdmission"]


class GroupAdmission:
    """Admits messages without blocking the event loop.

    Args:
        admission: admits them.
        limited: returns the tenants whose messages are to be checked. A check may read much: such a message is admitted
            by itself, so that others do not wait for it.
    """

    def __init__(self, admission: Admission, limited: Callable[[], Container[str]]) -> None:
        self._admission = admission
        self._limited = limited
        self._batches: Batches[Arrival, Admitted | None] = Batches(self._admit_free, "admissions")

    async def admit(self, arrival: Arrival) -> Admitted:
        """Append a message durably to its agent's inbox; raises as `Admission.admit`.

        When cancelled, it may still be admitted.
        """
        admitted = await self._batches.written(arrival)
        if admitted is not None:
            return admitted
        return await asyncio.to_thread(
            self._admission.admit,
            arrival.address,
            arrival.body,
            arrival.idempotency_key,
            arrival.when_busy,
            arrival.trace,
            arrival.caller,
        )

    def close(self) -> None:
        """Admit what is queued, and end. Blocks until then."""
        self._batches.close()

    def _admit_free(self, arrivals: Sequence[Arrival]) -> list[Admitted | Exception | None]:
        """Admit those that nothing limits; ``None`` for the others."""
        limited = self._limited()
        free = [arrival.address.tenant not in limited for arrival in arrivals]
        outcomes = iter(
            self._admission.admit_many([each for each, is_free in zip(arrivals, free, strict=True) if is_free])
        )
        return [next(outcomes) if is_free else None for is_free in free]
