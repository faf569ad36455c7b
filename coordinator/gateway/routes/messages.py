"""Routes of an agent's messages: sending, and what becomes of one."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from coordinator.gateway.bodies import MessageBody, ReadBody, RetryBody
from coordinator.gateway.dependencies import Agents, Called, Cursor, IdempotencyKey, Limit, MessageId, Reading, Writing
from coordinator.gateway.disconnects import while_connected
from coordinator.gateway.documents import statuses
from coordinator.gateway.errors import mark_admitted
from coordinator.gateway.routers import router_at
from coordinator.gateway.streaming import STREAM, AsksForStream, LastEventId, StreamingOf
from coordinator.operations.errors import MessagePaused
from coordinator.operations.objects import Answer, InboxMessage, Message, Page, PausedRun, ReadResult, Receipt

__all__ = ["router"]

router = router_at("/v1/agents/{type}/{key}", "messages")

Prefer = Annotated[
    str | None, Header(description="`respond-async`: answer with a receipt as soon as the message is durable.")
]
Traceparent = Annotated[
    str | None,
    Header(description="The caller's span, by W3C Trace Context: the turn becomes a part of its trace."),
]


@router.post(
    "/messages",
    response_model=Answer,
    responses={
        200: STREAM[200],
        202: {"model": Receipt | PausedRun, "description": "Accepted, durably; or handled up to a pause."},
        **statuses(404, 409, 413, 422, 502, 507),
    },
)
async def send_message(
    agents: Agents,
    streaming: StreamingOf,
    address: Writing,
    caller: Called,
    body: MessageBody,
    asks_for_stream: AsksForStream,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
    traceparent: Traceparent = None,
) -> Answer | Response:
    """Send a message, and wait for the answer, or stream it: with `Accept: text/event-stream`.

    If the turn pauses, the answer is 202 with what it waits for.

    A disconnect does not cancel the message, unless `cancel_on_disconnect` is set: fetch its answer from
    `/messages/{message_id}`, or repeat the request with the same `Idempotency-Key`.
    """
    receipt = await agents.send(
        address,
        body.message,
        idempotency_key=idempotency_key,
        when_busy=body.when_busy,
        trace=traceparent,
        caller=caller.of_message,
    )
    message_id = receipt.message_id
    mark_admitted(streaming.request, message_id)
    if _responds_async(prefer):
        return JSONResponse(receipt.as_json(), 202, {"Preference-Applied": "respond-async"})
    if asks_for_stream:
        return streaming.sent(address, receipt, cancel_on_disconnect=body.cancel_on_disconnect)
    try:
        return await while_connected(streaming.request, agents.answer(address, message_id))
    except MessagePaused as paused:
        return JSONResponse(paused.run, 202)
    except ClientDisconnect:
        if body.cancel_on_disconnect:
            await agents.cancel(address, message_id)
        return Response(status_code=204)  # nobody reads it


@router.post("/read", response_model=ReadResult, responses=statuses(404, 422, 502, 504))
async def read_agent(request: Request, agents: Agents, address: Reading, body: ReadBody) -> ReadResult | Response:
    """Call a read-only handler, and return its result.

    It runs at once, also while a turn runs or is paused, with the state of the last commit; nothing is recorded. An
    agent that sleeps is woken. It counts as a message of the tenant's quota. A request without an answer may be
    repeated.
    """
    try:
        return await while_connected(request, agents.read_only(address, body.message))
    except ClientDisconnect:
        return Response(status_code=204)  # nobody reads it


@router.get("/messages/{message_id}", response_model=Message, responses={**STREAM, **statuses(404)})
async def get_message(
    agents: Agents,
    streaming: StreamingOf,
    address: Reading,
    message_id: MessageId,
    asks_for_stream: AsksForStream,
    last_event_id: LastEventId,
) -> Message | Response:
    """Return a message with its status, and its answer or its error.

    With `Accept: text/event-stream` it is streamed: from the beginning, or after the `Last-Event-ID`, while its turn
    runs and afterwards.
    """
    if asks_for_stream:
        return await streaming.resumed(address, message_id, last_event_id)
    return await agents.message(address, message_id)


@router.post("/messages/{message_id}/cancel", responses=statuses(404, 409))
async def cancel_message(agents: Agents, address: Writing, message_id: MessageId) -> Message:
    """Cancel a pending, running, paused or parked message."""
    return await agents.cancel(address, message_id)


@router.post("/messages/{message_id}/retry", responses=statuses(404, 409))
async def retry_message(
    agents: Agents, address: Writing, message_id: MessageId, body: RetryBody | None = None
) -> Message:
    """Make a parked message pending again, at its place, and wake the agent."""
    return await agents.retry(address, message_id, drop_steps=body is not None and body.drop_steps)


@router.post("/messages/{message_id}/drop", responses=statuses(404, 409))
async def drop_message(agents: Agents, address: Writing, message_id: MessageId) -> Message:
    """Remove a pending, paused or parked message permanently; one that is being handled is cancelled."""
    return await agents.drop(address, message_id)


@router.get("/inbox", responses=statuses(404))
async def list_inbox(agents: Agents, address: Reading, limit: Limit = 100, cursor: Cursor = None) -> Page[InboxMessage]:
    """List pending, paused and parked messages, by position."""
    return await agents.inbox(address, limit, cursor)


def _responds_async(prefer: str | None) -> bool:
    """Whether a ``Prefer`` header asks for a receipt (RFC 7240)."""
    return any(part.strip().lower() == "respond-async" for part in (prefer or "").replace(";", ",").split(","))
