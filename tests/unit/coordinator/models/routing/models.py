"""Models for tests of routing: streams in virtual time, whose attempts go as planned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from coordinator.models.routing.admission import Admission
from coordinator.models.routing.call import Candidate, RoutedCall
from podium.models.errors import ModelError
from podium.models.port import Finished, LLMStreamChunk, TextDelta, Usage
from podium.models.quality import QualityOfService
from podium.testing.simulation.virtual_time import LoopClock, VirtualLoop

T = TypeVar("T")


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test in a loop of its own, whose time is virtual."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(test())


def clock() -> LoopClock:
    return LoopClock(asyncio.get_running_loop())


@dataclass
class Attempt:
    """How one attempt goes."""

    ttft_s: float = 0.1
    words: tuple[str, ...] = ("Hello", " you")
    gap_s: float = 0.1
    error: ModelError | None = None
    error_after: int = 0
    """Words before the error."""


@dataclass
class Model:
    """A model with its limits, and what was seen of it."""

    name: str
    attempts: list[Attempt] = field(default_factory=list)
    """The last one is repeated."""
    concurrent: int | None = None
    per_minute: int | None = None
    asked_at_s: list[float] = field(default_factory=list)
    open_now: int = 0
    most_open: int = 0
    admission: Admission = field(init=False)

    def __post_init__(self) -> None:
        self.admission = Admission(clock(), concurrent=self.concurrent, per_minute=self.per_minute)
        self.attempts = self.attempts or [Attempt()]

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.name, "test", f"{self.name}-1", self._open, self.admission)

    async def _open(self) -> AsyncGenerator[LLMStreamChunk, None]:
        plan = self.attempts[min(len(self.asked_at_s), len(self.attempts) - 1)]
        self.asked_at_s.append(round(clock().monotonic_s(), 6))
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            yield Usage(input_tokens=3)
            await asyncio.sleep(plan.ttft_s)
            for number, word in enumerate(plan.words):
                if plan.error is not None and number == plan.error_after:
                    raise plan.error
                yield TextDelta(word)
                await asyncio.sleep(plan.gap_s)
            yield Usage(input_tokens=3, output_tokens=len(plan.words))
            yield Finished("stop", f"{self.name}-1")
        finally:
            self.open_now -= 1


def route(*models: Model, seed: int = 7, emergency: Model | None = None, **qos: Any) -> RoutedCall:
    return RoutedCall(
        [model.candidate for model in models],
        QualityOfService(**qos),
        clock(),
        Random(seed),
        emergency=emergency.candidate if emergency is not None else None,
    )


async def text_of(call: RoutedCall) -> str:
    return "".join([chunk.text async for chunk in call.stream() if isinstance(chunk, TextDelta)])


def fails(kind: Any, **fields: Any) -> Attempt:
    return Attempt(error=ModelError(f"{kind} it is", kind, **fields))
