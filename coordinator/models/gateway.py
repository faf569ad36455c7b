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
from typing import TYPE_CHECKING, Any, Final

from blake3 import blake3

from chronicle.clock import SystemClock
from coordinator.models.budgets import Spending, cost_of, day_of
from coordinator.models.calls import Attempt, CallRecord
from coordinator.models.metrics import ModelMetrics
from podium.models.codec import error_to_json
from podium.models.errors import ModelError
from podium.models.port import Finished, ReasoningDelta, TextDelta, ToolCallDelta, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from decimal import Decimal

    from chronicle.canonical import JsonObject
    from chronicle.clock import Clock
    from coordinator.models.calls import CallStatus, ModelRequest
    from coordinator.models.profiles import ModelsConfig, Profile
    from coordinator.models.providers import Providers
    from coordinator.models.record_store import RecordStore
    from coordinator.telemetry.recorder import Series, Value
    from podium.models.port import LLMMessage, LLMStreamChunk
    from podium.turn.telemetry import Span, Tracer

__all__ = ["ModelGateway"]

_SPAN: Final = "llm.complete"
_DAY_MS: Final = 86_400_000
_OF_TOKENS: Final = (TextDelta, ReasoningDelta, ToolCallDelta)


@dataclass(slots=True)
class _Progress:
    """What is known of a call that runs."""

    started_s: float
    ttft_ms: int | None = None
    usage: Usage | None = None
    finished: Finished | None = None
    attempts: list[Attempt] = field(default_factory=list)
    answered_by: Profile | None = None
    qos_outcome: JsonObject = field(default_factory=dict)


class ModelGateway:
    """Makes calls, each by the profile that it names.

    Args:
        config: returns the profiles as they are now.
        providers: gives the providers of profiles; the caller closes them after this.
        records: keeps the records; the caller closes it after this.
        tracer: opens a span for each call.
        clock: the time.
    """

    def __init__(
        self,
        config: Callable[[], ModelsConfig],
        providers: Providers,
        records: RecordStore,
        tracer: Tracer,
        clock: Clock | None = None,
    ) -> None:
        self._config = config
        self._providers = providers
        self._records = records
        self._tracer = tracer
        self._clock = clock or SystemClock()
        self._spending = Spending(records.spent)
        self._metrics = ModelMetrics()

    def profiles(self) -> dict[str, Any]:
        """Return what callers may know of the profiles, by name."""
        return {
            name: {"provider": profile.provider, "model": profile.model, "fallbacks": list(profile.fallbacks)}
            for name, profile in self._config().profiles.items()
        }

    def metrics(self) -> dict[Series, Value]:
        """Return what was measured since the process began."""
        return self._metrics.sums()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[LLMStreamChunk | CallRecord, None]:
        """Make a call; see `coordinator.models.calls.ModelCalls`."""
        progress = _Progress(self._clock.monotonic_s())
        running = _new_record(request, self._clock.now_ms())
        spent = self._spending.of(request.tenant, running.started_ms)  # before the row: it counts from now on
        if not await asyncio.to_thread(self._records.begin, running):
            raise ModelError(
                f"there is a call {request.call_id!r} already; give each call an id of its own", "bad_request"
            )
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
                    self._check_budget(request.tenant, spent, running.started_ms)
                    async with aclosing(self._answer(request, progress)) as chunks:
                        async for chunk in chunks:
                            if isinstance(chunk, Finished):
                                progress.finished = chunk  # handed out when it is recorded
                                continue
                            yield chunk
                    if progress.finished is None:
                        raise ModelError("the provider's answer has no end", "protocol")
                except ModelError as error:
                    span.fail(error.kind, str(error))
                    await self._end(running, progress, "failed", span, error)
                    raise
                except (asyncio.CancelledError, GeneratorExit):
                    span.fail("cancelled", "the caller left")
                    await self._end_shielded(running, progress, "cancelled", span)
                    raise
                except Exception as error:  # a bug, here or in a provider
                    text = ModelError(f"{type(error).__name__}: {error}", "unavailable")
                    await self._end(running, progress, "failed", span, text)
                    raise
                record = await self._end(running, progress, "completed", span)
        finally:
            self._metrics.running -= 1
        yield progress.finished
        yield record

    # -- inside ---------------------------------------------------------------------------------------------------

    async def _answer(self, request: ModelRequest, progress: _Progress) -> AsyncGenerator[LLMStreamChunk, None]:
        """Ask the profile, and its fallbacks while nothing was said."""
        profiles = self._candidates(request)
        while True:
            profile = profiles.pop(0)
            try:
                async with aclosing(self._attempt(profile, request, progress)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except ModelError as error:
                if not profiles or progress.ttft_ms is not None or not error.may_succeed_elsewhere:
                    raise

    async def _attempt(
        self, profile: Profile, request: ModelRequest, progress: _Progress
    ) -> AsyncGenerator[LLMStreamChunk, None]:
        started_ms, started_s = self._clock.now_ms(), self._clock.monotonic_s()
        ttft_ms: int | None = None
        failure: str | None = "the caller left"
        progress.answered_by = profile
        try:
            async with self._providers.of(profile) as opened:
                provider = opened.for_call(
                    max_output_tokens=_least(request.max_output_tokens, profile.max_output_tokens),
                    prompt_cache_key=_cache_key(request),
                )
                messages = _hinted(request.messages, profile)
                answer = provider.stream(messages, tools=request.tools, temperature=request.temperature)
                async with aclosing(answer) as chunks:
                    async for chunk in chunks:
                        if ttft_ms is None and isinstance(chunk, _OF_TOKENS):
                            now_s = self._clock.monotonic_s()
                            ttft_ms = round((now_s - started_s) * 1000)
                            progress.ttft_ms = round((now_s - progress.started_s) * 1000)
                        if isinstance(chunk, Usage):
                            progress.usage = chunk
                        yield chunk
            failure = None
        except ModelError as error:
            failure = f"{error.kind}: {error}"
            raise
        finally:
            ended_ms = self._clock.now_ms()
            progress.attempts.append(
                Attempt(profile.provider, profile.model, started_ms, ttft_ms, ended_ms, failure, profile.name)
            )

    def _candidates(self, request: ModelRequest) -> list[Profile]:
        """Return the profile of a request, and its fallbacks if they are permitted."""
        config = self._config()
        profile = config.profiles.get(request.profile)
        if profile is None:
            known = ", ".join(sorted(config.profiles)) or "none"
            raise ModelError(
                f"there is no profile {request.profile!r}; the profiles are: {known}. Add "
                f'[models."{request.profile}"] to podium.toml, and run podium reload',
                "unknown_profile",
            )
        names = [profile.name]
        if request.qos.degrade_policy != "forbid":
            names += profile.fallbacks
        return [config.profiles[name].of_tenant(request.tenant) for name in names]

    def _check_budget(self, tenant: str, spent: Decimal, now_ms: int) -> None:
        budget = self._config().budget(tenant)
        if budget is not None and spent >= budget:
            raise ModelError(
                f"the tenant {tenant} has used up its budget of the day: {spent} of {budget}. It begins anew at "
                "midnight, UTC; [models.budgets] in podium.toml has it",
                "budget_exceeded",
                retry_after_s=(day_of(now_ms) + _DAY_MS - now_ms) / 1000,
            )

    async def _end_shielded(self, running: CallRecord, progress: _Progress, status: CallStatus, span: Span) -> None:
        """Record the end of a call although its task is being cancelled."""
        ending = asyncio.get_running_loop().create_task(
            self._end(running, progress, status, span), name=f"end of {running.call_id}"
        )
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:  # once more
                if ending.cancelled():
                    raise
        ending.result()

    async def _end(
        self,
        running: CallRecord,
        progress: _Progress,
        status: CallStatus,
        span: Span,
        error: ModelError | None = None,
    ) -> CallRecord:
        record = self._ended(running, progress, status, error)
        span.set("gen_ai.response.model", record.model)
        for name, tokens in (("input", record.input_tokens), ("output", record.output_tokens)):
            if tokens is not None:
                span.set(f"gen_ai.usage.{name}_tokens", tokens)
        await asyncio.to_thread(self._records.end, record)
        self._spending.add(record.tenant, record.started_ms, record.cost)
        self._metrics.ended(record)
        return record

    def _ended(
        self, running: CallRecord, progress: _Progress, status: CallStatus, error: ModelError | None
    ) -> CallRecord:
        usage, profile = progress.usage, progress.answered_by
        tokens = (
            (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
            if usage is not None
            else (None, None, None, None)
        )
        return replace(
            running,
            provider=profile.provider if profile is not None else "",
            model=(progress.finished.model if progress.finished is not None else "")
            or (profile.model if profile is not None else ""),
            status=status,
            error=None if error is None else error_to_json(error),
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            cached_tokens=tokens[2],
            cache_write_tokens=tokens[3],
            cache_miss_reason=usage.cache_miss_reason if usage is not None else None,
            cost=cost_of(profile.price if profile is not None else None, *tokens),
            attempts=tuple(progress.attempts),
            ttft_ms=progress.ttft_ms,
            latency_ms=round((self._clock.monotonic_s() - progress.started_s) * 1000),
            qos_outcome=progress.qos_outcome,
        )


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
