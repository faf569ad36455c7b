"""`HostModels`: calls of models by a host's agents, through the model gateway of the home.

It is all that an agent's process has of models: nothing is imported before the first call, and no vendor's library at
all.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from chronicle.clock import Clock
    from chronicle.ids import IdSource
    from podium.models.port import LLMStreamChunk
    from podium.turn.ports import ModelCall

__all__ = ["HostModels"]


class HostModels:
    """A `podium.turn.ports.Models`.

    Args:
        socket: the model gateway's.
    """

    def __init__(self, socket: Path, ids: IdSource, clock: Clock) -> None:
        self._socket = socket
        self._ids = ids
        self._clock = clock

    async def stream(self, call: ModelCall) -> AsyncGenerator[LLMStreamChunk, None]:
        """Make a call; see `Models.stream`."""
        from coordinator.models.calls import CallRecord, ModelRequest  # noqa: PLC0415  for agents that call models
        from coordinator.models.client import ModelClient  # noqa: PLC0415

        request = ModelRequest(
            self._ids.other("call_", self._clock.now_ms()),
            call.address.tenant,
            call.profile,
            call.messages,
            call.tools,
            call.temperature,
            call.max_output_tokens,
            call.qos,
            call.address.name,
            call.turn,
            traceparent=call.traceparent,
            asked_s=self._clock.monotonic_s(),
        )
        async with aclosing(ModelClient(self._socket).stream(request)) as answers:
            async for answer in answers:
                if not isinstance(answer, CallRecord):
                    yield answer
