"""The one table of errors: an exception's class to its HTTP status, its type and its code.

The body of every error is ``{"error": {"message", "type", "code", "param"}}``, and ``message_id`` where the error is
that of a message. Statuses have one type each; codes are stable and tell errors of one status apart.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from chronicle import errors as chronicle
from coordinator.access.caller import NotAuthenticated, NotPermitted
from coordinator.operations import errors as operations
from coordinator.service.client import ServiceError, ServiceRefused
from podium import errors as podium
from podium.state import errors as state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI
    from starlette.requests import Request

__all__ = ["ERRORS", "TYPES", "ApiError", "Problem", "add_handlers", "error_response", "problem_of"]

_log = logging.getLogger(__name__)

TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    406: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    416: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "api_error",
    504: "api_error",
    507: "api_error",
}
"""The type of each status."""


@dataclass(frozen=True, slots=True)
class Problem:
    """How an error is answered."""

    status: int
    code: str
    retry_after_s: int | None = None
    """Seconds after which a repetition may succeed."""


class ApiError(Exception):
    """An error that the gateway itself finds in a request."""

    def __init__(self, problem: Problem, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.problem = problem
        self.param = param


ERRORS: Final[Mapping[type[Exception], Problem]] = {
    # podium
    podium.InvalidAddress: Problem(400, "invalid_address"),
    podium.UnknownAgent: Problem(404, "unknown_agent"),
    podium.UnknownMoment: Problem(404, "unknown_turn"),
    podium.UnknownArtifact: Problem(404, "unknown_artifact"),
    podium.EventNotFound: Problem(404, "unknown_event"),
    podium.AgentExists: Problem(409, "agent_exists"),
    podium.AgentAwake: Problem(409, "agent_awake", 1),
    podium.AgentBusy: Problem(409, "agent_busy", 1),
    podium.AgentInUse: Problem(409, "agent_in_use"),
    podium.AgentAsleep: Problem(503, "unavailable", 1),
    podium.HostDied: Problem(503, "host_died", 1),
    podium.Evicted: Problem(503, "unavailable", 1),
    podium.AgentLoadError: Problem(502, "agent_load_error"),
    podium.HomeError: Problem(503, "home_error"),
    podium.PodiumError: Problem(500, "error"),
    # what operations add
    operations.InvalidCursor: Problem(400, "invalid_cursor"),
    operations.UnknownFile: Problem(404, "unknown_file"),
    operations.NotAFile: Problem(409, "not_a_file"),
    operations.MessageFailed: Problem(502, "turn_failed"),
    operations.MessageParked: Problem(502, "message_parked"),
    operations.MessageCancelled: Problem(409, "cancelled"),
    # access
    NotAuthenticated: Problem(401, "not_authenticated"),
    NotPermitted: Problem(403, "not_permitted"),
    # the service
    ServiceError: Problem(503, "service_unavailable", 1),
    ServiceRefused: Problem(502, "refused"),
    # chronicle
    chronicle.NotFound: Problem(404, "not_found"),
    chronicle.InvalidInput: Problem(400, "invalid_input"),
    chronicle.Conflict: Problem(409, "conflict", 1),
    chronicle.BranchVersionConflict: Problem(409, "branch_version_conflict"),
    chronicle.IdempotencyConflict: Problem(409, "idempotency_conflict"),
    chronicle.StaleEpoch: Problem(409, "conflict", 1),
    chronicle.InboxFull: Problem(429, "inbox_full", 1),
    chronicle.OverQuota: Problem(409, "over_quota"),
    chronicle.Corrupt: Problem(500, "corrupt"),
    chronicle.UnsupportedFormat: Problem(500, "unsupported_format"),
    chronicle.Unavailable: Problem(503, "unavailable", 1),
    chronicle.StorageRefused: Problem(507, "storage_refused", 1),
    chronicle.ChronicleError: Problem(500, "error"),
    # the agent's state
    state.StateError: Problem(500, "state_error"),
}
"""By class; a subclass that is not listed has the problem of its nearest base."""

_NOT_JSON: Final = Problem(400, "invalid_json")
_WRONG_TYPE: Final = Problem(400, "unsupported_media_type")
_INVALID: Final = Problem(400, "invalid_parameter")


def problem_of(error: BaseException) -> Problem | None:
    """Return how an error is answered; ``None`` for one that is a bug.

    An error that the service reports has the problem of the class that the service names.
    """
    if isinstance(error, ApiError):
        return error.problem
    if isinstance(error, ServiceRefused) and (named := _named(error.kind)) is not None:
        return named
    return _of_class(type(error))


def error_response(
    problem: Problem,
    message: str,
    param: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, object] | None = None,
) -> Response:
    """Return the response of an error.

    Args:
        more: further keys of the error.
    """
    described = {
        "message": message,
        "type": TYPES[problem.status],
        "code": problem.code,
        "param": param,
        **(more or {}),
    }
    sent = dict(headers or {})
    if problem.retry_after_s is not None and problem.status in {429, 503}:
        sent["Retry-After"] = str(problem.retry_after_s)
    if problem.status == 401:
        sent["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": described}, problem.status, sent)


def add_handlers(app: FastAPI) -> None:
    """Have an application answer all errors in the one shape."""
    for kind in (*ERRORS, ApiError):
        app.add_exception_handler(kind, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)


async def _known(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem is None:
        return await _bug(request, error)
    if problem.status == 500:
        return _hidden(request, error, problem.code)
    more: dict[str, str | int | None] = {}
    if isinstance(error, operations.MessageNotAnswered):
        more = {"message_id": error.message_id, "error_type": error.error_type}
    if isinstance(error, chronicle.BranchVersionConflict):
        more = {"version": error.version, "head_event_id": error.head_event_id}
    return error_response(problem, str(error), getattr(error, "param", None), more=more)


async def _bug(request: Request, error: Exception) -> Response:
    return _hidden(request, error, "internal_error")


def _hidden(request: Request, error: Exception, code: str) -> Response:
    """Answer an error whose text is for the log alone; the answer names the line of the log."""
    error_id = f"err_{secrets.token_hex(8)}"
    _log.error("%s: %s %s failed", error_id, request.method, request.url.path, exc_info=error)
    return error_response(Problem(500, code), f"an unexpected error; the gateway's log has it as {error_id}")


async def _http(_: Request, error: Exception) -> Response:
    """Answer what the framework refuses: unknown paths and methods, bodies that cannot be read."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            problem, message = Problem(404, "unknown_path"), "nothing is at this path; /openapi.json lists what is"
        case 405:
            problem, message = Problem(405, "method_not_allowed"), "this path does not have this method"
        case 413:
            problem, message = Problem(413, "body_too_large"), "the body is too large"
        case 400:
            problem, message = _NOT_JSON, "the body cannot be read as JSON in UTF-8, or is nested too deeply"
        case status:
            problem, message = Problem(status, "error"), str(error.detail)
    return error_response(problem, message, headers=error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    """Answer a parameter or body that does not fit: the first problem, and where it is."""
    assert isinstance(error, RequestValidationError)
    first = cast("Mapping[str, Any]", error.errors()[0])
    place = tuple(str(part) for part in first["loc"])
    param = ".".join(place[1:]) or None
    if first["type"] == "json_invalid":
        return error_response(_NOT_JSON, f"the body is not JSON: {first['ctx']['error']} at character {place[-1]}")
    if place == ("body",) and isinstance(error.body, bytes | None) and not _is_json(request):
        return error_response(_WRONG_TYPE, "send the body as JSON, with Content-Type: application/json")
    if first["type"] == "extra_forbidden":
        return error_response(Problem(400, "unknown_field"), f"there is no field {place[-1]!r} here", param)
    if first["type"] == "missing":
        return error_response(Problem(400, "missing_field"), f"{place[-1]} is missing", param or place[0])
    return error_response(_INVALID, f"{param or place[0]}: {str(first['msg']).lower()}", param or place[0])


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _named(kind: str) -> Problem | None:
    for module in (podium, chronicle, operations, state):
        if kind in module.__all__:
            return _of_class(getattr(module, kind))
    return None


def _of_class(kind: type[BaseException]) -> Problem | None:
    return next((ERRORS[base] for base in kind.__mro__ if base in ERRORS), None)
