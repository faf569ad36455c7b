"""One model's part in a call: places, attempts and back-offs, until one attempt says something."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.models.calls import Attempt
from coordinator.models.routing.policy import SATURATED, RetryPolicy, wait_before_retry
from podium.models.errors import ModelError
from podium.models.port import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from random import Random

    from chronicle.clock import Clock
    from coordinator.models.routing.admission import Admission
    from podium.models.port import LLMStreamChunk
    from podium.models.quality import QualityOfService

__all__ = ["Candidate", "Lane", "Terms"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer the call."""

    profile: str
    provider: str
    model: str
    open: Callable[[], AsyncGenerator[LLMStreamChunk, None]]
    """Makes one attempt. The stream may be begun in one task, and read further and closed in another."""
    admission: Admission


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms that all candidates of a call share."""

    qos: QualityOfService
    clock: Clock
    random: Random
    policy: RetryPolicy
    fallbacks_left: deque[Candidate]
    """Those that were not begun."""
    started_s: float
    attempts: list[Attempt] = field(default_factory=list)
    """Those that ended."""

    @property
    def deadline_s(self) -> float | None:
        """The monotonic time of the deadline; ``None`` without one."""
        return None if self.qos.deadline_ms is None else self.started_s + self.qos.deadline_ms / 1000

    @property
    def left_s(self) -> float | None:
        """Seconds to the deadline; ``None`` without one."""
        return None if self.deadline_s is None else self.deadline_s - self.clock.monotonic_s()


@dataclass
class Lane:
    """One candidate on its way.

    Args:
        candidate: the model.
        terms: those of the call.
        number: its place among the lanes of the call.
    """

    candidate: Candidate
    terms: Terms
    number: int
    first: list[LLMStreamChunk] = field(default_factory=list)
    """The first token, and what came before it."""
    waits_for_place: bool = True
    queued_ms: int = 0
    left_because: str = "cancelled: the caller left"
    """Text in the record of an attempt that is left before its end."""
    _held: AsyncExitStack = field(default_factory=AsyncExitStack)
    _stream: AsyncGenerator[LLMStreamChunk, None] | None = None
    _started_ms: int = 0
    _ttft_ms: int | None = None

    async def open(self) -> None:
        """Make attempts until one says something; the stream is then behind its first token.

        Raises:
            ModelError: no further attempt is to be made; that of the last one.
        """
        terms, made = self.terms, 0
        while True:
            await self._wait_for_place()
            made += 1
            try:
                await self._attempt()
            except ModelError as error:
                self.left_because = f"{error.kind}: {error}"
                await self.leave()
                if error.retry_after_s is not None and error.kind in SATURATED:
                    self.candidate.admission.pause(error.retry_after_s)
                has_fallback = bool(terms.fallbacks_left)
                wait_s = wait_before_retry(
                    terms.policy, error, made, terms.random, has_fallback=has_fallback, left_s=terms.left_s
                )
                if wait_s is None:
                    raise
                await asyncio.sleep(wait_s)
            else:
                return

    async def next(self) -> LLMStreamChunk | None:
        """Return the next chunk; ``None`` at the end."""
        return await anext(self._stream, None) if self._stream is not None else None

    def end(self, error: str | None) -> None:
        """Record the end of the attempt that runs, if one does."""
        if self._stream is None:
            return
        self._stream = None
        of, now_ms = self.candidate, self.terms.clock.now_ms()
        attempt = Attempt(of.provider, of.model, self._started_ms, self._ttft_ms, now_ms, error, of.profile)
        self.terms.attempts.append(attempt)

    async def leave(self) -> None:
        """End the attempt that runs, if one does, and give its place back."""
        self.end(self.left_because)
        held, self._held = self._held, AsyncExitStack()
        await held.aclose()

    async def _wait_for_place(self) -> None:
        clock = self.terms.clock
        since_s = clock.monotonic_s()
        self.waits_for_place = True
        await self._held.enter_async_context(self.candidate.admission.place(self.terms.qos))
        self.waits_for_place = False
        self.queued_ms += round((clock.monotonic_s() - since_s) * 1000)

    async def _attempt(self) -> None:
        clock = self.terms.clock
        self._started_ms, started_s = clock.now_ms(), clock.monotonic_s()
        self.first, self._ttft_ms = [], None
        self._stream = await self._held.enter_async_context(aclosing(self.candidate.open()))
        while (chunk := await anext(self._stream, None)) is not None:
            self.first.append(chunk)
            if not isinstance(chunk, Usage):
                self._ttft_ms = round((clock.monotonic_s() - started_s) * 1000)
                return
