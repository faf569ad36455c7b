"""One call on its way: attempts with its model and with others, until one of them says something.

::

    primary   ── waits for a place ── attempt ── back-off ── attempt ──► first token ──► the rest
    fallback              └ the primary is saturated or slow, or has failed ── attempt ──► …

Until the first token several models may be asked side by side, each in a task; the first that says something has the
call, and the others are left. From then on there is one stream, read by the caller's task, and a failure is the call's:
what a client has read is not said again in other words. Usage alone is no token. The deadline holds over all of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from coordinator.models.routing.lane import Candidate, Lane, Terms
from coordinator.models.routing.policy import BROKEN, SATURATED, RetryPolicy, patience_s
from coordinator.models.uninterrupted import finish_despite_cancellation
from podium.models.errors import ModelError
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Sequence
    from random import Random

    from chronicle.canonical import JsonObject
    from chronicle.clock import Clock
    from coordinator.models.calls import Attempt
    from podium.models.port import LLMStreamChunk
    from podium.models.quality import QualityOfService

__all__ = ["Candidate", "RoutedCall"]

Degraded: TypeAlias = Literal["saturated", "slow", "failed"]
_DEFAULT_POLICY: Final = RetryPolicy()


class RoutedCall:
    """One call; `stream` carries it out, once.

    Args:
        candidates: the call's own model, then those that may take its place, the best first.
        qos: its quality of service. With the policy ``forbid`` only the first candidate is asked.
        clock: the time; its monotonic time must be that of the event loop's timers.
        random: for back-offs.
        policy: how often a model is asked again.
        started_s: the monotonic time from which target and deadline count; ``None`` for now.
        emergency: asked when the call's own model does not work, and all other candidates have failed; not with the
            policy ``forbid``. ``None`` for none.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        qos: QualityOfService,
        clock: Clock,
        random: Random,
        policy: RetryPolicy = _DEFAULT_POLICY,
        started_s: float | None = None,
        emergency: Candidate | None = None,
    ) -> None:
        self._primary, *others = candidates
        allowed = qos.degrade_policy == "allow_compatible_fallback"
        self._left = deque(others if allowed else ())
        self._emergency = emergency if allowed else None
        started_s = clock.monotonic_s() if started_s is None else started_s
        self._terms = Terms(qos, clock, random, policy, self._left, started_s)
        self._tasks = BackgroundTasks()
        self._lanes: dict[asyncio.Task[None], Lane] = {}
        self._begun = 0
        self._why: Degraded | None = None
        self._chosen: Lane | None = None
        self._ttft_ms: int | None = None
        self._deadline_met: bool | None = None

    @property
    def attempts(self) -> Sequence[Attempt]:
        """The attempts that ended, in the order of their ends."""
        return self._terms.attempts

    @property
    def answered_by(self) -> Candidate | None:
        """The candidate that has the call; ``None`` before its first token."""
        return self._chosen.candidate if self._chosen is not None else None

    @property
    def ttft_ms(self) -> int | None:
        """From the call's start to its first token, waiting included; ``None`` before it."""
        return self._ttft_ms

    @property
    def qos_outcome(self) -> JsonObject:
        """Outcome of the quality of service, as far as it is known.

        ``profile`` is the profile that answered, ``degraded`` whether it is another than the call's, and
        ``degraded_because`` why: ``saturated`` (by the profile's limits, or by its provider's), ``slow`` or ``failed``.
        ``ttft_met`` and ``deadline_met`` are null without a target or deadline. ``queued_ms`` is how long the profile
        that answered had the call wait for a place.
        """
        qos, chosen = self._terms.qos, self._chosen
        degraded = chosen is not None and chosen.candidate is not self._primary
        target = qos.target_ttft_ms
        return {
            "class": qos.qos_class,
            "priority": qos.priority,
            "profile": chosen.candidate.profile if chosen is not None else None,
            "degraded": degraded,
            "degraded_because": self._why if degraded else None,
            "target_ttft_ms": target,
            "ttft_ms": self._ttft_ms,
            "ttft_met": None if target is None else self._ttft_ms is not None and self._ttft_ms <= target,
            "deadline_ms": qos.deadline_ms,
            "deadline_met": self._deadline_met,
            "queued_ms": chosen.queued_ms if chosen is not None else None,
            "attempts": len(self.attempts),
        }

    async def stream(self) -> AsyncGenerator[LLMStreamChunk, None]:
        """Yield the answer.

        Closing it, or cancelling its consumer, ends all attempts; they have ended when it returns.

        Raises:
            ModelError: that of the call's own model, with notes about the others; ``deadline_exceeded``.
        """
        try:
            chosen = await self._race()
            self._ttft_ms = self._since_start_ms()
            for chunk in chosen.first:
                yield chunk
            while (more := await self._within_deadline(chosen.next())) is not None:
                yield more
            chosen.end(None)
            self._deadline_met = True if self._terms.deadline_s is not None else None
        except ModelError as error:
            if error.kind == "deadline_exceeded":
                self._deadline_met = False
            for lane in (*self._lanes.values(), *((self._chosen,) if self._chosen is not None else ())):
                lane.left_because = f"{error.kind}: {error}"
            raise
        finally:
            await _clean_up(self._leave())

    # -- until the first token ---------------------------------------------------------------------------------------

    async def _race(self) -> Lane:
        """Return the first lane that says something; the others have been left."""
        self._check_deadline()
        self._start(self._primary)
        checks = self._checks()
        failed: list[tuple[Lane, ModelError]] = []
        while True:
            done, _ = await asyncio.wait(self._lanes, timeout=self._wait_s(checks), return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda each: self._lanes[each].number):
                error = task.exception()
                if error is None:
                    chosen = self._chosen = self._lanes.pop(task)  # first, as the caller may leave from here on
                    for other in self._lanes.values():
                        other.left_because = f"superseded: {chosen.candidate.profile} answered first"
                    await _clean_up(self._leave_lanes())
                    return chosen
                if not isinstance(error, ModelError):
                    raise error
                failed.append((self._lanes.pop(task), error))
                self._after_failure(failed)
            self._check_deadline()
            self._begin_others_if_due(checks)

    def _checks(self) -> deque[float]:
        """When to look whether another candidate is to begin: at half of the patience, at its end, and so on."""
        patience = patience_s(self._terms.qos)
        if patience is None or not self._left:
            return deque()
        return deque(self._terms.started_s + patience * part for part in (0.5, *range(1, len(self._left) + 1)))

    def _wait_s(self, checks: deque[float]) -> float | None:
        now_s = self._terms.clock.monotonic_s()
        waits = [at_s - now_s for at_s in (*list(checks)[:1], self._terms.deadline_s) if at_s is not None]
        return max(0.0, min(waits)) if waits else None

    def _begin_others_if_due(self, checks: deque[float]) -> None:
        """Begin another candidate if all wait for places, or if the patience is over and nobody else was asked."""
        now_s = self._terms.clock.monotonic_s()
        patience_end_s = self._terms.started_s + (patience_s(self._terms.qos) or 0.0)
        while checks and checks[0] <= now_s:
            check_s = checks.popleft()
            lanes = list(self._lanes.values())
            if self._left and all(lane.waits_for_place for lane in lanes):
                self._start(self._left.popleft(), "saturated")
            elif self._left and check_s >= patience_end_s and [lane.candidate for lane in lanes] == [self._primary]:
                self._start(self._left.popleft(), "slow")

    def _after_failure(self, failed: list[tuple[Lane, ModelError]]) -> None:
        """Begin the next candidate, or raise the error of the call's own model if nothing is left to wait for."""
        lane, error = failed[-1]
        if lane.candidate is self._primary and not error.may_succeed_elsewhere:
            raise error
        if self._left:
            self._start(self._left.popleft(), "saturated" if error.kind in SATURATED else "failed")
        elif not self._lanes:
            (own,) = (error for lane, error in failed if lane.candidate is self._primary)
            if self._emergency is not None and own.kind in BROKEN:
                self._start(self._emergency, "failed")
                self._emergency = None
                return
            for lane, other in failed:
                if other is not own:
                    own.add_note(f"{lane.candidate.profile} failed, too: {other.kind}: {other}")
            raise own

    def _start(self, candidate: Candidate, why: Degraded | None = None) -> None:
        self._why = self._why or why
        lane = Lane(candidate, self._terms, self._begun)
        self._begun += 1
        task = self._tasks.start(lane.open(), f"model call: {candidate.profile}")
        self._lanes[task] = lane

    async def _leave(self) -> None:
        try:
            await self._leave_lanes()
        finally:
            if self._chosen is not None:
                await self._chosen.leave()

    async def _leave_lanes(self) -> None:
        """End the lanes that are left; their attempts are recorded and their places given back on return."""
        lanes, self._lanes = self._lanes, {}
        for task in lanes:
            task.cancel()
        if lanes:
            await asyncio.wait(lanes)
        for task, lane in lanes.items():
            await lane.leave()
            if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ModelError):
                raise error

    # -- time ----------------------------------------------------------------------------------------------------------

    def _check_deadline(self) -> None:
        if (left_s := self._terms.left_s) is not None and left_s <= 0:
            raise self._too_late()

    async def _within_deadline(self, coming: Coroutine[Any, Any, LLMStreamChunk | None]) -> LLMStreamChunk | None:
        try:
            async with asyncio.timeout(self._terms.left_s) as limit:
                return await coming
        except TimeoutError:
            if limit.expired():
                raise self._too_late() from None
            raise

    def _too_late(self) -> ModelError:
        return ModelError(f"the deadline of {self._terms.qos.deadline_ms} ms passed", "deadline_exceeded")

    def _since_start_ms(self) -> int:
        return round((self._terms.clock.monotonic_s() - self._terms.started_s) * 1000)


async def _clean_up(cleaning: Coroutine[Any, Any, None]) -> None:
    """Wait for a cleaning although this task is cancelled while it goes on; the cancellation is raised afterwards."""
    _, cancelled = await finish_despite_cancellation(cleaning)
    if cancelled is not None:
        raise cancelled
