"""Admission of the messages of all clients with few syncs to disk: what arrives during one sync shares the next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chronicle.journal.batching import Batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.client_messages import Admission, Admitted, Arrival
    from podium.address import Address

__all__ = ["GroupAdmission"]


class GroupAdmission:
    """Admits messages without blocking the event loop.

    Args:
        admission: admits them.
        is_limited: whether the messages for an agent are to be checked. A check may read much: such a message is
            admitted by itself, so that others do not wait for it.
    """

    def __init__(self, admission: Admission, is_limited: Callable[[Address], bool]) -> None:
        self._admission = admission
        self._is_limited = is_limited
        self._batches: Batches[Arrival, Admitted] = Batches(admission.admit_many, "admissions")

    async def admit(self, arrival: Arrival) -> Admitted:
        """Append a message durably to its agent's inbox; raises as `Admission.admit`.

        When cancelled, it may still be admitted.
        """
        if not self._is_limited(arrival.address):
            return await self._batches.written(arrival)
        return await asyncio.to_thread(
            self._admission.admit,
            arrival.address,
            arrival.body,
            arrival.idempotency_key,
            arrival.when_busy,
            arrival.trace,
        )

    def close(self) -> None:
        """Admit what is queued, and end. Blocks until then."""
        self._batches.close()
