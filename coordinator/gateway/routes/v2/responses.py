"""Routes of responses, with the field and event names of Open Responses."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Depends, Header, Path, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from coordinator.access.caller import Scope
from coordinator.gateway.dependencies import Called, ErrorTexts, IdempotencyKey
from coordinator.gateway.disconnects import while_connected
from coordinator.gateway.documents import statuses
from coordinator.gateway.errors import ApiError
from coordinator.gateway.event_stream import EventReader, EventStreamResponse
from coordinator.gateway.json_bodies import JsonRoute
from coordinator.gateway.key_bound import key_bound
from coordinator.gateway.routers import router_at
from coordinator.gateway.streaming import STREAM
from coordinator.operations.problems import Problem
from coordinator.responses.body import ResponseBody
from coordinator.responses.objects import DeletedResponse, ResponseObject
from coordinator.responses.responses import HomeResponses
from coordinator.responses.run import EncodedEvent, ResponseRun, without_text_of
from podium.models.errors import ModelError

__all__ = ["router"]

router = router_at("/v2/responses", "responses")


class _TimedRoute(JsonRoute):
    """A route that notes when a request arrived, before its body is read: deadlines count from then."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def timed(request: Request) -> Response:
            responses: HomeResponses | None = request.app.state.responses
            request.state.arrived_s = responses.now_s() if responses is not None else None
            return await answer(request)

        return timed


router.route_class = _TimedRoute


def _responses(request: Request) -> HomeResponses:
    responses: HomeResponses | None = request.app.state.responses
    if responses is None:
        raise ModelError("this gateway reaches no models", "unavailable")
    return responses


Responses: TypeAlias = Annotated[HomeResponses, Depends(_responses)]
"""The responses of the home."""
Traceparent: TypeAlias = Annotated[
    str | None, Header(description="The caller's span, by W3C Trace Context: the call becomes a part of its trace.")
]
ResponseId: TypeAlias = Annotated[str, Path(max_length=64, description="The id of a response: `rsp_…`.")]

_ANSWERED_BY: Final = {"Agent-Execution-Profile": "execution", "Agent-Resolved-Provider": "provider"}
"""Headers, and the keys of the outcome."""


@router.post(
    "",
    response_model=ResponseObject,
    responses={200: STREAM[200], **statuses(404, 409, 413, 502, 504, 507)},
)
async def create_response(
    request: Request,
    answer: Response,
    responses: Responses,
    caller: Called,
    body: ResponseBody,
    idempotency_key: IdempotencyKey = None,
    traceparent: Traceparent = None,
) -> ResponseObject | Response:
    """Have a model answer, alone or on a branch of a session, to which nothing is appended.

    With `"stream": true` the answer is a stream of the events of Open Responses; what fails then is its last event,
    `response.failed`. A client that leaves ends the response, unless it sent an `Idempotency-Key`: then it goes on, and
    a repetition gets it. The headers `Agent-Execution-Profile` and `Agent-Resolved-Provider` of an answer that is no
    stream say who answered, as `qos_outcome` does.
    """
    caller.require(Scope.WRITE)
    run = await responses.respond(caller.tenant, body, idempotency_key, traceparent, request.state.arrived_s)
    if body.stream:
        return EventStreamResponse(_opened(request, run))
    try:
        made = await while_connected(request, run.result())
    except ClientDisconnect:
        return Response(status_code=204)  # nobody reads it
    outcome = made["qos_outcome"] or {}
    answer.headers.update({name: outcome[key] for name, key in _ANSWERED_BY.items() if outcome.get(key)})
    return made


@contextmanager
def _opened(request: Request, run: ResponseRun) -> Iterator[EventReader[EncodedEvent]]:
    """Read a run's stream, which ends with the reader's key."""
    with (
        run.open(error_texts=request.state.error_texts) as reader,
        key_bound(request, nullcontext(reader), reader.error_event) as bound,
    ):
        yield bound


@router.get("/{response_id}", response_model=ResponseObject, responses={200: STREAM[200], **statuses(404)})
async def get_response(
    request: Request,
    responses: Responses,
    caller: Called,
    response_id: ResponseId,
    error_texts: ErrorTexts,
    *,
    stream: Annotated[bool, Query(description="Whether the answer is a stream of events, made of the record.")] = False,
    starting_after: Annotated[int | None, Query(include_in_schema=False)] = None,
) -> ResponseObject | Response:
    """Return a response that has ended, with the items of its input."""
    caller.require(Scope.READ)
    if starting_after is not None:
        why = "starting_after is not supported: a stream of a stored response has all its events"
        raise ApiError(Problem(400, "unsupported_field"), why, "starting_after")
    if stream:
        return EventStreamResponse(_opened(request, await responses.replay(caller.tenant, response_id)))
    found = await responses.response(caller.tenant, response_id)
    return found if error_texts else without_text_of(found)


@router.delete("/{response_id}", responses=statuses(404))
async def delete_response(responses: Responses, caller: Called, response_id: ResponseId) -> DeletedResponse:
    """Delete a response, durably. It needs the scope `admin`.

    Events of branches for which it stands have no text afterwards.
    """
    caller.require(Scope.ADMIN)
    return await responses.delete(caller.tenant, response_id)
