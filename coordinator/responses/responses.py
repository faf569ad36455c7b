"""`HomeResponses`: what a client may do with responses. Free of HTTP.

A response runs as a task of its own, to which any number of readers listen. Its record is durable before its last event
is handed out. One without readers is cancelled, unless its request has an idempotency key, by which the client can come
back for it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar, cast

from chronicle.canonical import encode
from chronicle.errors import ChronicleError, IdempotencyConflict
from coordinator.models.calls import CallRecord, ModelCalls, ModelRequest
from coordinator.operations.errors import ResponseFailed
from coordinator.responses.body import QosBody
from coordinator.responses.context import ContextBuilder, context_messages
from coordinator.responses.encoder import ResponseEncoder, replayed
from coordinator.responses.items import dumped, user_item
from coordinator.responses.records import ResponseRecord, delete_response, read_record, read_response, store_record
from coordinator.responses.run import ResponseRun
from coordinator.sessions.repetition import repetition_of
from podium.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import JsonObject
    from chronicle.clock import Clock
    from chronicle.ids import IdSource
    from chronicle.journal.objects import Repetition
    from chronicle.journal.port import JournalStore
    from coordinator.responses.body import ResponseBody
    from coordinator.responses.context import BranchContext, BranchReader
    from coordinator.responses.objects import DeletedResponse, ResponseObject
    from podium.models.quality import QualityOfService

__all__ = ["HomeResponses", "Models", "Stores"]

_MOST_S: Final = 3600.0
"""Limit of a response without a deadline."""
_GRACE_S: Final = 2.0
"""How long after its deadline a response waits for the model gateway, which ends it in time unless it hangs."""
_STORE_S: Final = 30.0
"""Timeout of storing a response that was cancelled."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Stores(Protocol):
    """The journal and the blobs of a home."""

    async def read(self, call: Callable[[JournalStore, BlobStore], _T]) -> _T:
        """Return the result of a read, made in a thread."""
        ...

    async def write(self, call: Callable[[JournalStore, BlobStore], _T]) -> _T:
        """Return the result of a write, made in a thread. It goes on if the caller is cancelled."""
        ...


class Models(ModelCalls, Protocol):
    """The model gateway."""

    async def profiles(self) -> JsonObject:
        """Return the profiles by name."""
        ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for a response, checked."""

    tenant: str
    started_s: float
    created_ms: int
    begun: ResponseObject
    request: ModelRequest
    input: Sequence[JsonObject]
    repetition: Repetition | None


class HomeResponses:
    """The responses of a home.

    Args:
        stores: of the home; the caller closes them.
        reader: returns what reads sessions from them.
        models: the model gateway.
        clock: the time.
        ids: makes ids.
    """

    def __init__(
        self,
        stores: Stores,
        reader: Callable[[JournalStore, BlobStore], BranchReader],
        models: Models,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._stores = stores
        self._reader = reader
        self._models = models
        self._clock = clock
        self._ids = ids
        self._contexts = ContextBuilder()
        self._tasks = asyncio.TaskGroup()
        self._running: dict[ResponseRun, asyncio.Task[None]] = {}
        self._of_key: dict[tuple[str, str], tuple[str, asyncio.Future[ResponseRun]]] = {}
        """By tenant and key: what was asked for, and its run, while it is made."""
        self._known_profiles: frozenset[str] = frozenset()
        self._closing = False

    async def __aenter__(self) -> Self:
        """Be ready."""
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all responses, whose readers get a last event."""
        self.close()
        await self._tasks.__aexit__(None, None, None)

    def close(self) -> None:
        """End the responses that run; each gets its last event."""
        self._closing = True
        for task in list(self._running.values()):
            task.cancel()

    async def respond(
        self, tenant: str, body: ResponseBody, idempotency_key: str | None = None, traceparent: str | None = None
    ) -> ResponseRun:
        """Begin a response, or join the one that the same request began before.

        Raises:
            ModelError: there is no such profile, or the model gateway cannot be reached.
            NotFound: there is no such session in the tenant, no such branch in the session, or no such event.
            EmptyContext: there is nothing to answer.
            IdempotencyConflict: the key was used with another body.
        """
        if idempotency_key is None:
            return await self._begin(tenant, body, None, traceparent)
        asked = body.model_dump(mode="json", by_alias=True, exclude={"stream"})
        repetition = cast("Repetition", repetition_of("POST /v2/responses", idempotency_key, asked))
        key = (tenant, idempotency_key)
        if (there := self._of_key.get(key)) is not None:
            digest, found = there
            if digest != repetition.request_sha256:
                raise IdempotencyConflict(idempotency_key)
            return await asyncio.shield(found)
        found = asyncio.get_running_loop().create_future()
        self._of_key[key] = (repetition.request_sha256, found)
        try:
            run = await self._stored(tenant, repetition, idempotency_key) or await self._begin(
                tenant, body, repetition, traceparent
            )
        except BaseException as error:
            del self._of_key[key]
            found.set_exception(error if isinstance(error, Exception) else ConnectionAbortedError())
            found.exception()  # nobody may wait for it
            raise
        found.set_result(run)
        if (task := self._running.get(run)) is not None:
            task.add_done_callback(lambda _: self._of_key.pop(key, None))
        else:
            del self._of_key[key]
        return run

    async def response(self, tenant: str, response_id: str) -> ResponseObject:
        """Return a stored response, with its input.

        Raises:
            UnknownResponse: there is none of that id in the tenant.
        """
        record = await self._stores.read(lambda store, blobs: read_response(store, blobs, tenant, response_id))
        return {**record.response, "input": [dict(item) for item in record.input]}

    async def delete(self, tenant: str, response_id: str) -> DeletedResponse:
        """Delete a stored response, durably. Events for which it stands have no text afterwards.

        Raises:
            UnknownResponse: there is none of that id in the tenant.
        """
        await self._stores.write(lambda store, _: delete_response(store, tenant, response_id))
        return {"id": response_id, "object": "response", "deleted": True}

    # -- beginning --------------------------------------------------------------------------------------------------

    async def _begin(
        self, tenant: str, body: ResponseBody, repetition: Repetition | None, traceparent: str | None
    ) -> ResponseRun:
        asked = await self._ask(tenant, body, repetition, traceparent)
        run = ResponseRun(asked.begun["id"], kept=repetition is not None)
        task = self._tasks.create_task(self._make(run, asked), name=f"response {run.response_id}")
        self._running[run] = task
        task.add_done_callback(lambda _: self._running.pop(run, None))
        run.on_abandoned(task.cancel)
        return run

    async def _ask(
        self, tenant: str, body: ResponseBody, repetition: Repetition | None, traceparent: str | None
    ) -> _Asked:
        started_s, created_ms = self._clock.monotonic_s(), self._clock.now_ms()
        items = [user_item(body.input)] if isinstance(body.input, str) else [dumped(item) for item in body.input]
        _ = encode(items)  # text that is no Unicode is refused here
        await self._check_profile(body.model)
        context = await self._context(tenant, body)
        messages = context_messages(context, body.instructions, items)
        response_id = self._ids.other("rsp_", created_ms)
        tools = [dumped(tool) for tool in body.tools or ()]
        usable = [{name: tool[name] for name in tool if name != "type"} for tool in tools]
        begun = _begun(response_id, created_ms // 1000, body, tools, context)
        request = ModelRequest(
            call_id=self._ids.other("call_", created_ms),
            tenant=tenant,
            profile=body.model,
            messages=messages,
            tools=usable if usable and body.tool_choice != "none" else None,
            temperature=body.temperature,
            max_output_tokens=body.max_output_tokens,
            qos=_quality(body),
            owner=response_id,
            prompt_cache_key=body.prompt_cache_key or body.session_id,
            traceparent=traceparent,
        )
        return _Asked(tenant, started_s, created_ms, begun, request, items, repetition)

    async def _check_profile(self, name: str) -> None:
        """Refuse an unknown profile, before a stream begins.

        Raises:
            ModelError: there is no such profile, or the model gateway cannot be reached.
        """
        if name not in self._known_profiles:
            self._known_profiles = frozenset(await self._models.profiles())
        if name not in self._known_profiles:
            known = ", ".join(sorted(self._known_profiles)) or "none; name one in podium.toml: [models.NAME]"
            raise ModelError(f"no profile {name!r}; the profiles are: {known}", "unknown_profile")

    async def _context(self, tenant: str, body: ResponseBody) -> BranchContext | None:
        session_id = body.session_id
        if session_id is None:
            return None
        return await self._stores.read(
            lambda store, blobs: self._contexts.build(
                self._reader(store, blobs), tenant, session_id, body.branch_id, body.head_event_id
            )
        )

    async def _stored(self, tenant: str, repetition: Repetition, key: str) -> ResponseRun | None:
        """Return the run of a response that the same request got before, from its record; ``None`` if there is none."""
        record = await self._stores.read(
            lambda store, blobs: (
                None
                if (there := store.object_of_key(repetition.key, tenant)) is None
                else (there.repetition, read_record(there, blobs))
            )
        )
        if record is None:
            return None
        if record[0] != repetition:
            raise IdempotencyConflict(key)
        response = record[1].response
        run = ResponseRun(response["id"], kept=True)
        run.end(response, replayed(response))
        return run

    # -- running ----------------------------------------------------------------------------------------------------

    async def _make(self, run: ResponseRun, asked: _Asked) -> None:
        encoder = ResponseEncoder(asked.begun)
        run.publish(encoder.begin())
        failed: ResponseFailed | None = None
        records: list[CallRecord] = []
        try:
            await self._answer(run, encoder, asked, records)
        except ModelError as error:
            failed = ResponseFailed(str(error), error.kind, run.response_id, error.retry_after_s)
        except asyncio.CancelledError:
            code = "shutting_down" if self._closing else "cancelled"
            failed = ResponseFailed("the response was ended before its end", code, run.response_id)
            async with asyncio.timeout(_STORE_S):
                await self._end(run, encoder, asked, failed, None)
            raise
        except Exception:  # noqa: BLE001 - a bug; the client gets a last event all the same
            _log.exception("%s failed", run.response_id)
            failed = ResponseFailed("an unexpected error; the gateway's log has it", "internal_error", run.response_id)
        await self._end(run, encoder, asked, failed, (records[-1].qos_outcome or None) if records else None)

    async def _answer(
        self, run: ResponseRun, encoder: ResponseEncoder, asked: _Asked, records: list[CallRecord]
    ) -> None:
        """Make the call, and publish what the model says.

        Args:
            records: the call's record is added to it, also if the call failed.

        Raises:
            ModelError: it failed.
        """
        deadline_ms = asked.request.qos.deadline_ms
        request = asked.request
        left_s = _MOST_S
        if deadline_ms is not None:
            left_s = deadline_ms / 1000 - (self._clock.monotonic_s() - asked.started_s)
            if left_s <= 0:
                raise ModelError(f"the deadline of {deadline_ms} ms is over", "deadline_exceeded")
            request = replace(request, qos=replace(request.qos, deadline_ms=max(1, int(left_s * 1000))))
            left_s += _GRACE_S
        try:
            async with asyncio.timeout(left_s), aclosing(self._models.stream(request)) as answer:
                async for chunk in answer:
                    if not isinstance(chunk, CallRecord):
                        run.publish(encoder.add(chunk))
                        continue
                    records.append(chunk)
                    if chunk.status == "completed":
                        return
        except TimeoutError:
            raise ModelError("the model gateway did not answer in time", "deadline_exceeded") from None
        raise ModelError("the answer of the model gateway has no end", "protocol")

    async def _end(
        self,
        run: ResponseRun,
        encoder: ResponseEncoder,
        asked: _Asked,
        failed: ResponseFailed | None,
        outcome: JsonObject | None,
    ) -> None:
        """Store the response, then hand out its last events."""
        now_ms = self._clock.now_ms()
        if failed is None:
            events = encoder.end(now_ms // 1000, outcome)
        else:
            events = encoder.fail(failed.code, str(failed), now_ms // 1000, outcome)
        response = encoder.response
        completed_ms = now_ms if failed is None else None
        record = ResponseRecord(response, asked.input, asked.created_ms, completed_ms)
        repetition = asked.repetition if failed is None else None  # a repetition of one that failed tries again
        try:
            await self._stores.write(lambda store, blobs: store_record(store, blobs, asked.tenant, record, repetition))
        except ChronicleError as error:
            _log.warning("%s is not stored: %s", run.response_id, error)
            if failed is None:
                failed = ResponseFailed(f"the response could not be stored: {error}", "not_stored", run.response_id)
                events = [*events[:-1], *encoder.refuse(events[-1], failed.code, str(failed))]
        run.end(encoder.response, events, failed)


def _quality(body: ResponseBody) -> QualityOfService:
    return (body.qos or QosBody()).quality()


def _begun(
    response_id: str,
    created_at: int,
    body: ResponseBody,
    tools: Sequence[JsonObject],
    context: BranchContext | None,
) -> ResponseObject:
    """Return a response as it begins."""
    head = context.head if context is not None else None
    quality = _quality(body)
    shown: list[dict[str, Any]] = [
        {"description": None, "parameters": None, "strict": None, **cast("dict[str, Any]", tool)} for tool in tools
    ]
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "error": None,
        "model": body.model,
        "output": [],
        "usage": None,
        "instructions": body.instructions,
        "tools": shown,
        "tool_choice": body.tool_choice or "auto",
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "prompt_cache_key": body.prompt_cache_key,
        "previous_response_id": None,
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "text": {"format": {"type": "text"}},
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "reasoning": None,
        "max_tool_calls": None,
        "store": True,
        "background": False,
        "service_tier": "default",
        "safety_identifier": None,
        "output_text": "",
        "session_id": head.session_id if head is not None else None,
        "branch_id": head.branch_id if head is not None else None,
        "head_event_id": head.event_id if head is not None else None,
        "version": head.version if head is not None else None,
        "qos": {
            "class": quality.qos_class,
            "priority": quality.priority,
            "target_ttft_ms": quality.target_ttft_ms,
            "deadline_ms": quality.deadline_ms,
            "degrade_policy": quality.degrade_policy,
        },
        "qos_outcome": None,
    }
