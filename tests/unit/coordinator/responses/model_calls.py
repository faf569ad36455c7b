"""Models that answer as a test has them, behind the port of calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coordinator.models.calls import CallRecord
from podium.models.errors import ModelError
from podium.models.port import Finished, TextDelta, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

    from coordinator.models.calls import ModelRequest
    from podium.models.port import LLMMessage, LLMStreamChunk

__all__ = ["TestModels", "last_text"]


def last_text(messages: Sequence[LLMMessage]) -> str:
    return messages[-1].text


class TestModels:
    """One profile, ``code.fast``, which answers by a function of the messages; by default it repeats the last one.

    Args:
        answer: returns the chunks of an answer, the last of which may be an error to raise.
    """

    __test__ = False

    def __init__(self, answer: Callable[[ModelRequest], Iterable[LLMStreamChunk | ModelError]] | None = None) -> None:
        self.answer = answer or (lambda request: [TextDelta(f"echo: {last_text(request.messages)}")])
        self.requests: list[ModelRequest] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        """Clear it to have answers stall after their first chunk."""
        self.started = asyncio.Event()
        self.started.set()
        """Clear it to have the model gateway not answer yet."""
        self.running = 0

    async def profiles(self) -> dict[str, Any]:
        await self.started.wait()
        return {"code.fast": {"provider": "scripted"}}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[LLMStreamChunk | CallRecord, None]:
        self.requests.append(request)
        self.running += 1
        try:
            for chunk in self.answer(request):
                if isinstance(chunk, ModelError):
                    record = record_of(request)
                    outcome = {**record.qos_outcome, "profile": None}
                    yield replace(record, status="failed", qos_outcome=outcome)
                    raise chunk
                yield chunk
                await self.go_on.wait()
            yield Usage(input_tokens=7, output_tokens=3)
            yield Finished("stop", "test-model")
            yield record_of(request)
        finally:
            self.running -= 1


def record_of(request: ModelRequest) -> CallRecord:
    return CallRecord(
        call_id=request.call_id,
        tenant=request.tenant,
        owner=request.owner,
        turn=None,
        profile=request.profile,
        provider="scripted",
        model="test-model",
        status="completed",
        error=None,
        input_tokens=7,
        output_tokens=3,
        cached_tokens=0,
        cache_write_tokens=0,
        cache_miss_reason=None,
        cost=None,
        attempts=(),
        started_ms=0,
        ttft_ms=1,
        latency_ms=2,
        qos_outcome={
            "profile": request.profile,
            "provider": "scripted",
            "execution": "managed",
            "degraded": False,
            "degraded_because": None,
            "queued_ms": 0,
            "attempts": 1,
        },
    )
