"""The responses of errors, by the table of `coordinator.operations.problems`.

The body of every error is ``{"error": {"message", "type", "code", "param"}}``, and ``message_id`` where the error is
that of a message, or the request had admitted one before it failed.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any, Final, cast

import structlog
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from chronicle.error_pickling import Portable
from coordinator.operations.errors import MessageNotAnswered, ResponseFailed
from coordinator.operations.problems import ERRORS, Problem, more_of, problem_of, type_of
from coordinator.service.client import ServiceRefused
from coordinator.streams.public_texts import public_text, text_of_model, without_text
from podium import errors as podium
from podium.address import DEFAULT_TENANT
from podium.models.errors import ModelError
from podium.validation import place_in, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI
    from starlette.requests import Request

    from coordinator.access.caller import Caller

__all__ = ["ApiError", "add_handlers", "error_response", "mark_admitted"]

_log = structlog.stdlib.get_logger(__name__)


class ApiError(Portable):
    """An error that the gateway itself finds in a request."""

    def __init__(self, problem: Problem, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.problem = problem
        self.param = param


_NOT_JSON: Final = Problem(400, "invalid_json")
_WRONG_TYPE: Final = Problem(415, "unsupported_media_type")
_UNKNOWN_TAGS: Final = frozenset({"union_tag_invalid", "union_tag_not_found"})
_INVALID: Final = Problem(400, "invalid_parameter")
_PATHS_OF_OPENAI: Final = ("/completions", "/responses")
_REPEATED: Final = frozenset({408, 409, 429})
"""Statuses below 500 that the clients of OpenAI and Anthropic repeat, unless ``x-should-retry`` is false."""


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
        "type": type_of(problem.status),
        "code": problem.code,
        "param": param,
        **(more or {}),
    }
    sent = dict(headers or {})
    if problem.retry_after_s is not None and problem.status in {429, 503}:
        sent["Retry-After"] = str(problem.retry_after_s)
    if problem.retry_after_s is None and (problem.status in _REPEATED or problem.status >= 500):
        sent["x-should-retry"] = "false"
    if problem.status == 401:
        sent["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": described}, problem.status, sent)


def mark_admitted(request: Request, message_id: str) -> None:
    """Have an error of a request name the message that it admitted: the message is handled nevertheless."""
    request.state.message_id = message_id


def add_handlers(app: FastAPI) -> None:
    """Have an application answer all errors in the one shape."""
    for kind in (*ERRORS, ApiError):
        app.add_exception_handler(kind, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _left)
    app.add_exception_handler(Exception, _bug)


async def _known(request: Request, error: Exception) -> Response:
    problem = error.problem if isinstance(error, ApiError) else problem_of(error)
    if problem is None:
        return await _bug(request, error)
    if problem.status == 500:
        return _hidden(request, error, problem.code)
    more = {**_admitted(request), **more_of(error)}
    text = public_text(str(error)) if problem.status > 500 and not isinstance(error, MessageNotAnswered) else str(error)
    if not getattr(request.state, "error_texts", True):
        if isinstance(error, ModelError | ResponseFailed):
            text = text_of_model(error.kind if isinstance(error, ModelError) else error.code, text)
        elif (kind := _kind_of_agents(error)) is not None:
            text = ": ".join(without_text({"type": kind, "message": text}, more.get("message_id")).values())
    return error_response(problem, _as_called(request, text), getattr(error, "param", None), more=more)


def _as_called(request: Request, text: str) -> str:
    """Return a text with the agents of the caller's tenant as the caller names them, without the tenant."""
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is None or caller.tenant == DEFAULT_TENANT:
        return text
    return re.sub(rf"(?<![\w:.-]){re.escape(caller.tenant)}:(?=[A-Za-z_][\w.-]*/)", "", text)


def _kind_of_agents(error: Exception) -> str | None:
    """Return the name of an error whose text agents' code or their classes made; ``None`` of any other."""
    if isinstance(error, MessageNotAnswered):
        return error.error_type
    kind = error.kind if isinstance(error, ServiceRefused) else type(error).__name__
    return kind if issubclass(getattr(podium, kind, object), podium.AgentLoadError) else None


async def _left(_: Request, __: Exception) -> Response:
    """Answer a client that left in the middle of its body, which nobody reads. What it began is not done."""
    return error_response(Problem(400, "body_cut_off"), "the body ended before its end")


async def _bug(request: Request, error: Exception) -> Response:
    return _hidden(request, error, "internal_error")


def _hidden(request: Request, error: Exception, code: str) -> Response:
    """Answer an error whose text is for the log alone; the answer names the line of the log."""
    error_id = f"err_{secrets.token_hex(8)}"
    _log.error("request_failed", error_id=error_id, method=request.method, path=request.url.path, exc_info=error)
    message = f"an unexpected error; the gateway's log has it as {error_id}"
    return error_response(Problem(500, code), message, more=_admitted(request))


def _admitted(request: Request) -> dict[str, str]:
    message_id = getattr(request.state, "message_id", None)
    return {} if message_id is None else {"message_id": message_id}


async def _http(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses: unknown paths and methods, bodies that cannot be read."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            message = "nothing is at this path; /openapi.json lists what is"
            if request.url.path.endswith(_PATHS_OF_OPENAI):
                message += ". Models answer at POST /v2/responses: give OpenAI's client a base URL that ends in /v2"
            problem = Problem(404, "unknown_path")
        case 405:
            return _no_such_method(request)
        case 408:
            problem, message = Problem(408, "body_too_slow"), "the body did not come in time"
        case 413:
            problem, message = Problem(413, "body_too_large"), "the body is too large"
        case 400:
            problem, message = _NOT_JSON, str(error.detail)
        case status:
            problem, message = Problem(status, "error"), str(error.detail)
    return error_response(problem, message, headers=error.headers)


def _no_such_method(request: Request) -> Response:
    """Answer a method that a path does not have; the framework names the methods of the path's first route only."""
    allowed = {
        method
        for context in iter_route_contexts(request.app.routes)
        if context.path_regex.match(request.url.path)
        for method in context.methods or ()
    }
    message = f"this path has {', '.join(sorted(allowed))} only"
    return error_response(Problem(405, "method_not_allowed"), message, headers={"Allow": ", ".join(sorted(allowed))})


async def _invalid(request: Request, error: Exception) -> Response:
    """Answer a parameter or body that does not fit: the first problem, and where it is."""
    assert isinstance(error, RequestValidationError)
    first = cast("Mapping[str, Any]", error.errors()[0])
    place = _place(first["loc"], error.body)
    param = ".".join(place[1:]) or None
    if place == ("body",) and isinstance(error.body, bytes | None) and not _is_json(request):
        return error_response(_WRONG_TYPE, "send the body as JSON, with Content-Type: application/json")
    if first["type"] == "extra_forbidden":
        return error_response(Problem(400, "unknown_field"), f"there is no field {place[-1]!r} here", param)
    if first["type"] == "none_required":
        return error_response(Problem(400, "unsupported_field"), f"{param} is not supported", param)
    if first["type"] in _UNKNOWN_TAGS:
        known = first.get("ctx", {}).get("expected_tags")
        message = f"{param or place[0]}: there is no such type here" + (f"; there is {known}" if known else "")
        return error_response(_INVALID, message, param or place[0])
    if first["type"] == "missing":
        return error_response(Problem(400, "missing_field"), f"{place[-1]} is missing", param or place[0])
    return error_response(_INVALID, f"{param or place[0]}: {reason_of(first['msg'])}", param or place[0])


def _place(location: Sequence[str | int], body: object) -> tuple[str, ...]:
    """Return where a problem is in a request."""
    if not location or location[0] != "body":
        return tuple(str(part) for part in location)
    return ("body", *place_in(location[1:], body))


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
