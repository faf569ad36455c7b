"""`HomeResponses`: what a client may do with responses. Free of HTTP.

A response runs as a task of its own, to which any number of readers listen. Its record is durable before its last event
is handed out, but at its deadline it fails at once, and that is stored afterwards. One without readers is cancelled,
unless its request has an idempotency key, by which the client can come back for it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

import structlog

from chronicle.canonical import encode
from chronicle.errors import ChronicleError, IdempotencyConflict
from coordinator.models.calls import CallRecord, ModelCalls, ModelRequest
from coordinator.operations.errors import ResponseFailed
from coordinator.responses.beginning import begun_response, quality_of
from coordinator.responses.context import ContextBuilder, context_messages
from coordinator.responses.encoder import ResponseEncoder, replayed
from coordinator.responses.items import dumped, user_item
from coordinator.responses.outcome import EXPIRED, CallProgress, qos_outcome
from coordinator.responses.records import (
    ResponseRecord,
    delete_response,
    read_record,
    read_response,
    replace_record,
    store_record,
)
from coordinator.responses.run import ResponseRun
from coordinator.sessions.repetition import repetition_of
from coordinator.streams.fan_out import TaskOwner
from podium.models.errors import ModelError
from podium.models.port import Finished, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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

_MAX_S: Final = 3600.0
"""Limit of a response without a deadline."""
_STORE_S: Final = 30.0
"""Timeout of storing a response that was cancelled."""

_log = structlog.stdlib.get_logger(__name__)
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
    arrived_s: float
    """The monotonic time from which all times count."""
    created_ms: int
    begun: ResponseObject
    request: ModelRequest | None
    """``None`` if the deadline passed before its context was read."""
    qos: QualityOfService
    input: Sequence[JsonObject]
    repetition: Repetition | None


class HomeResponses(TaskOwner):
    """The responses of a home.

    Args:
        stores: of the home; the caller closes them.
        reader: returns what reads sessions from them.
        models: the model gateway.
        clock: the time.
        ids: makes ids.
        check: raises if a tenant may not store a record with so many bytes; ``None``: it may.
    """

    def __init__(
        self,
        stores: Stores,
        reader: Callable[[JournalStore, BlobStore], BranchReader],
        models: Models,
        clock: Clock,
        ids: IdSource,
        check: Callable[[str, int], None] | None = None,
    ) -> None:
        super().__init__()
        self._stores = stores
        self._reader = reader
        self._models = models
        self._clock = clock
        self._ids = ids
        self._check = check
        self._contexts = ContextBuilder()
        self._running: dict[str, asyncio.Task[None]] = {}
        """By the ids of responses."""
        self._storing: dict[str, asyncio.Task[None]] = {}
        """Those that have ended, and are being stored; their last events may have been handed out."""
        self._of_key: dict[tuple[str, str], tuple[str, asyncio.Future[ResponseRun]]] = {}
        """By tenant and key: what was asked for, and its run, while it is made."""
        self._known_profiles: frozenset[str] = frozenset()
        self._closing = False

    def close(self) -> None:
        """End the responses that run; each gets its last event."""
        self._closing = True
        for response_id, task in list(self._running.items()):
            if response_id not in self._storing:
                task.cancel()

    def now_s(self) -> float:
        """Return the monotonic time, as `respond` takes that of a request's arrival."""
        return self._clock.monotonic_s()

    async def respond(
        self,
        tenant: str,
        body: ResponseBody,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        arrived_s: float | None = None,
    ) -> ResponseRun:
        """Begin a response, or join the one that the same request began before.

        Args:
            arrived_s: when the request arrived, by `now_s`: its deadline counts from then. ``None`` for now.

        Raises:
            ModelError: there is no such profile, or the model gateway cannot be reached.
            NotFound: there is no such session in the tenant, no such branch in the session, or no such event.
            EmptyContext: there is nothing to answer.
            QuotaExceeded: the tenant has as many bytes as it may have.
            IdempotencyConflict: the key was used with another body.
        """
        arrived_s = self.now_s() if arrived_s is None else arrived_s
        if idempotency_key is None:
            return await self._begin(tenant, body, None, traceparent, arrived_s)
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
                tenant, body, repetition, traceparent, arrived_s
            )
        except BaseException as error:
            del self._of_key[key]
            found.set_exception(error if isinstance(error, Exception) else ConnectionAbortedError())
            found.exception()  # nobody may wait for it
            raise
        found.set_result(run)
        if (task := self._running.get(run.response_id)) is not None:
            task.add_done_callback(lambda _: self._of_key.pop(key, None))
        else:
            del self._of_key[key]
        return run

    async def response(self, tenant: str, response_id: str) -> ResponseObject:
        """Return a stored response, with its input.

        Raises:
            UnknownResponse: there is none of that id in the tenant.
        """
        await self._until_stored(response_id)
        record = await self._stores.read(lambda store, blobs: read_response(store, blobs, tenant, response_id))
        return {**record.response, "input": [dict(item) for item in record.input]}

    async def replay(self, tenant: str, response_id: str) -> ResponseRun:
        """Return the run of a stored response, whose stream is made of its record.

        Raises:
            UnknownResponse: there is none of that id in the tenant.
        """
        await self._until_stored(response_id)
        record = await self._stores.read(lambda store, blobs: read_response(store, blobs, tenant, response_id))
        return _ended(record.response)

    async def delete(self, tenant: str, response_id: str) -> DeletedResponse:
        """Delete a stored response, durably. Events for which it stands have no text afterwards.

        Raises:
            UnknownResponse: there is none of that id in the tenant.
        """
        await self._until_stored(response_id)
        await self._stores.write(lambda store, _: delete_response(store, tenant, response_id))
        return {"id": response_id, "object": "response", "deleted": True}

    async def _until_stored(self, response_id: str) -> None:
        if (task := self._storing.get(response_id)) is not None:
            await asyncio.wait({task})

    # -- beginning --------------------------------------------------------------------------------------------------

    async def _begin(
        self,
        tenant: str,
        body: ResponseBody,
        repetition: Repetition | None,
        traceparent: str | None,
        arrived_s: float,
    ) -> ResponseRun:
        asked = await self._ask(tenant, body, repetition, traceparent, arrived_s)
        run = ResponseRun(asked.begun["id"], kept=repetition is not None)
        task = self._tasks.create_task(self._make(run, asked), name=f"response {run.response_id}")
        self._running[run.response_id] = task
        task.add_done_callback(lambda _: self._running.pop(run.response_id, None))
        run.on_abandoned(task.cancel)
        return run

    async def _ask(
        self,
        tenant: str,
        body: ResponseBody,
        repetition: Repetition | None,
        traceparent: str | None,
        arrived_s: float,
    ) -> _Asked:
        created_ms, qos = self._clock.now_ms(), quality_of(body)
        items = [user_item(body.input)] if isinstance(body.input, str) else [dumped(item) for item in body.input]
        size_bytes = len(encode(items))  # text that is no Unicode is refused here
        response_id = self._ids.other("rsp_", created_ms)
        tools = [dumped(tool) for tool in body.tools or ()]
        context: BranchContext | None = None
        request: ModelRequest | None = None
        try:
            async with asyncio.timeout(self._left_s(qos, arrived_s)):
                if (check := self._check) is not None:
                    await self._stores.read(lambda *_: check(tenant, size_bytes))
                await self._check_profile(body.model)
                context = await self._context(tenant, body)
        except TimeoutError:
            pass  # the response fails
        else:
            usable = [{name: tool[name] for name in tool if name != "type"} for tool in tools]
            request = ModelRequest(
                call_id=self._ids.other("call_", created_ms),
                tenant=tenant,
                profile=body.model,
                messages=context_messages(context, body.instructions, items),
                tools=usable if usable and body.tool_choice != "none" else None,
                temperature=body.temperature,
                max_output_tokens=body.max_output_tokens,
                qos=qos,
                owner=response_id,
                prompt_cache_key=body.prompt_cache_key or body.session_id,
                traceparent=traceparent,
                asked_s=arrived_s,
            )
        begun = begun_response(response_id, created_ms // 1000, body, tools, context)
        return _Asked(tenant, arrived_s, created_ms, begun, request, qos, items, repetition)

    def _left_s(self, qos: QualityOfService, arrived_s: float) -> float | None:
        """Return the seconds to the deadline; ``None`` without one."""
        if qos.deadline_ms is None:
            return None
        return max(0.0, qos.deadline_ms / 1000 - (self.now_s() - arrived_s))

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
        return _ended(record[1].response)

    # -- running ----------------------------------------------------------------------------------------------------

    async def _make(self, run: ResponseRun, asked: _Asked) -> None:
        encoder = ResponseEncoder(asked.begun)
        run.publish(encoder.begin())
        failed: ResponseFailed | None = None
        call = CallProgress()
        try:
            await self._answer(run, encoder, asked, call)
        except ModelError as error:
            failed = ResponseFailed(str(error), error.kind, run.response_id, error.retry_after_s)
        except asyncio.CancelledError:
            code = "shutting_down" if self._closing else "cancelled"
            failed = ResponseFailed("the response was ended before its end", code, run.response_id)
            async with asyncio.timeout(_STORE_S):
                await self._end(run, encoder, asked, failed, call)
            raise
        except Exception:  # noqa: BLE001 - a bug; the client gets a last event all the same
            _log.exception("response_failed", response_id=run.response_id)
            failed = ResponseFailed("an unexpected error; the gateway's log has it", "internal_error", run.response_id)
        await self._end(run, encoder, asked, failed, call)

    async def _answer(self, run: ResponseRun, encoder: ResponseEncoder, asked: _Asked, call: CallProgress) -> None:
        """Make the call, publish what the model says, and note what becomes of the call.

        Raises:
            ModelError: it failed.
        """
        left_s = self._left_s(asked.qos, asked.arrived_s)
        if asked.request is None or left_s == 0:
            raise _too_late(asked)
        call.begun = True
        try:
            async with (
                asyncio.timeout(_MAX_S if left_s is None else left_s),
                aclosing(self._models.stream(asked.request)) as answer,
            ):
                async for chunk in answer:
                    if isinstance(chunk, CallRecord):
                        call.record = chunk
                        if chunk.status == "completed":
                            return
                        continue
                    if call.ttft_ms is None and not isinstance(chunk, Usage | Finished):
                        call.ttft_ms = self._since_ms(asked)
                    run.publish(encoder.add(chunk))
        except TimeoutError:
            raise _too_late(asked) from None
        raise ModelError("the answer of the model gateway has no end", "protocol")

    async def _end(
        self,
        run: ResponseRun,
        encoder: ResponseEncoder,
        asked: _Asked,
        failed: ResponseFailed | None,
        call: CallProgress,
    ) -> None:
        """Store the response, then hand out its last events; at the deadline they are handed out first."""
        now_ms = self._clock.now_ms()
        outcome = qos_outcome(asked.qos, call, failed.code if failed is not None else None, self._since_ms(asked))
        if failed is None:
            events = encoder.end(now_ms // 1000, outcome)
        else:
            events = encoder.fail(failed.code, str(failed), now_ms // 1000, outcome)
        to_store = encoder.response
        self._storing[run.response_id] = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            storing = self._tasks.create_task(self._store(asked, to_store, now_ms if failed is None else None))
            is_expired = failed is not None and failed.code == EXPIRED
            await asyncio.wait({storing}, timeout=0 if is_expired else self._left_s(asked.qos, asked.arrived_s))
            if not is_expired and (not storing.done() or self._left_s(asked.qos, asked.arrived_s) == 0):
                failed = ResponseFailed(str(_too_late(asked)), EXPIRED, run.response_id)
                outcome = qos_outcome(asked.qos, call, EXPIRED, self._since_ms(asked))
                events = [*events[:-1], *encoder.refuse(events[-1], EXPIRED, str(failed), outcome)]
            elif failed is None and (why := storing.result()) is not None:
                failed = ResponseFailed(f"the response could not be stored: {why}", "not_stored", run.response_id)
                outcome = qos_outcome(asked.qos, call, failed.code, self._since_ms(asked))
                events = [*events[:-1], *encoder.refuse(events[-1], failed.code, str(failed), outcome)]
            run.end(encoder.response, events, failed)
            why = await storing
            if why is None and encoder.response is not to_store:
                await self._store(asked, encoder.response, None, replaces=True)
        finally:
            del self._storing[run.response_id]

    async def _store(
        self, asked: _Asked, response: ResponseObject, completed_ms: int | None, *, replaces: bool = False
    ) -> str | None:
        """Store a response, durably; return why that was not possible, if so.

        Args:
            completed_ms: ``None`` if it failed: a repetition of its request tries again.
            replaces: whether it was stored before, with another end.
        """
        record = ResponseRecord(response, asked.input, asked.created_ms, completed_ms)
        repetition = asked.repetition if completed_ms is not None else None
        store_it = replace_record if replaces else store_record
        try:
            await self._stores.write(lambda store, blobs: store_it(store, blobs, asked.tenant, record, repetition))
        except ChronicleError as error:
            _log.warning("response_not_stored", response_id=response["id"], error=str(error))
            return str(error)
        return None

    def _since_ms(self, asked: _Asked) -> int:
        return round((self.now_s() - asked.arrived_s) * 1000)


def _ended(response: ResponseObject) -> ResponseRun:
    """Return the run of a response that is stored."""
    run = ResponseRun(response["id"], kept=True)
    run.end(response, replayed(response))
    return run


def _too_late(asked: _Asked) -> ModelError:
    if asked.qos.deadline_ms is None:
        return ModelError("the model gateway did not answer in time", EXPIRED)
    return ModelError(f"the deadline of {asked.qos.deadline_ms} ms is over", EXPIRED)
