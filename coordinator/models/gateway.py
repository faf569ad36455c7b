"""`ModelGateway`: makes calls of models by the profiles of a home, and records each. It runs in a process of its own.

A call, and what a kill of the process leaves of it::

    begin: a row `running` ─ budget ─ key ─ provider … chunks … ─ end: the row's result ─ last chunk ─ record
    └ nothing ┘└──────────────── `lost`, when the next process begins ──────────────────┘└── recorded ──

The writes are made by a thread; everything else is on the event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from blake3 import blake3

from chronicle.clock import SystemClock
from coordinator.models.budgets import Spending, cost_of, day_of
from coordinator.models.calls import CallRecord
from coordinator.models.metrics import ModelMetrics
from coordinator.models.routing.admission import Admission
from coordinator.models.routing.call import Candidate, RoutedCall
from coordinator.models.uninterrupted import finish_despite_cancellation
from podium.models.codec import error_to_json
from podium.models.errors import ModelError
from podium.models.port import Finished, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from decimal import Decimal
    from random import Random

    from chronicle.canonical import JsonObject
    from chronicle.clock import Clock
    from coordinator.models.calls import Attempt, CallStatus, ModelRequest
    from coordinator.models.profiles import ModelsConfig, Profile
    from coordinator.models.providers import Providers
    from coordinator.models.records import CallRecords
    from coordinator.telemetry.recorder import Series, Value
    from podium.models.port import LLMMessage, LLMStreamChunk
    from podium.turn.telemetry import Span, Tracer

__all__ = ["ModelGateway"]

_SPAN: Final = "llm.complete"
_DAY_MS: Final = 86_400_000


@dataclass(slots=True)
class _Progress:
    """State of a call in progress."""

    started_s: float
    routed: RoutedCall | None = None
    """``None`` if it was refused before anything was asked."""
    profiles: dict[str, Profile] = field(default_factory=dict)
    """Those that may answer, by name, as they were when the call began."""
    usage: Usage | None = None
    finished: Finished | None = None


class ModelGateway:
    """Makes calls, each by the profile that it names.

    Args:
        config: returns the profiles as they are now; called by threads.
        providers: gives the providers of profiles; the caller closes them after this.
        records: keeps the records; the caller closes it after this.
        tracer: opens a span for each call.
        random: for back-offs.
        clock: the time.
    """

    def __init__(
        self,
        config: Callable[[], ModelsConfig],
        providers: Providers,
        records: CallRecords,
        tracer: Tracer,
        random: Random,
        clock: Clock | None = None,
    ) -> None:
        self._config = config
        self._providers = providers
        self._random = random
        self._admissions: dict[str, Admission] = {}
        """By the names of profiles."""
        self._records = records
        self._tracer = tracer
        self._clock = clock or SystemClock()
        self._spending = Spending()
        self._metrics = ModelMetrics()

    async def profiles(self) -> dict[str, Any]:
        """Return what callers may know of the profiles, by name."""
        config = await asyncio.to_thread(self._config)
        return {
            name: {"provider": profile.provider, "model": profile.model, "fallbacks": list(profile.fallbacks)}
            for name, profile in config.profiles.items()
        }

    def metrics(self) -> dict[Series, Value]:
        """Return what was measured since the process began."""
        return self._metrics.sums()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[LLMStreamChunk | CallRecord, None]:
        """Make a call; see `coordinator.models.calls.ModelCalls`."""
        now_s = self._clock.monotonic_s()
        progress = _Progress(now_s if request.asked_s is None else min(request.asked_s, now_s))
        running = _new_record(request, self._clock.now_ms())
        spent = self._spending.known(request.tenant, running.started_ms)
        begun, left = await finish_despite_cancellation(asyncio.to_thread(self._begin, running, spent))
        if begun is None:
            raise left or ModelError(
                f"there is a call {request.call_id!r} already; give each call an id of its own", "bad_request"
            )
        config, recorded = begun
        spent = self._spending.of(request.tenant, running.started_ms, recorded) if spent is None else spent
        self._metrics.running += 1
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": request.profile,
            "podium.call_id": request.call_id,
            "podium.tenant": request.tenant,
        }
        try:
            with self._tracer.span(_SPAN, attributes, parent=request.traceparent) as span:
                try:
                    if left is not None:  # while its row was written
                        raise left
                    _check_budget(config, request.tenant, spent, running.started_ms)
                    progress.profiles = _profiles_of(config, request)
                    progress.routed = self._routed(progress, request)
                    async with aclosing(self._answer(progress.routed, progress)) as chunks:
                        async for chunk in chunks:
                            yield chunk
                except ModelError as error:
                    span.fail(error.kind, str(error))
                    yield await self._end(running, progress, "failed", span, error)
                    raise
                except (asyncio.CancelledError, GeneratorExit):
                    span.fail("cancelled", "the caller left")
                    await self._end(running, progress, "cancelled", span)
                    raise
                except Exception as error:  # a bug, here or in a provider
                    text = ModelError(f"{type(error).__name__}: {error}", "unavailable")
                    await self._end(running, progress, "failed", span, text)
                    raise
                record = await self._end(running, progress, "completed", span)
        finally:
            self._metrics.running -= 1
        assert progress.finished is not None, "the call was completed"
        yield replace(progress.finished, cost=record.cost)
        yield record

    # -- inside ---------------------------------------------------------------------------------------------------

    def _begin(self, running: CallRecord, spent: Decimal | None) -> tuple[ModelsConfig, Decimal] | None:
        """Record a call; ``None`` if there is one of this id.

        Args:
            spent: what the calls of its tenant cost on its day, if that is known.

        Returns:
            the profiles, and that sum, read if it is not known.
        """
        config = self._config()
        if spent is None:
            spent = self._records.spent(running.tenant, day_of(running.started_ms))
        return (config, spent) if self._records.begin(running) else None

    async def _answer(self, routed: RoutedCall, progress: _Progress) -> AsyncGenerator[LLMStreamChunk, None]:
        """Yield what the call's model, or one of its fallbacks, says, but not that it has finished."""
        async with aclosing(routed.stream()) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Usage):
                    progress.usage = chunk
                if isinstance(chunk, Finished):
                    progress.finished = chunk  # handed out when it is recorded
                else:
                    yield chunk
        if progress.finished is None:
            raise ModelError("the provider's answer has no end", "protocol")

    def _routed(self, progress: _Progress, request: ModelRequest) -> RoutedCall:
        candidates = {name: self._candidate(profile, request) for name, profile in progress.profiles.items()}
        emergency = candidates.pop(progress.profiles[request.profile].emergency_fallback or "", None)
        return RoutedCall(
            [*candidates.values()],
            request.qos,
            self._clock,
            self._random,
            started_s=progress.started_s,
            emergency=emergency,
        )

    def _candidate(self, profile: Profile, request: ModelRequest) -> Candidate:
        attempt = partial(self._attempt, profile, request)
        return Candidate(profile.name, profile.provider, profile.model, attempt, self._admission_of(profile))

    def _admission_of(self, profile: Profile) -> Admission:
        """Return who may call a profile now, under its present limits."""
        limits = profile.limits
        admission = self._admissions.get(profile.name)
        if admission is None:
            admission = self._admissions[profile.name] = Admission(self._clock)
        admission.limit(concurrent=limits.concurrent, per_minute=limits.per_minute)
        return admission

    async def _attempt(self, profile: Profile, request: ModelRequest) -> AsyncGenerator[LLMStreamChunk, None]:
        """Send one request to the provider of a profile."""
        async with self._providers.of(profile) as opened:
            provider = opened.for_call(
                max_output_tokens=_least(request.max_output_tokens, profile.max_output_tokens),
                prompt_cache_key=_cache_key(request),
            )
            messages = _hinted(request.messages, profile)
            answer = provider.stream(messages, tools=request.tools, temperature=request.temperature)
            async with aclosing(answer) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _end(
        self,
        running: CallRecord,
        progress: _Progress,
        status: CallStatus,
        span: Span,
        error: ModelError | None = None,
    ) -> CallRecord:
        """Record the end of a call, also if its task is cancelled meanwhile, and count what it cost."""
        record = self._ended(running, progress, status, error)
        span.set("gen_ai.response.model", record.model)
        for name, tokens in (("input", record.input_tokens), ("output", record.output_tokens)):
            if tokens is not None:
                span.set(f"gen_ai.usage.{name}_tokens", tokens)
        _, left = await finish_despite_cancellation(asyncio.to_thread(self._records.end, record))
        self._spending.add(record.tenant, record.started_ms, record.cost)
        self._metrics.ended(record)
        if left is not None:
            raise left
        return record

    def _ended(
        self, running: CallRecord, progress: _Progress, status: CallStatus, error: ModelError | None
    ) -> CallRecord:
        usage, routed, finished = progress.usage, progress.routed, progress.finished
        attempts = tuple(routed.attempts) if routed is not None else ()
        answered_by = routed.answered_by if routed is not None else None
        last: Candidate | Attempt | None = answered_by or (attempts[-1] if attempts else None)
        profile = progress.profiles.get(last.profile) if last is not None else None
        tokens = (
            (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
            if usage is not None
            else (None, None, None, None)
        )
        return replace(
            running,
            provider=last.provider if last is not None else "",
            model=(finished.model if finished is not None else "") or (last.model if last is not None else ""),
            status=status,
            error=None if error is None else error_to_json(error),
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            cached_tokens=tokens[2],
            cache_write_tokens=tokens[3],
            cache_miss_reason=usage.cache_miss_reason if usage is not None else None,
            cost=cost_of(profile.price if profile is not None else None, *tokens),
            attempts=attempts,
            ttft_ms=routed.ttft_ms if routed is not None else None,
            latency_ms=round((self._clock.monotonic_s() - progress.started_s) * 1000),
            qos_outcome=_outcome(routed, progress.profiles) if routed is not None else {},
        )


def _profiles_of(config: ModelsConfig, request: ModelRequest) -> dict[str, Profile]:
    """Return the profile of a request, and its fallbacks, the emergency's last, as they are for the tenant."""
    profile = config.profiles.get(request.profile)
    if profile is None:
        known = ", ".join(sorted(config.profiles)) or "none"
        raise ModelError(
            f"there is no profile {request.profile!r}; the profiles are: {known}. Add "
            f'[models."{request.profile}"] to podium.toml, and run podium reload',
            "unknown_profile",
        )
    emergency = profile.of_tenant(request.tenant).emergency_fallback
    names = (profile.name, *profile.fallbacks, *([emergency] if emergency is not None else ()))
    return {name: config.profiles[name].of_tenant(request.tenant) for name in names}


def _check_budget(config: ModelsConfig, tenant: str, spent: Decimal, now_ms: int) -> None:
    budget = config.budget(tenant)
    if budget is not None and spent >= budget:
        raise ModelError(
            f"the tenant {tenant} has used up its budget of the day: {spent} of {budget}. It begins anew at "
            "midnight, UTC; [models.budgets] in podium.toml has it",
            "budget_exceeded",
            retry_after_s=(day_of(now_ms) + _DAY_MS - now_ms) / 1000,
        )


def _outcome(routed: RoutedCall, profiles: Mapping[str, Profile]) -> JsonObject:
    """Return what became of the quality of service, and who answered: provider, and whose key and server."""
    profile = profiles[routed.answered_by.profile] if routed.answered_by is not None else None
    provider, execution = (profile.provider, profile.execution) if profile is not None else (None, None)
    return {**routed.qos_outcome, "provider": provider, "execution": execution}


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _cache_key(request: ModelRequest) -> str | None:
    """Return the key under which a provider looks for what it has computed: by default that of the owner.

    It tells the provider neither the tenant nor the agent.
    """
    name = request.prompt_cache_key or request.owner
    return blake3(f"{request.tenant}\0{name}".encode()).hexdigest()[:32] if name else None


def _hinted(messages: Sequence[LLMMessage], profile: Profile) -> Sequence[LLMMessage]:
    """Return the messages with the profile's prompt cache hint at the end, unless they have hints of their own."""
    if profile.cache is None or not messages or any(message.cache for message in messages):
        return messages
    return [*messages[:-1], replace(messages[-1], cache=profile.cache)]


def _new_record(request: ModelRequest, now_ms: int) -> CallRecord:
    return CallRecord(
        call_id=request.call_id,
        tenant=request.tenant,
        owner=request.owner,
        turn=request.turn,
        profile=request.profile,
        provider="",
        model="",
        status="running",
        error=None,
        input_tokens=None,
        output_tokens=None,
        cached_tokens=None,
        cache_write_tokens=None,
        cache_miss_reason=None,
        cost=None,
        attempts=(),
        started_ms=now_ms,
        ttft_ms=None,
        latency_ms=None,
        qos_outcome={},
    )
