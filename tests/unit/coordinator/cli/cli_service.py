"""A stand-in for a service's client: it answers as a service does, in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from coordinator.service.client import AgentRef, ServiceError, ServiceRefused
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["REF", "Service"]

REF = AgentRef("/agents/echo.py", "Echo", "echo")


class Service:
    """Answers a message with its text; ``fail`` fails; ``wait`` goes on until it is cancelled.

    An agent cannot be woken for ``too new``, and the service ends under ``lost``.

    Args:
        on_wait: called when a reply that waits has begun.
    """

    def __init__(self, on_wait: Callable[[], None] = lambda: None) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.policies: list[BusyPolicy] = []
        self.cancelled: dict[str, asyncio.Event] = {}
        self._on_wait = on_wait

    async def send(
        self, agent: AgentRef, key: str, message: dict[str, Any], *, when_busy: BusyPolicy = BusyPolicy.ENQUEUE
    ) -> AsyncIterator[dict[str, Any]]:
        self.sent.append((key, message))
        self.policies.append(when_busy)
        message_id = f"msg_{len(self.sent)}"
        cancelled = self.cancelled[message_id] = asyncio.Event()
        text = message["text"]
        if text == "busy":
            raise ServiceRefused("AgentBusy", "echo/a is busy")
        yield {"type": "accepted", "message_id": message_id, "position": len(self.sent), "before": 0}
        if text == "too new":
            raise ServiceRefused("StateTooNew", "the stored state has version 2")
        if text == "lost":
            raise ServiceError("the service of this home ended")
        if text == "wait":
            yield {"type": "message_update", "message_id": message_id, "reply_id": "r", "delta": "so far"}
            self._on_wait()
            await cancelled.wait()
            error = {"type": "Cancelled", "message": "its sender took it back"}
            yield {"type": "error", "message_id": message_id, "error": error, "parked": False}
        elif text == "fail":
            error = {"type": "ValueError", "message": "no"}
            yield {"type": "error", "message_id": message_id, "error": error, "parked": True}
        else:
            yield {"type": "message_update", "message_id": message_id, "reply_id": "r", "delta": text}
            yield {"type": "message_end", "message_id": message_id, "reply_id": "r", "text": text}
            yield {"type": "turn_end", "message_id": message_id, "turn": 1, "version": 1, "patch": []}

    async def cancel(self, agent: str, message_id: str) -> None:
        assert agent == "echo/a"
        self.cancelled[message_id].set()
